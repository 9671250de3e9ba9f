"""Shards come back in turns over the runs and in bounded parts; old workers are forgotten."""

from __future__ import annotations

import pytest

from scrapy_resume.store import leases, reaping, turns, waits, workers
from scrapy_resume.store.tasks import Task
from tests.store.parallel import in_threads
from tests.store.worlds import World


def expired(world: World, task: Task, instance: str = "w1", limit: int = 1000) -> list[int]:
    """Claim what there is with a lease that ends at once."""
    claimed = world.claim(task, limit, worker=f"of {instance}", instance=instance, lease=-1)
    return [one.id for one in claimed]


def ids(world: World, **options: object) -> list[int]:
    return leases.reap(world.db, actor="reaper", **options)  # type: ignore[arg-type]


def register(world: World, instance: str) -> None:
    workers.register(world.db, worker=f"of {instance}", instance=instance, host="h", pid=1,
                     version="1", protocol=1, capacity=8)  # fmt: skip


def test_the_holders_of_expired_leases(world: World) -> None:
    task = world.plan(5)
    expired(world, task, "w1", 2)
    expired(world, task, "w2", 1)
    world.claim(task, 1, instance="alive")
    assert leases.expired_holders(world.db) == {"w1", "w2"}


def test_who_is_alive_gets_one_more_lease(world: World) -> None:
    task = world.plan(3)
    a, b, c = (expired(world, task, name, 1)[0] for name in "abc")
    assert ids(world, alive=["a", "b"], lease=60) == [c]
    world.sql("UPDATE resume_task_shard SET lease_until = '2020-01-01' WHERE id = :id", id=a)
    assert ids(world, alive=["a", "b"], lease=60) == [a]
    assert ids(world, alive=["b"], lease=60) == []
    assert ids(world, lease=60) == [b]


def test_only_those_that_were_seen_silent_lose_their_shards(world: World) -> None:
    task = world.plan(2)
    a, b = (expired(world, task, name, 1)[0] for name in "ab")
    assert ids(world, only=[]) == []
    assert ids(world, only=["b"]) == [b]
    assert ids(world, only=["b", "a"]) == [a]


def test_a_reap_tells_what_waits_again(world: World) -> None:
    task = world.plan(2, max_attempts=2)
    one, _ = sorted(expired(world, task))
    world.sql("UPDATE resume_task_shard SET attempt_count = 2 WHERE id <> :id", id=one)
    assert ids(world) == [one]
    assert {row[0] for row in world.sql("SELECT status FROM resume_task_shard")} == {
        "pending", "failed"
    }  # fmt: skip


def test_a_run_with_many_expired_shards_does_not_starve_another(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reaping, "_OF_A_CALL", 20)
    monkeypatch.setattr(reaping, "_AT_ONCE", 7)
    many, few = world.plan(200, name="many"), world.plan(3, name="few")
    expired(world, many)
    late = expired(world, few)
    back = ids(world)
    assert len(back) == 20 and set(late) <= set(back)
    while ids(world):
        pass
    assert world.sql("SELECT COUNT(*) FROM resume_task_shard WHERE status = 'running'") == [(0,)]


def test_a_run_with_many_waiting_shards_does_not_starve_another(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waits, "_OF_A_CALL", 20)
    monkeypatch.setattr(waits, "_AT_ONCE", 7)
    world.plan(200, name="many")
    few = world.plan(3, name="few")
    world.sql("UPDATE resume_task_shard SET due = 0, next_run_at = '2020-01-01'")
    world.sql("UPDATE resume_task_shard SET next_run_at = '2021-01-01' WHERE task_id = :t",
              t=few.id)  # fmt: skip
    assert leases.raise_due(world.db) == 20
    assert leases.outlook(world.db, few.id).due == 3
    assert [leases.raise_due(world.db) for _ in range(10)] == [20] * 9 + [3]
    assert leases.raise_due(world.db) == 0


@pytest.mark.mutant
def test_housekeeping_without_turns_is_noticed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = turns.turns_query

    def by_age(db, index, rule):  # type: ignore[no-untyped-def]
        query = plain(db, index, rule)
        return query.order_by(None).order_by(query.selected_columns.id)

    monkeypatch.setattr(turns, "turns_query", by_age)
    with pytest.raises(AssertionError):
        test_a_run_with_many_expired_shards_does_not_starve_another(world, monkeypatch)


def test_many_reapers_take_each_shard_once(world: World, database_url: str) -> None:
    task = world.plan(300)
    expired(world, task)
    back: list[int] = []
    in_threads(database_url, [lambda other: back.extend(ids(other))] * 3)
    back += ids(world)
    assert sorted(back) == list(range(1, 301))
    assert world.sql("SELECT DISTINCT fencing_token FROM resume_task_shard") == [(2,)]


def test_held_code_errors_of_a_large_run_are_raised_in_parts(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waits, "_AT_ONCE", 10)
    task = world.plan(35)
    world.sql("UPDATE resume_task_shard SET due = 0, error_kind = 'code'")
    assert leases.raise_code_holds(world.db, task.id) == 35


def test_workers_that_are_long_silent_are_forgotten(world: World) -> None:
    for instance in ("a", "b", "c", "d"):
        register(world, instance)
    workers.stopped(world.db, instance="d")
    world.sql("UPDATE resume_worker SET heartbeat_at = '2020-01-01' WHERE instance <> 'a'")
    world.sql("UPDATE resume_worker SET stopped_at = '2020-01-01' WHERE instance = 'b'")
    assert [workers.prune(world.db, 2), workers.prune(world.db, 2)] == [2, 1]
    assert workers.prune(world.db, 2) == 0
    assert set(world.workers()) == {"a"}
