"""Claims: each shard to one owner, the most urgent first, and no locks on the others."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from sqlalchemy.dialects import mysql

from scrapy_resume.page import Shard
from scrapy_resume.store import leases
from scrapy_resume.store.checkpoints import Release
from scrapy_resume.store.claimindex import claim_query
from scrapy_resume.store.engine import Database
from tests.services import MariaDB
from tests.store.parallel import in_threads, start_process
from tests.store.worlds import World


def test_order_lane_then_priority_then_plan(world: World) -> None:
    priorities = {"c": 2, "a": 1, "b": 1, "d": 9}
    task = world.plan([Shard(key, priority=priority) for key, priority in priorities.items()])
    (a,) = world.claim(task, 1)
    assert a.shard.key == "a"
    world.sql("UPDATE resume_task_shard SET lane = 1 WHERE shard_key = 'b'")
    assert [one.shard.key for one in world.claim(task, 2)] == ["c", "d"]
    assert [one.shard.key for one in world.claim(task)] == ["b"]


def test_the_most_urgent_of_all_sites_come_first(world: World) -> None:
    task = world.plan(
        [Shard(f"{site}{n}", site=site, priority=n) for n in range(4) for site in "xyz"]
    )
    first = world.claim(task, 5)
    assert {one.shard.key for one in first[:3]} == {"x0", "y0", "z0"}
    assert [one.shard.priority for one in first] == [0, 0, 0, 1, 1]
    assert len(world.claim(task, 100)) == 12 - 5
    assert world.claim(task) == []


@pytest.mark.parametrize("limit", range(1, 16))
def test_sites_of_different_size_share_a_claim(world: World, limit: int) -> None:
    sizes = {"a": 1, "b": 9, "c": 4}
    shards = [Shard(f"{site}{n}", site=site) for site, size in sizes.items() for n in range(size)]
    task = world.plan(shards + [Shard(f"late{n}", site="b", priority=5) for n in range(3)])
    claimed = [one.shard.key for one in world.claim(task, limit)]
    assert len(claimed) == len(set(claimed)) == limit
    counts = Counter(key[0] for key in claimed)
    assert all(counts[site] >= min(size, limit // 3) for site, size in sizes.items())
    assert len([key for key in claimed if key.startswith("late")]) == max(0, limit - 14)
    rest = [one.shard.key for one in world.claim(task, 100)]
    assert len(rest) == 17 - limit
    assert set(rest).isdisjoint(claimed)


def test_every_claim_raises_the_token(world: World) -> None:
    task = world.plan(1)
    for expected in range(1, 5):
        (one,) = world.claim(task)
        assert one.fencing_token == expected == world.shard(one.id).fencing_token
        world.commit(Release(one.id, one.fencing_token, "again"))


def test_nothing_is_claimed_for_a_limit_of_zero_or_an_unknown_task(world: World) -> None:
    task = world.plan(2)
    assert world.claim(task, 0) == []
    assert leases.claim(world.db, 4711, worker="w", instance="i", limit=1, lease=1) == []


@pytest.mark.parametrize("limit", [1, 7])
def test_concurrent_claimers_in_threads(world: World, database_url: str, limit: int) -> None:
    task = world.plan([Shard(f"s{n}", site=f"site{n % 3}") for n in range(60)])
    claimed: list[tuple[int, int]] = []

    def claim_all(name: str):  # type: ignore[no-untyped-def]
        def work(other: World) -> None:
            while found := other.claim(task, limit, worker=name, instance=name):
                claimed.extend((one.id, one.fencing_token) for one in found)

        return work

    in_threads(database_url, [claim_all(f"w{n}") for n in range(4)])
    _take_the_rest(world, task, claimed)
    assert Counter(shard_id for shard_id, _ in claimed) == Counter(range(1, 61))
    assert {token for _, token in claimed} == {1}


def _take_the_rest(world: World, task, claimed) -> None:  # type: ignore[no-untyped-def]
    # An empty claim is not the end of the work: others may have held the locks.
    claimed.extend((one.id, one.fencing_token) for one in world.claim(task))


CLAIMER = """
import json
from scrapy_resume.store import leases
from scrapy_resume.store.engine import Database
db, task, name = Database.connect(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
got = []
while found := leases.claim(db, task, worker=name, instance=name, limit=5, lease=60):
    got += [(one.id, one.fencing_token) for one in found]
print(json.dumps(got))
"""


def test_concurrent_claimers_in_processes(world: World, database_url: str) -> None:
    task = world.plan(200)
    processes = [start_process(CLAIMER, database_url, str(task.id), f"p{n}") for n in range(4)]
    claimed: list[tuple[int, int]] = []
    for process in processes:
        out, errors = process.communicate(timeout=180)
        assert process.returncode == 0, errors
        claimed += map(tuple, json.loads(out))
    _take_the_rest(world, task, claimed)
    assert Counter(shard_id for shard_id, _ in claimed) == Counter(range(1, 201))
    assert {token for _, token in claimed} == {1}


def test_a_claim_passes_over_what_another_one_has_locked(
    mariadb: MariaDB, mariadb_name: str
) -> None:
    world = _world(mariadb, mariadb_name)
    task = world.plan(10)
    with world.db.transaction() as conn:
        locked = {row.id for row in conn.execute(claim_query(world.db), wanted(task.id, 4))}
        others = world.claim(task, 4)
    assert len(others) == 4
    assert locked.isdisjoint({one.id for one in others})


def test_the_claim_needs_no_sort(mariadb: MariaDB, mariadb_name: str) -> None:
    world = _world(mariadb, mariadb_name)
    task = world.plan([Shard(f"s{n}", priority=n % 3, site=f"site{n % 2}") for n in range(3000)])
    world.sql("ANALYZE TABLE resume_task_shard")
    query = claim_query(world.db).params(**wanted(task.id, 10, "site1"))
    with world.db.transaction() as conn:
        text = str(query.compile(dialect=conn.dialect, compile_kwargs={"literal_binds": True}))
        assert text.endswith("FOR UPDATE SKIP LOCKED")
        plan = conn.exec_driver_sql("EXPLAIN " + text.replace("%", "%%")).mappings().one()
    assert plan["key"] == "resume_task_shard_claim"
    assert "filesort" not in (plan["Extra"] or "")
    assert "temporary" not in (plan["Extra"] or "")


def test_an_open_claim_does_not_block_the_storing_of_shards(
    mariadb: MariaDB, mariadb_name: str
) -> None:
    world = _world(mariadb, mariadb_name)
    task = world.plan(10)
    with world.db.transaction() as conn:
        conn.execute(claim_query(world.db), wanted(task.id, 4)).all()
        world.plan(10, name="other")


def test_the_claims_text_for_mysql_8() -> None:
    db = Database.connect("mysql+pymysql://u@h/d")
    text = str(claim_query(db).compile(dialect=mysql.dialect()))
    assert "ORDER BY" in text
    assert text.endswith("FOR UPDATE SKIP LOCKED")


def wanted(task_id: int, limit: int, site: str = "site") -> dict[str, object]:
    """What a claim of one site and urgency asks for."""
    urgency = {"site": site, "lane": 0, "priority": 0}
    return {"task": task_id, "behind": 0, "wanted": limit} | urgency


def _world(mariadb: MariaDB, name: str) -> World:
    from scrapy_resume.store import migrate

    db = Database.connect(mariadb.url(name), max_connections=3)
    migrate.ensure_schema(db)
    return World(db)


def test_a_shard_whose_processes_died_twice_is_claimed_alone(world: World) -> None:
    task = world.plan([Shard("a"), Shard("b")])
    for instance in ("i1", "i2"):
        assert len(world.claim(task, instance=instance)) == 2
        leases.reclaim_worker(world.db, worker="w", instance="later")
    (suspect,) = world.claim(task, instance="i3")
    assert suspect.suspect and suspect.attempt_count == 3
    assert world.claim(task, instance="i3", alone=False) == []
    fresh = world.plan([Shard("c"), Shard("d")], name="other")
    assert not any(one.suspect for one in world.claim(fresh, instance="i3", alone=False))


def test_a_suspect_waits_while_others_can_be_claimed(world: World) -> None:
    task = world.plan([Shard("a"), Shard("b")])
    for instance in ("i1", "i2"):
        world.claim(task, 1, instance=instance)
        leases.reclaim_worker(world.db, worker="w", instance="later")
        world.sql("UPDATE resume_task_shard SET lane = 0")
    assert [one.shard.key for one in world.claim(task, instance="i3")] == ["b"]
