"""SQLite: one file, many processes; everybody waits, nobody fails."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import threading
import time
from pathlib import Path

import pytest

from scrapy_resume.exceptions import ConfigurationError
from scrapy_resume.store import migrate, status
from scrapy_resume.store.engine import Database
from tests.store.parallel import start_process
from tests.store.worlds import World, page

WRITER = """
import json, time
from scrapy_resume.store.engine import Database
from tests.store.worlds import World, page
world = World(Database.connect(sys.argv[3]))
name, seconds = sys.argv[4], float(sys.argv[5])
from scrapy_resume.page import Shard
task = world.plan([Shard("s1")], name=name)
(one,) = world.claim(task, worker=name, instance=name, lease=600)
print("ready", flush=True)
ends, number, retries = time.monotonic() + seconds, 0, 0
while time.monotonic() < ends:
    number += 1
    retries += world.commit(page(one, number)).retries
print(json.dumps([one.id, number, retries]))
"""


@pytest.fixture
def world(sqlite_url: str) -> World:
    db = Database.connect(sqlite_url)
    migrate.ensure_schema(db)
    return World(db)


def test_sql_1_database_is_locked(world: World, sqlite_url: str, tmp_path: Path) -> None:
    processes = [start_process(WRITER, sqlite_url, f"task{n}", "5") for n in range(4)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n", process.communicate()
    file = tmp_path / "resume.db"
    reader = sqlite3.connect(file, isolation_level=None, timeout=30)
    reader.execute("BEGIN")
    reader.execute("SELECT COUNT(*) FROM resume_item").fetchall()
    browser = sqlite3.connect(file, isolation_level=None, timeout=30)
    browser.execute("BEGIN IMMEDIATE")
    started = time.monotonic()
    looked = status.status(world.db, "task0")
    assert time.monotonic() - started < 10, "a status command waits for no writer"
    assert looked["tasks"][0]["shards"]["running"] == 1
    time.sleep(3)
    browser.execute("ROLLBACK")
    for process in processes:
        assert process.stdout is not None and process.stderr is not None
        out, errors = process.stdout.read(), process.stderr.read()  # communicate() skips a buffer
        assert process.wait(180) == 0, errors
        shard_id, pages, _ = json.loads(out)
        row = world.shard(shard_id)
        assert (row.cur_page, row.written_count) == (pages, 2 * pages)
    reader.execute("ROLLBACK")
    (total,) = world.sql("SELECT SUM(written_count) FROM resume_task_shard")
    # All four have the same item keys.
    assert total[0] >= len(world.items())


def test_reading_never_blocks_a_writer(world: World) -> None:
    (one,) = world.claim(world.plan(1))
    with world.db.read() as conn:
        before = conn.exec_driver_sql("SELECT COUNT(*) FROM resume_item").scalar()
        world.commit(page(one, 1))
        assert conn.exec_driver_sql("SELECT COUNT(*) FROM resume_item").scalar() == before == 0
    assert len(world.items()) == 2


def test_a_read_transaction_keeps_nothing(world: World) -> None:
    task = world.plan(1)
    with world.db.read() as conn:
        conn.exec_driver_sql("DELETE FROM resume_task_shard")
    assert len(world.claim(task)) == 1


def test_sessions_are_durable_and_have_foreign_keys(world: World) -> None:
    with world.db.read() as conn:
        pragmas = [conn.exec_driver_sql(f"PRAGMA {name}").scalar()
                   for name in ("journal_mode", "synchronous", "foreign_keys")]  # fmt: skip
    assert pragmas == ["wal", 2, 1]


def test_an_owner_frozen_with_the_files_lock_is_waited_for(world: World, sqlite_url: str) -> None:
    process = start_process(WRITER, sqlite_url, "books", "0.2", fault="commit.before:3:stop")
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    _wait_for_the_lock(world)
    threading.Timer(1.0, os.kill, (process.pid, signal.SIGCONT)).start()
    started = time.monotonic()
    world.plan(1, name="other")
    assert time.monotonic() - started > 0.5
    process.communicate(timeout=180)
    assert process.returncode == 0


def _wait_for_the_lock(world: World) -> None:
    impatient = sqlite3.connect(str(world.db.engine.url.database), isolation_level=None, timeout=0)
    deadline = time.monotonic() + 30
    locked_since: float | None = None
    while time.monotonic() < deadline:
        try:
            impatient.execute("BEGIN IMMEDIATE")
            impatient.execute("ROLLBACK")
            locked_since = None
        except sqlite3.OperationalError:
            locked_since = locked_since or time.monotonic()
            if time.monotonic() - locked_since > 0.3:
                impatient.close()
                return
        time.sleep(0.01)
    raise AssertionError("nobody holds the lock")


def test_a_file_that_cannot_be_opened_is_a_configuration_error(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("this is no database, however long it may be" * 50)
    for path in (tmp_path / "missing" / "x.db", tmp_path / "text.db", tmp_path):
        with pytest.raises(ConfigurationError, match="refuses us"):
            migrate.ensure_schema(Database.connect(f"sqlite:///{path}"))


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:", "sqlite+aiosqlite:///x.db"])
def test_a_database_in_memory_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="SQLite needs a file"):
        Database.connect(url)
