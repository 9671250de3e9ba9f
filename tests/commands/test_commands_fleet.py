"""``scrapy resume status`` and ``why`` about workers, and about what keeps shards waiting."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from sqlalchemy import insert, update

from scrapy_resume.page import Shard
from scrapy_resume.store import attendance, leases, workers
from scrapy_resume.store.tasks import Task
from tests.commands.conftest import Scrapy
from tests.store.worlds import World, page


def work(world: World, task: Task, number: int, *, silent: float = 0.0) -> str:
    """A worker of *task*, last heard of *silent* seconds ago; returns its instance."""
    instance = f"i{number}"
    workers.register(
        world.db, worker=f"{number}" * 32, instance=instance, host=f"host{number}",
        pid=4710 + number, version="0.1", protocol=1, capacity=8,
    )  # fmt: skip
    attendance.attend(world.db, task.id, instance=instance, lease=15, alone=False)
    table = world.db.tables.worker
    with world.db.transaction() as conn:
        heard = world.db.now(conn) - timedelta(seconds=silent)
        mine = table.c.instance == instance
        conn.execute(update(table).where(mine).values(heartbeat_at=heard))
    return instance


def set_site(world: World, **values: Any) -> None:
    table = world.db.tables.site_health
    with world.db.transaction() as conn:
        row = {"reason": "asked to", "set_by": "me", "updated_at": world.db.now(conn)}
        conn.execute(insert(table).values(row | values))


def shard_line(resume: Scrapy, number: int = 1, **settings: Any) -> str:
    lines = resume("why", "books", **settings).out.splitlines()
    return next(line for line in lines if line.startswith(f"Shard {number} "))


def test_status_shows_every_worker_and_what_it_holds(resume: Scrapy, world: World) -> None:
    task = world.plan(3)
    world.claim(task, 2, worker="1" * 32, instance=work(world, task, 1), lease=1000)
    work(world, task, 2)
    lines = resume("status", "books").out.splitlines()
    head, first, second = lines[lines.index("Workers") + 1 :]
    assert head.split()[:6] == ["worker", "host", "pid", "version", "id", "shards"]
    assert first.split()[:6] == ["11111111", "host1", "4711", "0.1", str(task.id), "2/8"]
    assert first.endswith("s ago") and "UTC" in first
    assert second.split()[:6] == ["22222222", "host2", "4712", "0.1", str(task.id), "0/8"]
    assert "UTC" not in second
    (one,) = resume("status", "--json").json["tasks"]
    assert [worker["heartbeat_age"] < 15 for worker in one["workers"]] == [True, True]


def test_prc_2_a_run_whose_workers_are_silent_is_not_running(resume: Scrapy, world: World) -> None:
    task = world.plan()
    world.claim(task, worker="1" * 32, instance=work(world, task, 1, silent=100), lease=-85)
    row, worker = resume("status").out.splitlines()[1], resume("status").out.splitlines()[-1]
    assert "no heartbeat since 20" in row and "running" not in row
    assert "no heartbeat since 20" in worker
    headline, shard, *_ = resume("why", "books").out.splitlines()
    assert "is unfinished, with no heartbeat since 20" in headline
    assert "whose lease ended" in shard and "no heartbeat since 20" in shard
    assert resume("why", "books").out.splitlines()[-1] == (
        "Its workers are silent; `scrapy resume run books` goes on with it: at once on the machine"
        " where they died, elsewhere when the leases have ended."
    )
    work(world, task, 2)
    assert "running" in resume("status").out.splitlines()[1]


def test_a_worker_that_ended_is_not_shown(resume: Scrapy, world: World) -> None:
    task = world.plan()
    workers.stopped(world.db, instance=work(world, task, 1))
    assert "Workers" not in resume("status").out


def test_why_names_workers_that_wait(resume: Scrapy, world: World) -> None:
    task = world.plan()
    work(world, task, 1)
    work(world, task, 2, silent=1000)
    said = resume("why", "books").out
    assert "Worker 11111111 (host1, pid 4711) holds nothing; last heard of " in said
    assert "Worker 22222222 (host2, pid 4712) holds nothing; no heartbeat since 20" in said


def test_a_parked_site(resume: Scrapy, world: World) -> None:
    world.plan([Shard("a", 1, 2, site="a.example")])
    set_site(world, site="a.example", state="paused")
    assert "its site is paused: asked to, 0 of 10 tries spent" in shard_line(resume)
    (shard,) = resume("why", "books", "--json").json["shards"]
    assert (shard["claimable"], shard["obstacle"]) == (False, "its site is paused: asked to")
    claimed = leases.claim(world.db, 1, worker="w", instance="i", limit=1, lease=15)
    assert claimed == []  # what it says is what a claim finds


def test_a_site_at_its_cap(resume: Scrapy, world: World) -> None:
    task = world.plan([Shard("a", 1, 2, site="s"), Shard("b", 1, 2, site="s")])
    world.claim(task, 1, lease=1000)
    assert "it may be claimed now" in shard_line(resume, 2)
    capped = shard_line(resume, 2, RESUME_SITE_SHARDS=1)
    assert "1 shards of its site are read, RESUME_SITE_SHARDS is 1" in capped


def test_a_site_that_another_run_fills(resume: Scrapy, world: World) -> None:
    world.claim(world.plan([Shard("a", 1, 2, site="s")], name="other"), lease=1000)
    world.plan([Shard("a", 1, 2, site="s")])
    capped = shard_line(resume, RESUME_SITE_SHARDS=1)
    assert "1 shards of its site are read, RESUME_SITE_SHARDS is 1" in capped
    assert resume("why", "books", "--json").json["site_shards"] == {"s": 1}


def test_a_shard_that_is_not_for_these_settings(resume: Scrapy, world: World) -> None:
    world.plan([Shard("a", 1, 2, priority=7)])
    said = shard_line(resume, RESUME_PRIORITIES="0-2")
    assert "it may be claimed now, but not by a process with these settings" in said


def test_a_suspect(resume: Scrapy, world: World) -> None:
    task = world.plan()
    for number in range(2):
        world.claim(task, instance=f"i{number}", lease=15)
        leases.reclaim_worker(world.db, worker="w", instance="next")
    assert "but alone, by a process that holds nothing" in shard_line(resume)


def test_a_paused_and_an_unplanned_run(resume: Scrapy, world: World) -> None:
    world.plan()
    world.sql("UPDATE resume_task SET desired = 'pause'")
    assert "the run is paused" in shard_line(resume)


def test_a_run_whose_last_worker_died_before_it_was_declared_over(
    resume: Scrapy, world: World
) -> None:
    task = world.plan([Shard("a", 1, 1)])
    (shard,) = world.claim(task)
    world.commit(page(shard, 1))
    world.sql("UPDATE resume_task_shard SET status = 'done', worker = NULL, instance = NULL,"
              " lease_until = NULL")  # fmt: skip
    assert "has no shard left, but nobody declared it over yet" in resume("why", "books").out
