"""Clocks that disagree: a lease is judged by one clock, and waits go by none of the day.

The processes run with a wall clock that is wrong by minutes and jumps by an hour.
"""

from __future__ import annotations

import ast
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance import shifted
from tests.acceptance.harness import NUMBERED, ROOT, SLACK, Bench, Crawl, wait_until
from tests.acceptance.shifted import Clock
from tests.acceptance.test_red import assert_whole, reclaims, watched
from tests.acceptance.tiers import rarely
from tests.services import Redis

LEASE = 3.0
IN_FLIGHT = 4  # of both processes together
SETTINGS: dict[str, Any] = {
    "RESUME_LEASE": LEASE,
    "RESUME_HEARTBEAT": 0.3,
    "RESUME_SHARDS": 2,
    "RESUME_PAGES_IN_FLIGHT": 1,
}
FOUR = NUMBERED + "    shard_pages = 3\n"


def start(bench: Bench, clock: Clock, home: str) -> Crawl:
    """Start a crawl whose wall clock is *clock*."""
    words = bench.words("rows", home=home)
    return bench.run([sys.executable, shifted.__file__, str(clock.path), *words])


@pytest.fixture
def red(mariadb_bench: Bench, tmp_path: Path) -> Iterator[Bench]:
    redis = Redis(tmp_path / "redis")
    redis.start()
    mariadb_bench.env["RESUME_REDIS_URL"] = redis.url
    yield prepared(mariadb_bench)
    redis.discard()


def prepared(bench: Bench) -> Bench:
    bench.write(FOUR)
    bench.settings = SETTINGS
    bench.site.delay = 0.8
    return bench


def nobody_was_robbed(bench: Bench, *crawls: Crawl) -> None:
    """All shards stayed with their owners. (Twisted's own timeouts go by the wall clock, so
    a jump makes Scrapy ask again for what it waits for just then.)"""
    for crawl in crawls:
        assert crawl.wait().finish_reason == "finished", crawl.tail
        assert "lost lease" not in crawl.log and "Traceback" not in crawl.log
    assert_whole(bench, 12)
    assert reclaims(bench) == []
    assert {shard["fencing_token"] for shard in bench.shards} == {1}
    assert set(bench.site.pages()) == set(range(1, 13))
    assert len(bench.site.pages()) <= 12 + IN_FLIGHT


def test_red_4_live_shards_stay_with_their_owners(red: Bench, tmp_path: Path) -> None:
    fast, slow = Clock(tmp_path / "fast", 600.0), Clock(tmp_path / "slow", -600.0)
    with watched(red):
        first, second = start(red, fast, "A"), start(red, slow, "B")
        wait_until(lambda: len(set(red.site.pages())) >= 5, timeout=60)
        fast.jump(3600.0)
        nobody_was_robbed(red, first, second)
    shown = first.log.split(" [", 1)[0]  # the clock was wrong indeed
    assert shown > time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(time.time() + 400))


def test_red_4_a_dead_worker_s_shards_are_free_in_time(red: Bench, tmp_path: Path) -> None:
    fast, slow = Clock(tmp_path / "fast", 600.0), Clock(tmp_path / "slow", -600.0)
    red.site.delay = 0
    held = red.site.behave(page=6, hold=True)
    with watched(red):
        first, second = start(red, fast, "A"), start(red, slow, "B")
        held.wait(60)
        done = ["done", "done", "done", "running"]
        wait_until(lambda: sorted(row["status"] for row in red.shards) == done, timeout=60)
        (holder,) = (row["worker"] for row in red.shards if row["status"] == "running")
        victim, other = first, second
        if f"as worker {holder[:8]}" in second.log:
            victim, other = second, first
        victim.kill()
        died = time.monotonic()
        red.site.heal()
        assert other.wait().finish_reason == "finished"
    assert time.monotonic() - died < 2 * LEASE + SLACK
    assert len(reclaims(red)) == 1
    assert_whole(red, 12)


@pytest.mark.parametrize("jump", [rarely(3600.0, id="forward"), pytest.param(-3600.0, id="back")])
def test_red_4_the_clock_of_the_only_machine_jumps(
    sqlite_bench: Bench, tmp_path: Path, jump: float
) -> None:
    """With SQLite the machine's clock is the database's: both processes jump with it."""
    bench = prepared(sqlite_bench)
    clock = Clock(tmp_path / "clock", 0.0)
    with watched(bench):
        first, second = start(bench, clock, "home"), start(bench, clock, "home")
        wait_until(lambda: len(set(bench.site.pages())) >= 5, timeout=60)
        clock.jump(jump)
        nobody_was_robbed(bench, first, second)


# Who may ask for the time of day, and what for.
MAY = {
    "clock.py": "says it",
    "commands/health.py": "shows it, where there is no database to ask",
    "journal/beside.py": "names files",
    "store/engine.py": "is the database's clock where the database is a file",
    "troubles.py": "reads a Retry-After that names a date",
}
TIME_OF_DAY = {"time", "time_ns", "now", "utcnow", "today", "utc_now", "localtime", "gmtime"}


def test_red_4_no_wall_clock_reaches_a_lease() -> None:
    package = ROOT / "scrapy_resume"
    asked = {
        path.relative_to(package).as_posix()
        for path in sorted(package.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and _asks(node.func)
    }
    assert asked == set(MAY)


def _asks(called: ast.expr) -> bool:
    """``time.time()``, ``datetime.now()``, ``clock.utc_now()``, but not ``db.now(…)``."""
    if not isinstance(called, ast.Attribute) or called.attr not in TIME_OF_DAY:
        return False
    of = called.value
    name = of.id if isinstance(of, ast.Name) else getattr(of, "attr", "")
    return name in ("time", "datetime", "date", "clock")
