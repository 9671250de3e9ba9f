"""``scrapy resume reap``."""

from __future__ import annotations

import shutil
import time
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import update

from scrapy_resume.commands import reap
from scrapy_resume.exceptions import StoreUnavailable
from scrapy_resume.page import Shard
from scrapy_resume.settings import ResumeSettings
from scrapy_resume.store import leases, operations, workers
from scrapy_resume.store.records import Finish, Release
from scrapy_resume.worker import WorkerSlot
from tests.commands.conftest import Scrapy
from tests.store.journals import Slot
from tests.store.worlds import World, page

QUICK = {"RESUME_LEASE": 0.5, "RESUME_HEARTBEAT": 0.1}
_NOTHING = {"recovered": 0, "reclaimed": 0, "due": 0, "ended": [], "pruned": 0}


def test_where_nothing_is_nothing_is_made(scrapy: Scrapy) -> None:
    assert scrapy("resume", "reap", "--json").json == _NOTHING
    assert list(Path.cwd().iterdir()) == []


def test_nothing_to_do_is_said_at_once(resume: Scrapy, world: World) -> None:
    world.claim(world.plan(), lease=1000)
    begun = time.monotonic()
    assert resume("reap", RESUME_LEASE=60).out == "Nothing had to be taken back.\n"
    assert time.monotonic() - begun < 20


def test_what_is_not_renewed_for_one_more_lease_is_taken_back(resume: Scrapy, world: World) -> None:
    task = world.plan(3)
    held = world.claim(task, lease=-1)
    begun = time.monotonic()
    outcome = resume("reap", **QUICK)
    assert time.monotonic() - begun >= 0.5
    assert outcome.code == 0
    assert "Leases of 1 worker(s) have ended; watching for 0.5 s" in outcome.out
    assert "Took back 3 shard(s) whose leases had ended." in outcome.out
    assert all(world.shard(one.id).status == "pending" for one in held)
    acts = [act for _, act in operations.find(world.db, task.id)]
    assert {act.kind for act in acts} == {"reclaim"}
    assert all(act.actor.startswith("scrapy resume reap by ") for act in acts)


def test_a_living_worker_that_renews_after_an_outage_keeps_its_shards(
    resume: Scrapy, world: World, monkeypatch: object
) -> None:
    task = world.plan(2)
    (mine, other) = world.claim(task, 1, instance="living", lease=-1) + world.claim(
        task, 1, instance="dead", lease=-1
    )
    nap = time.sleep

    def sleep(seconds: float) -> None:
        held = {mine.id: mine.fencing_token}
        leases.renew(world.db, instance="living", shards=held, lease=100, task_id=task.id)
        nap(seconds)

    monkeypatch.setattr(reap.time, "sleep", sleep)  # type: ignore[attr-defined]
    assert resume("reap", "--json", **QUICK).json["reclaimed"] == 1
    assert world.shard(mine.id).status == "running"
    assert world.shard(other.id).status == "pending"


@pytest.mark.parametrize("whose", ["ours", "a neighbour's"])
def test_what_a_dead_process_had_read_is_stored_before_its_shards_are_taken_back(
    resume: Scrapy, world: World, tmp_path: Path, whose: str
) -> None:
    home = tmp_path / "home"
    slots = [WorkerSlot.take(home) for _ in range(2)]
    dead = slots[0] if whose == "ours" else slots[1]
    (one,) = world.claim(world.plan(), worker=dead.worker, instance=dead.instance)
    workers.register(world.db, worker=dead.worker, instance=dead.instance, host="h", pid=1,
                     version="1", protocol=1, capacity=8)  # fmt: skip
    Slot(world, dead.directory, dead.worker).write(page(one, 1), page(one, 2))
    for slot in slots:
        slot.free(clean=slot is not dead)
    outcome = resume("reap", RESUME_HOME=str(home))
    assert "Took back 1 shard(s) of processes that died on this machine." in outcome.out
    assert (world.shard(one.id).cur_page, world.shard(one.id).status) == (2, "pending")


def test_who_died_on_this_machine_is_not_waited_for(
    resume: Scrapy, world: World, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    dead, living = WorkerSlot.take(home), WorkerSlot.take(home)
    task = world.plan(2)
    for slot in (dead, living):
        world.claim(task, 1, worker=slot.worker, instance=slot.instance, lease=1000)
    dead.free(clean=False)
    for slot in (dead, living):
        workers.register(
            world.db, worker=slot.worker, instance=slot.instance, host=slot.host, pid=slot.pid,
            version="1", protocol=1, capacity=8,
        )  # fmt: skip
    outcome = resume("reap", RESUME_HOME=str(home))
    assert outcome.out == "Took back 1 shard(s) of processes that died on this machine.\n"
    assert set(world.workers()) == {living.instance}
    living.free()


def test_a_copied_home_takes_nothing_from_the_one_in_use(
    resume: Scrapy, world: World, tmp_path: Path
) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    WorkerSlot.take(one).free()
    shutil.copytree(one, two)
    living = WorkerSlot.take(one)
    world.claim(world.plan(2), 1, worker=living.worker, instance=living.instance, lease=1000)
    assert resume("reap", RESUME_HOME=str(two)).out == "Nothing had to be taken back.\n"
    living.free()


def test_a_slot_stays_dead_if_the_database_could_not_be_asked(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    dead, living = WorkerSlot.take(home), WorkerSlot.take(home)
    dead.free(clean=False)

    def away(*args: object, **kwargs: object) -> None:
        raise StoreUnavailable("away")

    monkeypatch.setattr(leases, "reclaim_worker", away)
    with pytest.raises(StoreUnavailable):
        reap.reap(world.db, ResumeSettings(home=home), print)
    assert [one.worker for one in living.dead_neighbours()] == [dead.worker]
    living.free()


def test_what_has_waited_long_enough_is_raised(resume: Scrapy, world: World) -> None:
    (shard,) = world.claim(world.plan())
    world.commit(Release(shard.id, shard.fencing_token, "page 1: 503", "retryable", 500, True))
    assert resume("reap", "--json").json["due"] == 0
    table = world.db.tables.task_shard
    with world.db.transaction() as conn:
        now = world.db.now(conn) - timedelta(seconds=1)
        conn.execute(update(table).values(next_run_at=now))
    assert resume("reap").out == "1 shard(s) fell due.\n"
    assert world.shard(shard.id).due == 1


def test_a_run_that_nobody_ended_is_declared_over(resume: Scrapy, world: World) -> None:
    """Its last owner died after the last shard became final."""
    task = world.plan([Shard("a", 1, 1)])
    unfinished = world.plan(1, name="other")
    (shard,) = world.claim(task)
    world.commit(page(shard, 1), Finish(shard.id, shard.fencing_token, "done", "read"))
    outcome = resume("reap")
    assert outcome.out == f"Run 1 of books (id {task.id}) is over: complete.\n"
    tasks = {one["task_id"]: one for one in resume("status", "--json").json["tasks"]}
    assert tasks[task.id]["verdict"] == "complete"
    assert tasks[unfinished.id]["verdict"] is None
    assert resume("reap", "--json").json == _NOTHING


def test_what_an_operator_wished_is_carried_out(resume: Scrapy, world: World) -> None:
    """A shard may be given back in the very moment of the act."""
    cancelled, paused = world.plan(1), world.plan(1, name="other")
    for task, wish in ((cancelled, "cancel"), (paused, "pause")):
        world.sql("UPDATE resume_task SET desired = :wish WHERE id = :id", wish=wish, id=task.id)
    outcome = resume("reap")
    assert outcome.out == "Run 1 of books (id 1) is over: nothing_read.\n"
    rows = world.sql("SELECT status FROM resume_task_shard ORDER BY id")
    assert [row.status for row in rows] == ["failed", "paused"]
