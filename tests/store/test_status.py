"""What ``status`` and ``why`` are made of."""

from __future__ import annotations

import json
from datetime import datetime

import pytest
from sqlalchemy import update

from scrapy_resume.exceptions import ConfigurationError
from scrapy_resume.page import ErrorKind, Shard
from scrapy_resume.store import status, tasks, workers
from scrapy_resume.store.checkpoints import Finish, Release
from tests.store.worlds import World, failure, page


def test_status_is_the_documented_object(world: World) -> None:
    task = world.plan(3)
    workers.register(
        world.db, worker="w", instance="w1", host="here", pid=7, version="1", protocol=1, capacity=8
    )
    one, two = world.claim(task, 2)
    world.commit(page(one, 1), page(one, 3), failure(one, 2))
    world.commit(page(two, 1), Finish(two.id, two.fencing_token, "done", "read"))
    shown = status.status(world.db, "books")
    assert json.loads(json.dumps(shown)) == shown
    (only,) = shown["tasks"]
    assert only["task_id"] == task.id
    assert (only["name"], only["spider"], only["run_no"]) == ("books", "books", 1)
    assert (only["status"], only["verdict"], only["reason"]) == ("running", None, "planned")
    assert (only["pages"], only["items"], only["dropped"], only["quarantined"]) == (3, 6, 0, 0)
    assert only["shards"] == {"pending": 1, "running": 1, "paused": 0, "done": 1, "failed": 0}
    first, second, third = only["watermarks"]
    assert first.pop("lease_until").endswith("Z")
    assert first == {
        "shard_no": 1, "first_page": 1, "last_page": 100, "cur_page": 1, "ahead": "3",
        "failed_pages": "2", "status": "running", "reason": "claimed", "worker": "w",
        "fencing_token": 1, "attempt_count": 0,
    }  # fmt: skip
    assert (second["status"], third["status"]) == ("done", "pending")
    assert [worker["instance"] for worker in only["workers"]] == ["w1"]
    assert only["health"] == []


def test_status_of_all_of_none_and_of_a_paused_run(world: World) -> None:
    assert status.status(world.db, None) == {"tasks": []}
    world.open(name="a")
    world.open(name="b")
    world.sql("UPDATE resume_task SET desired = 'pause' WHERE name = 'b'")
    shown = {task["name"]: task["status"] for task in status.status(world.db, None)["tasks"]}
    assert shown == {"b": "paused", "a": "planning"}
    assert status.status(world.db, "c") == {"tasks": []}


def test_why_names_what_is_held_by_whom_and_for_what_reason(world: World) -> None:
    task = world.plan(3)
    one, two, three = world.claim(task)
    world.commit(
        failure(one, 1, ErrorKind.BLOCKED),
        Release(one.id, one.fencing_token, "blocked", "blocked", 60.0, False, "captcha"),
        Finish(two.id, two.fencing_token, "done", "read"),
    )
    facts = status.why(world.db, task.id)
    held, running = facts["shards"]
    assert (held["status"], held["error_kind"], held["last_error"]) == (
        "pending", "blocked", "captcha"
    )  # fmt: skip
    assert held["next_run_at"] > facts["now"]
    assert (running["shard_key"], running["worker"]) == (three.shard.key, "w")
    with pytest.raises(ConfigurationError, match="no task 4711"):
        status.why(world.db, 4711)


def test_progress_of_bounded_and_open_ended_runs(world: World) -> None:
    task = world.plan([Shard("a", 1, 10), Shard("b", 5, 9)])
    one, _ = world.claim(task)
    world.commit(page(one, 1), page(one, 7))
    assert status.progress(world.db, task.id) == (2, 15)
    other = world.plan([Shard("c")], name="other")
    assert status.progress(world.db, other.id) == (0, None)


def test_workers_come_and_go(world: World) -> None:
    def register(instance: str) -> None:
        workers.register(
            world.db, worker="w", instance=instance, host="h", pid=1, version="1", protocol=1,
            capacity=8,
        )  # fmt: skip

    register("i1")
    register("i1")
    register("i2")
    workers.beat(world.db, instance="i2", load=3)
    assert world.workers() == {"i2": 3}
    workers.stopped(world.db, instance="i2")
    assert world.workers() == {}
    assert world.sql("SELECT COUNT(*) FROM resume_worker") == [(2,)]
    world.sql("UPDATE resume_worker SET heartbeat_at = '2001-01-01' WHERE instance = 'i1'")
    register("i3")
    assert workers.prune(world.db) == 1
    assert world.sql("SELECT COUNT(*) FROM resume_worker") == [(2,)]


def test_the_verdicts_reason_names_the_shards_reasons(world: World) -> None:
    task = world.plan(2)
    one, two = world.claim(task)
    world.commit(
        page(one, 1), Finish(one.id, one.fencing_token, "failed", "page 2: 410 Gone"),
        page(two, 1), Finish(two.id, two.fencing_token, "done", "read"),
    )  # fmt: skip
    over = tasks.finish_run(world.db, task.id)
    assert over.reason == "1 shard not done: 1 failed (page 2: 410 Gone)"


def test_for_how_long_a_run_was_quiet(world: World) -> None:
    """By the database's clock, over all its shards; a held page is nothing that moved."""
    task = world.plan(2)
    shard, runs = world.db.tables.task_shard, world.db.tables.task
    past = datetime(2020, 1, 1)
    with world.db.transaction() as conn:
        conn.execute(update(runs).values(started_at=past))
    assert status.quiet_for(world.db, task.id) > 3e7
    one, two = world.claim(task, 2)
    world.commit(page(one, 1), page(two, 1))
    with world.db.transaction() as conn:
        conn.execute(update(shard).where(shard.c.id == one.id).values(checkpoint_at=past))
    assert status.quiet_for(world.db, task.id) < 60
    with world.db.transaction() as conn:
        conn.execute(update(shard).values(checkpoint_at=past))
    world.commit(failure(one, 2))
    assert status.quiet_for(world.db, task.id) > 3e7
