"""The database goes away in the middle of a crawl, and the journal takes its place.

``tests/stress/test_stress_outages.py`` has the same for a minute, with other numbers.
"""

from __future__ import annotations

import datetime
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.forkserver import ForkServer
from tests.acceptance.harness import Bench, Crawl, wait_until
from tests.acceptance.outages import Outage, Servers, harmed, struck_bench
from tests.acceptance.test_red import reclaims, watched
from tests.acceptance.test_txn import assert_one_outage, of_ours

__all__ = ["harmed"]  # a fixture

PAGES, ROWS, SHARDS = 160, 2, 8


@pytest.fixture
def outage(tmp_path: Path, harmed: Servers, forks: ForkServer | None) -> Iterator[Outage]:
    """A list of 160 pages whose database may be stopped; the site sets the pace."""
    with struck_bench(tmp_path, harmed, forks, pages=PAGES, rows=ROWS) as bench:
        bench.site.delay = 0.2
        yield Outage(bench, harmed.mariadb, PAGES, SHARDS)


def test_txn_9_the_crawl_goes_on_and_catches_up(outage: Outage) -> None:
    """With two machines, and after all leases have ended."""
    bench = outage.bench
    bench.site.delay = 0.5
    crawls = [bench.start(home=home, RESUME_LEASE=3) for home in ("one", "two")]
    wait_until(lambda: {row["status"] for row in bench.shards} == {"running"})
    outage.begin(after=16)
    time.sleep(4)  # longer than a lease
    asked = outage.asked
    wait_until(lambda: outage.asked >= asked + 10)
    assert bench.journalled("one") and bench.journalled("two")
    outage.end()
    bench.site.delay = 0
    for crawl in crawls:
        assert crawl.wait().finish_reason == "finished", crawl.tail
        assert_one_outage(crawl)
        assert crawl.stats["resume/journal/left"] == 0
    outage.assert_whole()
    assert outage.read_again() == []
    assert reclaims(bench) == []
    assert bench.journalled("one") | bench.journalled("two") == set()


def test_txn_9_a_holder_has_a_lease_of_time_to_come_back_after_it(outage: Outage) -> None:
    """Every lease has ended in the outage, and who is late has not renewed his yet."""
    bench = outage.bench
    three = {"RESUME_LEASE": 60, "RESUME_SHARDS": 3}
    crawls = [bench.start(home=home, **three) for home in ("one", "two")]
    wait_until(lambda: [row["status"] for row in bench.shards].count("running") == 6)
    outage.begin(after=0)
    for crawl in crawls:
        crawl.wait_until_logged("The database is away")
    crawls[1].signal(signal.SIGSTOP)
    outage.end()
    bench.expire_leases()
    for _ in range(2):
        _wait_for_a_reaper(bench)
    assert reclaims(bench) == []
    crawls[1].signal(signal.SIGCONT)
    bench.site.delay = 0
    for crawl in crawls:
        assert crawl.wait().finish_reason == "finished", crawl.tail
    assert reclaims(bench) == [] and outage.read_again() == []


def _wait_for_a_reaper(bench: Bench) -> None:
    """Let what waits fall due again: a reaper raises it, after it has taken back what it may."""
    shard = bench.database.tables.task_shard
    with bench.database.transaction() as conn:
        waits = shard.update().where(shard.c.status == "pending")
        conn.execute(waits.values(due=0, next_run_at=datetime.datetime(2000, 1, 1)))
    wait_until(lambda: all(row["due"] for row in bench.shards if row["status"] == "pending"))


def test_txn_9_killed_in_the_outage(outage: Outage) -> None:
    """What the journal holds is stored by the next start, and not asked for again."""
    bench = outage.bench
    crawl = bench.start()
    outage.begin(after=20)
    wait_until(lambda: len(bench.journalled()) >= 20)
    crawl.kill()
    kept, before = bench.journalled(), outage.asked
    bench.site.delay = 0
    crawl = bench.start()
    wait_until(lambda: outage.asked >= before + 10)  # it goes on from the journal
    outage.end()
    assert crawl.wait().finish_reason == "finished", crawl.tail
    outage.assert_whole()
    again = outage.read_again()
    assert not kept & {*again} and len(again) <= 8, again  # at most what was in flight


def test_prc_6_reading_stops_when_the_journal_is_full(outage: Outage) -> None:
    bench = outage.bench
    bench.site.delay = 0.05
    crawl = bench.start(RESUME_JOURNAL_MAX_PAGES=20)
    outage.begin(after=20)
    before = outage.asked
    crawl.wait_until_logged("The journal is full")
    time.sleep(0.5)
    assert outage.asked - before <= 20 + 8 + 8  # with what was not yet stored, and in flight
    assert len(bench.journalled()) <= 20 + 8
    outage.end()
    assert crawl.wait().finish_reason == "finished", crawl.tail
    assert crawl.stats["resume/journal/full"] >= 1
    outage.assert_whole()
    assert outage.read_again() == []


def test_txn_9_it_never_comes_back(outage: Outage) -> None:
    """The crawl ends, says where its pages are, and the next start stores them."""
    bench = outage.bench
    crawl = bench.start(RESUME_STORE_PATIENCE=1, RESUME_GRACE=1)
    outage.begin(after=20)
    assert crawl.wait().finish_reason == "resume_store_failed", crawl.tail
    _assert_says_what_is_left(bench, crawl)
    kept = bench.journalled()
    outage.end()
    bench.assert_sound()
    bench.site.delay = 0
    with watched(bench):
        assert bench.crawl().finish_reason == "finished"
    outage.assert_whole()
    assert not kept & {*outage.read_again()}


def _assert_says_what_is_left(bench: Bench, crawl: Crawl) -> None:
    left = len(bench.journalled())
    assert crawl.stats["resume/journal/left"] == left > 0
    assert f"{left} page" in crawl.log and "journal.db" in crawl.log, crawl.tail
    assert len(of_ours(crawl, "ERROR")) == 1
    assert "Traceback" not in crawl.log
