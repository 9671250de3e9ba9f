"""Cursors come back byte for byte; times are UTC whatever zone the server lives in."""

from __future__ import annotations

import contextlib
import json
import subprocess
from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import event

from scrapy_resume import clock
from scrapy_resume.page import Shard
from scrapy_resume.store import leases, migrate
from scrapy_resume.store.checkpoints import Release
from scrapy_resume.store.engine import Database
from tests.services import MariaDB
from tests.store.worlds import World, page

CURSORS: list[Any] = [
    "2024-01-01T10:00:00.614Z", "0010", "1e5", 2**63 + 1, -(2**70), "x" * 600, "x" * 200_000,
    0.1 + 0.2, 1e300, True, "", [], {}, {"b": 1, "a": [1, {"c": None}]}, " lead and trail ", "NULL",
    "null", "café", "cafe\u0301", "😎", "a\x00b", "\\", "'\"`%s", "\u2028\r\n", "1" * 400,
]  # fmt: skip


@pytest.mark.parametrize("at", range(len(CURSORS)))
def test_cur_2_a_cursor_comes_back_byte_for_byte(world: World, at: int) -> None:
    value = CURSORS[at]
    text = json.dumps(value, ensure_ascii=False, separators=(", ", " : "))
    task = world.plan([Shard("s", cursor=value, spec=value, ordered=True)])
    (one,) = world.claim(task)
    for back in (one.shard.cursor, one.shard.spec):
        assert (back, type(back)) == (value, type(value))
    world.commit(page(one, 1, cursor=text, digests=text))
    world.commit(Release(one.id, one.fencing_token, "stop"))
    (again,) = world.claim(task)
    assert (again.position.cursor, again.position.digests) == (text, text)
    assert again.shard.cursor == value, "the first cursor is kept"


def test_a_page_without_a_cursor_keeps_the_old_one(world: World) -> None:
    (one,) = world.claim(world.plan(1))
    world.commit(page(one, 1, cursor='"two"'))
    world.commit(page(one, 2))
    assert world.shard(one.id).cursor == '"two"'


ZONES = ["+00:00", "America/New_York", "Australia/Lord_Howe", "+13:00"]
# Hours that New York and Lord Howe skip, read as UTC; and one of an ordinary day.
MOMENTS = ["2024-03-10 02:30:00.5", "2024-10-06 02:15:00.5", "2024-11-03 01:30:00.5"]


def _load_zone(mariadb: MariaDB, name: str) -> None:
    known = "SELECT name FROM mysql.time_zone_name WHERE name = %s"
    if "/" not in name or mariadb.execute(known, name):
        return
    command = ["mariadb-tzinfo-to-sql", f"/usr/share/zoneinfo/{name}", name]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    with contextlib.closing(mariadb.connect("mysql")) as connection, connection.cursor() as cursor:
        for statement in map(str.strip, done.stdout.split(";\n")):
            if statement.startswith(("INSERT INTO", "SET @time_zone_id")):
                cursor.execute(statement)


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("zone", ZONES)
def test_cur_3_an_hour_that_does_not_exist(
    mariadb: MariaDB, mariadb_name: str, zone: str, moment: str
) -> None:
    _load_zone(mariadb, zone)
    mariadb.execute("SET GLOBAL time_zone = %s", zone)
    try:
        db = Database.connect(mariadb.url(mariadb_name))

        @event.listens_for(db.engine, "connect")
        def freeze(connection: Any, record: Any) -> None:
            since = datetime.fromisoformat(moment + "00000") - datetime(1970, 1, 1)
            with connection.cursor() as cursor:
                cursor.execute(f"SET timestamp = {since.total_seconds():.6f}")

        _run_three_pages(db, datetime.fromisoformat(moment + "00000"))
        db.close()
    finally:
        mariadb.execute("SET GLOBAL time_zone = 'SYSTEM'")


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Australia/Lord_Howe"])
def test_cur_3_on_sqlite(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch, zone: str, moment: str
) -> None:
    now = datetime.fromisoformat(moment + "00000")
    monkeypatch.setenv("TZ", zone)
    monkeypatch.setattr(clock, "utc_now", lambda: now)
    _run_three_pages(Database.connect(sqlite_url), now)


def _run_three_pages(db: Database, now: datetime) -> None:
    migrate.ensure_schema(db)
    world = World(db)
    (one,) = world.claim(world.plan(1))
    for number in (1, 2, 3):
        world.commit(page(one, number))
    row = world.shard(one.id)
    assert (row.created_at, row.updated_at, row.checkpoint_at) == (now, now, now)
    assert row.lease_until == now + timedelta(seconds=15)
    item = db.tables.item
    with db.read() as conn:
        times = {(found.fetched_at, found.first_seen_at, found.updated_at)
                 for found in conn.execute(item.select())}  # fmt: skip
    assert times == {(now, now, now)}
    assert leases.reap(db, actor="reaper") == []


def test_the_databases_clock_is_utc_with_microseconds(world: World) -> None:
    with world.db.read() as conn:
        now = world.db.now(conn)
    assert now.tzinfo is None
    assert abs((clock.utc_now() - now).total_seconds()) < 5
    readings = set()
    for _ in range(5):
        with world.db.read() as conn:
            readings.add(world.db.now(conn).microsecond % 1000)
    assert len(readings) > 1


def test_leases_are_judged_by_the_databases_clock(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    if world.db.dialect == "sqlite":
        return  # there the database's clock is this machine's
    task = world.plan(1)
    monkeypatch.setattr(clock, "utc_now", lambda: datetime(2001, 1, 1))
    (one,) = world.claim(task, lease=30)
    monkeypatch.setattr(clock, "utc_now", lambda: datetime(2099, 1, 1))
    assert leases.reap(world.db, actor="reaper") == []
    assert world.shard(one.id).lease_until.year not in (2001, 2099)
