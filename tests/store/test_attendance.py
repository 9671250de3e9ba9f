"""Who works on a run; who may be alone with it; and runs that nobody ended."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from sqlalchemy import update

from scrapy_resume.page import Shard
from scrapy_resume.store import attendance, tasks, workers
from scrapy_resume.store.attendance import Presence
from scrapy_resume.store.records import Finish
from tests.store.parallel import in_threads
from tests.store.worlds import World, page

LEASE = 15.0


def register(world: World, instance: str, *, silent: float = 0.0) -> None:
    workers.register(
        world.db, worker=f"worker of {instance}", instance=instance, host="crawler7", pid=4711,
        version="1", protocol=1, capacity=8,
    )  # fmt: skip
    table = world.db.tables.worker
    with world.db.transaction() as conn:
        heard = world.db.now(conn) - timedelta(seconds=silent)
        mine = table.c.instance == instance
        conn.execute(update(table).where(mine).values(heartbeat_at=heard))


def attend(world: World, task: int, instance: str, *, alone: bool = False) -> list[Presence]:
    return attendance.attend(world.db, task, instance=instance, lease=LEASE, alone=alone)


def test_who_joins_learns_of_the_others(world: World) -> None:
    task, other = world.plan(2), world.plan(name="other")
    for instance in ("i1", "i2", "i3"):
        register(world, instance)
    assert attend(world, task.id, "i1") == []
    assert attend(world, other.id, "i3") == []
    world.claim(task, 1, worker="worker of i1", instance="i1", lease=100)
    (one,) = attend(world, task.id, "i2")
    assert (one.worker, one.host, one.pid, one.shards) == ("worker of i1", "crawler7", 4711, 1)
    assert one.until - one.since > timedelta(seconds=90)
    assert str(one).startswith("worker worker o (crawler7, pid 4711) since 20")


def test_who_wants_to_be_alone_is_not_recorded_if_he_is_not(world: World) -> None:
    task = world.plan()
    for instance in ("i1", "i2", "i3"):
        register(world, instance)
    attend(world, task.id, "i1")
    assert len(attend(world, task.id, "i2", alone=True)) == 1
    assert [one.worker for one in attend(world, task.id, "i3")] == ["worker of i1"]


def test_who_is_silent_or_has_ended_is_nobody(world: World) -> None:
    task = world.plan()
    register(world, "i1", silent=LEASE + 5)
    register(world, "i2")
    register(world, "i3")
    for instance in ("i1", "i2"):
        attend(world, task.id, instance)
    workers.stopped(world.db, instance="i2")
    assert attend(world, task.id, "i3", alone=True) == []


def test_a_lease_counts_whoever_holds_it(world: World) -> None:
    task = world.plan(2)
    register(world, "silent", silent=LEASE + 5)
    attend(world, task.id, "silent")
    world.claim(task, 1, worker="w", instance="silent", lease=100)
    world.claim(task, 1, worker="w2", instance="never registered", lease=100)
    register(world, "me")
    others = attend(world, task.id, "me", alone=True)
    assert sorted((one.host, one.pid) for one in others) == [
        ("crawler7", 4711), ("host unknown", None),
    ]  # fmt: skip


def test_known_dead_workers_have_ended(world: World) -> None:
    task = world.plan()
    register(world, "i1")
    attend(world, task.id, "i1")
    attendance.ended(world.db, worker="worker of i1")
    register(world, "i2")
    assert attend(world, task.id, "i2", alone=True) == []


def test_of_those_who_ask_at_the_same_moment_one_is_alone(world: World, database_url: str) -> None:
    for number in range(8):
        run = world.plan(name=f"books {number}")
        alone: list[str] = []

        def ask(instance: str, task: int, alone: list[str]) -> Callable[[World], None]:
            def work(mine: World) -> None:
                if not attend(mine, task, instance, alone=True):
                    alone.append(instance)

            return work

        instances = [f"i{number}-{one}" for one in range(4)]
        for instance in instances:
            register(world, instance)
        in_threads(database_url, [ask(instance, run.id, alone) for instance in instances])
        assert len(alone) == 1


def test_a_run_whose_shards_are_all_final_is_declared_over_by_anybody(world: World) -> None:
    ended = world.plan([Shard("a", 1, 1), Shard("b", 1, 1)])
    going = world.plan(1, name="going")
    world.open(name="unplanned")
    first, second = world.claim(ended)
    world.commit(page(first, 1), Finish(first.id, first.fencing_token, "done", "read"))
    assert tasks.finish_ended(world.db) == []
    world.commit(Finish(second.id, second.fencing_token, "failed", "a loop"))
    (over,) = tasks.finish_ended(world.db)
    assert (over.id, over.status, over.verdict) == (ended.id, "failed", "incomplete")
    assert tasks.finish_ended(world.db) == []
    assert tasks.find_tasks(world.db, going.id)[0].finished_at is None
