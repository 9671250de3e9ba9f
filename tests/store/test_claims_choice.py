"""What a claim may choose: by intake, hints, parked sites and caps, suspects last."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from sqlalchemy import event

from scrapy_resume.intake import Intake
from scrapy_resume.page import Shard
from scrapy_resume.store import leases
from scrapy_resume.store.checkpoints import Finish
from scrapy_resume.store.leases import ClaimedShard
from scrapy_resume.store.sites import Rooms
from scrapy_resume.store.tasks import Task
from tests.proxy import Proxy
from tests.store.parallel import in_threads
from tests.store.worlds import World


def claim(world: World, task: Task, limit: int = 100, **options: Any) -> list[ClaimedShard]:
    options = {"worker": "w", "instance": "w1", "lease": 60.0} | options
    return leases.claim(world.db, task.id, limit=limit, **options)


def keys(claimed: Iterable[ClaimedShard]) -> list[str]:
    return [one.shard.key for one in claimed]


def park(world: World, site: str, state: str, until: str = "NULL") -> None:
    world.sql(
        "INSERT INTO resume_site_health (site, state, reason, until, updated_at)"
        f" VALUES (:site, :state, 'a test', {until}, '2026-01-01')",
        site=site, state=state,
    )  # fmt: skip


def run_of(world: World, *shards: tuple[int, int, str]) -> Task:
    """A run of shards with a lane, a priority and a site each; keys s1, s2, …"""
    task = world.plan(
        [Shard(f"s{n}", priority=one[1], site=one[2]) for n, one in enumerate(shards, 1)]
    )
    for number, (lane, _, _) in enumerate(shards, 1):
        world.sql("UPDATE resume_task_shard SET lane = :l WHERE shard_no = :n", l=lane, n=number)
    return task


@pytest.mark.parametrize(
    ("intake", "expected"),
    [
        (Intake(), ["s1", "s2", "s3", "s4"]),
        (Intake.parse("resumed"), ["s3", "s4"]),
        (Intake.parse("fresh", "0-4"), ["s1"]),
        (Intake.parse("", "5,7-9"), ["s2", "s4"]),
        (Intake.parse("", "1-4,6"), []),
        (Intake(sites=frozenset({"b"})), ["s2", "s3"]),
        (Intake.parse("resumed", "0", ["a"]), []),
    ],
)
def test_an_intake_takes_only_its_own(world: World, intake: Intake, expected: list[str]) -> None:
    task = run_of(world, (0, 0, "a"), (0, 5, "b"), (1, 0, "b"), (1, 9, "a"))
    assert keys(claim(world, task, intake=intake)) == expected


def test_hints_choose_among_the_equally_urgent(world: World) -> None:
    task = world.plan(9)
    assert keys(claim(world, task, 3, hints=[7, 5, 4711, 7])) == ["s7", "s5", "s1"]
    assert keys(claim(world, task, 4, hints=[7, 1, 9])) == ["s9", "s2", "s3", "s4"]
    assert keys(claim(world, task, 9, hints=[6])) == ["s6", "s8"]


def test_a_hint_never_comes_before_a_more_urgent_shard(world: World) -> None:
    task = run_of(world, (1, 0, "a"), (0, 5, "a"), (0, 0, "b"), (0, 5, "a"))
    assert keys(claim(world, task, 3, hints=[1, 4])) == ["s3", "s4", "s2"]
    assert keys(claim(world, task, 3, hints=[1, 4])) == ["s1"]


def test_hints_are_confirmed_by_the_rows(world: World) -> None:
    task = run_of(world, (0, 0, "a"), (0, 0, "b"), (0, 0, "c"), (0, 5, "a"))
    other = world.plan(1, name="other")
    park(world, "c", "blocked")
    world.sql("UPDATE resume_task_shard SET status = 'done', due = 0 WHERE id = 1")
    hints = [5, 4, 3, 2, 1]
    elsewhere = Intake.parse("", "0", ["a", "c"])
    assert claim(world, task, 5, hints=hints, intake=elsewhere) == []
    assert keys(claim(world, task, 5, hints=hints)) == ["s2", "s4"]
    assert keys(claim(world, other)) == ["s1"]


def test_many_hints_of_several_sites_under_a_cap(world: World) -> None:
    task = world.plan([Shard(f"s{n}", site=f"site{n % 3}") for n in range(30)])
    taken = claim(world, task, 20, hints=range(30, 0, -1), site_cap=4)
    assert Counter(one.site for one in taken) == {"site0": 4, "site1": 4, "site2": 4}
    assert len(set(keys(taken))) == 12


@pytest.mark.parametrize(
    ("state", "until", "open_"),
    [
        ("blocked", "NULL", False),
        ("paused", "NULL", False),
        ("paused", "'2100-01-01'", False),
        ("paused", "'2000-01-01'", True),
        ("suspect", "NULL", True),
        ("healthy", "'2100-01-01'", True),
    ],
)
def test_a_parked_site_gives_nothing_out(world: World, state: str, until: str, open_: bool) -> None:
    task = world.plan([Shard("a", site="parked"), Shard("b", site="well")])
    park(world, "parked", state, until)
    assert sorted(keys(claim(world, task))) == (["a", "b"] if open_ else ["b"])
    world.sql("DELETE FROM resume_site_health")
    assert keys(claim(world, task)) == ([] if open_ else ["a"])


def test_a_cap_counts_all_runs_and_workers(world: World) -> None:
    one = world.plan([Shard(f"s{n}", site="x") for n in range(5)])
    two = world.plan([Shard(f"s{n}", site="xy"[n % 2]) for n in range(6)], name="other")
    held = claim(world, one, 2, site_cap=3)
    assert len(held) == 2
    more = claim(world, two, worker="v", instance="v1", site_cap=3)
    assert Counter(shard.site for shard in more) == {"x": 1, "y": 3}
    assert claim(world, one, site_cap=3) == []
    assert len(claim(world, one, site_cap=4)) == 1, "another worker's cap may be another"
    world.positions.update({held[0].id: held[0].position})
    world.commit(Finish(held[0].id, held[0].fencing_token, "failed", "a test"))
    assert claim(world, one, site_cap=3) == []
    assert len(claim(world, one)) == 2


def _overtaking(world: World) -> None:
    task = world.plan([Shard(f"s{n}", site=f"site{n % 3}") for n in range(60)])
    most: list[int] = []

    def claiming(name: str, hinted: bool):  # type: ignore[no-untyped-def]
        def work(other: World) -> None:
            for _ in range(6):
                hints = range(1, 61) if hinted else ()
                claim(other, task, 4, worker=name, instance=name, site_cap=5, hints=hints)
                counts = other.sql(
                    "SELECT COUNT(*) FROM resume_task_shard WHERE status = 'running' GROUP BY site"
                )
                most.extend(count for (count,) in counts)

        return work

    in_threads(_url(world), [claiming(f"w{n}", n % 2 == 0) for n in range(6)])
    claim(world, task, site_cap=5)
    assert max(most) == 5
    rows = world.sql("SELECT site, COUNT(*) FROM resume_task_shard WHERE status = 'running'"
                     " GROUP BY site")  # fmt: skip
    assert sorted(map(tuple, rows)) == [("site0", 5), ("site1", 5), ("site2", 5)]


def _url(world: World) -> str:
    return world.db.engine.url.render_as_string(hide_password=False)


def test_simultaneous_claims_do_not_exceed_a_cap(world: World) -> None:
    _overtaking(world)


@pytest.mark.mutant
def test_a_cap_without_the_lock_of_its_site_is_noticed(
    mariadb_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Rooms, "_lock", lambda self, sites, wait: sites)

    def again_and_again() -> None:
        for _ in range(10):
            mariadb_world.sql("DELETE FROM resume_task")
            _overtaking(mariadb_world)

    with pytest.raises(AssertionError):
        again_and_again()


def test_a_claim_waits_for_the_only_site_and_passes_by_a_busy_one(mariadb_world: World) -> None:
    task = mariadb_world.plan([Shard(f"{site}{n}", site=site) for site in "xy" for n in range(3)])
    lock = "SELECT site FROM resume_site_health WHERE site = 'x' FOR UPDATE"
    claim(mariadb_world, task, 1, site_cap=1, intake=Intake(sites=frozenset("x")))
    with mariadb_world.db.transaction() as conn:
        conn.exec_driver_sql(lock)
        taken = claim(mariadb_world, task, 6, site_cap=2)
        assert keys(taken) == ["y0", "y1"], "x is busy, y is not"
    assert keys(claim(mariadb_world, task, 6, site_cap=2)) == ["x1"]


@pytest.mark.parametrize("action", ["cut_after", "cut_before"])
@pytest.mark.parametrize("options", [{"hints": [4, 3]}, {"site_cap": 2}])
def test_txn_4_the_reply_of_a_claim_by_hints_or_under_a_cap_is_lost(
    relayed: World, mariadb_world: World, proxy: Proxy, action: str, options: dict[str, Any]
) -> None:
    task = mariadb_world.plan(4)
    proxy.rule("COMMIT", action)
    taken = claim(relayed, task, 2, **options)
    assert keys(taken) == (["s4", "s3"] if "hints" in options else ["s1", "s2"])
    assert [one.fencing_token for one in taken] == [1, 1]
    assert leases.outlook(mariadb_world.db, task.id).running == 2


def kill_twice(world: World, task: Task, count: int) -> None:
    """Let *count* shards kill their process twice."""
    for instance in ("i1", "i2"):
        for _ in range(count):
            world.claim(task, 1, instance=instance)
        leases.reclaim_worker(world.db, worker="w", instance="later")
        world.sql("UPDATE resume_task_shard SET lane = 0")


@pytest.mark.parametrize("hints", [(), (1, 2, 3), (1, 2, 3, 5)])
def test_suspects_before_all_others_do_not_hide_them(world: World, hints: Sequence[int]) -> None:
    task = world.plan([Shard("a"), Shard("b"), Shard("c"), Shard("d", priority=1), Shard("e")])
    kill_twice(world, task, 3)
    taken = claim(world, task, 3, hints=hints)
    assert (keys(taken), [one.suspect for one in taken]) == (["e", "d"], [False, False])
    assert claim(world, task, 3, hints=hints, alone=False) == []
    (suspect,) = claim(world, task, 3, hints=hints)
    assert suspect.suspect and suspect.shard.key in "abc"


def test_no_site_starves_however_many_there_are(world: World) -> None:
    task = world.plan([Shard(f"s{n}-{k}", site=f"site{n:02}") for n in range(40) for k in range(3)])
    sites = {one.site for _ in range(12) for one in claim(world, task, 8)}
    assert len(sites) > 20
    assert len(claim(world, task, 200)) == 120 - 12 * 8


def test_the_cost_of_a_claim_does_not_grow_with_sites(world: World) -> None:
    task = world.plan([Shard(f"s{n}", site=f"site{n}") for n in range(300)])
    statements: list[str] = []

    @event.listens_for(world.db.engine, "before_cursor_execute")
    def count(conn: Any, cursor: Any, statement: str, *more: Any) -> None:
        statements.append(statement)

    assert len(claim(world, task, 8)) == 8
    assert len(statements) < 35
