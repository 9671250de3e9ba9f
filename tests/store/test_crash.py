"""Processes and servers that die or freeze between any two statements of a transaction."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from scrapy_resume.page import Shard
from scrapy_resume.store import leases, migrate, tasks
from scrapy_resume.store.engine import Database
from tests.services import MariaDB
from tests.store.parallel import start_process
from tests.store.worlds import World, page

OWNER = """
from scrapy_resume.store.checkpoints import Finish, Release
from scrapy_resume.store.engine import Database
from tests.store.worlds import World, page
import json
world = World(Database.connect(sys.argv[3]))
(task,) = [task for task in __import__("scrapy_resume.store.tasks", fromlist=["x"])
           .find_tasks(world.db, "books")]
one, two = world.claim(task, 2, worker="dies", instance="first", lease=float(sys.argv[4]))
print("claimed", flush=True)
fenced = set()
for number in range(1, 5):
    fenced |= world.commit(page(one, number), page(two, number)).fenced
fenced |= world.commit(Finish(one.id, one.fencing_token, "done", "read"),
                       Release(two.id, two.fencing_token, "stop")).fenced
print(json.dumps(sorted(fenced)), flush=True)
"""

COMMIT_POINTS = ["commit.begin", "commit.fenced", "commit.items", "commit.before", "commit.after"]
POINTS = [f"{point}:{time}" for point in COMMIT_POINTS for time in (1, 3)] + [
    "claim.begin:1", "claim.before:1", "claim.after:1", "finish.before:1",
]  # fmt: skip


def check(world: World) -> None:
    """Every row is whole: a page is in the tables if and only if its shard's row has it."""
    items = world.items()
    for shard_id in (1, 2):
        row = world.shard(shard_id)
        expected = {f"{row.shard_key}-{number}-{n}" for number in range(1, row.cur_page + 1)
                    for n in (1, 2)}  # fmt: skip
        assert {key for key in items if key.startswith(row.shard_key)} == expected
        assert (row.page_count, row.written_count) == (row.cur_page, 2 * row.cur_page)
        assert row.version == row.page_count


@pytest.mark.parametrize("point", POINTS)
def test_a_process_killed_at_any_point(world: World, database_url: str, point: str) -> None:
    task = world.plan(2)
    process = start_process(OWNER, database_url, "60", fault=f"{point}:kill")
    process.communicate(timeout=180)
    assert process.returncode == -signal.SIGKILL
    check(world)
    leases.reclaim_worker(world.db, worker="dies", instance="second")
    for one in world.claim(task, worker="dies", instance="second"):
        for number in one.position.missing(4):
            world.commit(page(one, number))
    check(world)
    assert [world.shard(shard_id).cur_page for shard_id in (1, 2)] == [4, 4]
    assert len(world.items()) == 16


@pytest.mark.parametrize("point", ["plan.before:1", "reap.selected:1", "reap.before:1"])
def test_a_planner_or_a_reaper_killed(world: World, database_url: str, point: str) -> None:
    script = """
from scrapy_resume.store import leases
from scrapy_resume.store.engine import Database
from tests.store.worlds import World
world = World(Database.connect(sys.argv[3]))
task = world.plan(3)
world.claim(task, lease=0)
leases.reap(world.db, actor="reaper")
"""
    process = start_process(script, database_url, fault=f"{point}:kill")
    _, errors = process.communicate(timeout=180)
    assert process.returncode == -signal.SIGKILL, errors
    task = world.plan(3) if point.startswith("plan") else tasks.find_tasks(world.db, "books")[0]
    assert (task.planned_at is not None, task.run_no) == (True, 1)
    leases.reap(world.db, actor="another")
    claimed = world.claim(task)
    assert len(claimed) == 3
    assert {one.fencing_token for one in claimed} == ({1} if point.startswith("plan") else {3})


def _wait_until_stopped(process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        state = Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        if state == "T":
            return
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    raise AssertionError("the process did not reach its fault point")


@pytest.mark.parametrize("point", COMMIT_POINTS)
def test_the_server_killed_at_any_point(mariadb: MariaDB, mariadb_name: str, point: str) -> None:
    url = mariadb.url(mariadb_name)
    world = World(Database.connect(url))
    migrate.ensure_schema(world.db)
    world.plan(2)
    process = start_process(OWNER, url, "600", fault=f"{point}:2:stop")
    try:
        _wait_until_stopped(process)
        mariadb.kill()
        mariadb.start()
        check(world)
    finally:
        os.kill(process.pid, signal.SIGCONT)
    out, errors = process.communicate(timeout=180)
    assert json.loads(out.splitlines()[-1]) == [], errors
    check(world)
    assert [world.shard(shard_id).cur_page for shard_id in (1, 2)] == [4, 4]
    assert world.shard(1).status == "done"
    world.db.close()


@pytest.mark.parametrize("point", ["commit.begin:2", "commit.after:2"])
def test_an_owner_frozen_beyond_its_lease_is_fenced(
    world: World, database_url: str, point: str
) -> None:
    if world.db.dialect == "sqlite" and point.startswith("commit.begin"):
        return  # BEGIN IMMEDIATE holds the whole file; see the SQLite tests
    task = world.plan(2)
    process = start_process(OWNER, database_url, "0", fault=f"{point}:stop")
    try:
        _wait_until_stopped(process)
        assert leases.reap(world.db, actor="reaper") == [1, 2]
        before = [world.shard(1).cur_page, world.shard(2).cur_page]
        one, _ = world.claim(task)
        world.commit(page(one, 4))
        rows = [world.shard(1), world.shard(2)]
    finally:
        os.kill(process.pid, signal.SIGCONT)
    out, errors = process.communicate(timeout=180)
    assert json.loads(out.splitlines()[-1]) == [1, 2], errors
    assert [world.shard(1), world.shard(2)] == rows
    done = 1 if point.startswith("commit.begin") else 2
    assert before == [done, done]
    assert rows[0].ahead == "4"


def test_an_owner_frozen_inside_its_transaction_is_passed_over(
    mariadb: MariaDB, mariadb_name: str
) -> None:
    url = mariadb.url(mariadb_name)
    world = World(Database.connect(url))
    migrate.ensure_schema(world.db)
    world.plan([Shard("s1", 1, 100), Shard("s2", 1, 100)])
    process = start_process(OWNER, url, "0", fault="commit.before:2:stop")
    try:
        _wait_until_stopped(process)
        assert leases.reap(world.db, actor="reaper") == []
    finally:
        os.kill(process.pid, signal.SIGCONT)
    out, errors = process.communicate(timeout=180)
    assert json.loads(out.splitlines()[-1]) == [], errors
    check(world)
    world.db.close()
