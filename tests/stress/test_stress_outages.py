"""A minute without the database; ``make stress``. ``OUTAGE_SECONDS`` makes it shorter.

Each test prints what it measured.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.forkserver import ForkServer
from tests.acceptance.harness import Crawl, wait_until
from tests.acceptance.outages import Outage, Servers, harmed, struck_bench
from tests.acceptance.test_red import reclaims

__all__ = ["harmed"]  # a fixture

pytestmark = pytest.mark.stress

SECONDS = float(os.environ.get("OUTAGE_SECONDS", "60"))
BEFORE = 15.0  # seconds for which the pace is measured before
SHARDS, DELAY = 8, 0.2  # the site answers after so many seconds
PACE = SHARDS / DELAY  # pages per second, about
PAGES = int(PACE * (BEFORE + SECONDS) * 1.3)
DEFAULTS: dict[str, Any] = {
    "RESUME_LEASE": 15,
    "RESUME_HEARTBEAT": 3,
    "RESUME_MAX_WAIT": 60,
    "RESUME_SHARDS": SHARDS,
    "RESUME_PAGES_IN_FLIGHT": 1,
    "RESUME_JOURNAL_MAX_PAGES": 100_000,
}


@pytest.fixture
def outage(tmp_path: Path, harmed: Servers, forks: ForkServer | None) -> Iterator[Outage]:
    """A long list, with the default times; the site sets the pace."""
    with struck_bench(tmp_path, harmed, forks, pages=PAGES, rows=2) as bench:
        bench.site.delay = DELAY
        made = Outage(bench, harmed.mariadb, PAGES, SHARDS)
        bench.settings = DEFAULTS
        yield made


def in_the_middle(outage: Outage) -> float:
    """The pace before; the database is away when this returns."""
    wait_until(lambda: outage.asked > 3 * PACE, timeout=60)
    before = outage.pace(BEFORE)
    outage.begin(after=0)
    return before


def stored(outage: Outage, crawls: list[Crawl], kept: set[int]) -> None:
    """What the journals have *kept* is stored after the outage, and nobody helps."""
    began = time.monotonic()
    outage.end()
    wait_until(lambda: kept <= outage.bench.committed(), timeout=120, interval=0.2)
    print(f"{len(kept)} pages of the journal are stored {time.monotonic() - began:.1f} s after it")
    outage.bench.site.delay = 0.02
    for crawl in crawls:
        assert crawl.wait(600).finish_reason == "finished", crawl.tail
        assert "Traceback" not in crawl.log
    outage.assert_whole()


def test_stress_txn_9_the_pace_is_kept_without_the_database(outage: Outage) -> None:
    crawl = outage.bench.start()
    before = in_the_middle(outage)
    during = outage.pace(SECONDS)
    print(f"{before:.1f} pages/s before, {during:.1f} in an outage of {SECONDS:.0f} s")
    stored(outage, [crawl], outage.bench.journalled())
    assert outage.read_again() == []
    assert during >= 0.9 * before


@pytest.mark.parametrize("back", ["back before", "still away"])
def test_stress_txn_9_killed_in_the_outage(outage: Outage, back: str) -> None:
    """The next start finds the database back, or goes on without it for half a minute."""
    bench = outage.bench
    crawl = bench.start()
    in_the_middle(outage)
    time.sleep(SECONDS / 2)
    crawl.kill()
    kept = bench.journalled()
    if back == "back before":
        outage.end()
    crawl = bench.start()
    time.sleep(SECONDS / 2)
    later = bench.journalled()
    print(f"{len(kept)} pages in the journal at the kill, {len(later)} later")
    stored(outage, [crawl], kept | later)
    again = outage.read_again()
    print(f"{len(again)} pages were read twice")
    assert not kept & {*again}
    assert len(again) <= SHARDS


def test_stress_no_take_over_after_an_outage(outage: Outage) -> None:
    """Three machines, each with four leases less than the outage is long."""
    homes = [f"machine {number}" for number in range(3)]
    crawls = [outage.bench.start(home=home, RESUME_SHARDS=3) for home in homes]
    in_the_middle(outage)
    time.sleep(SECONDS)
    stored(outage, crawls, set().union(*map(outage.bench.journalled, homes)))
    assert reclaims(outage.bench) == []
    assert outage.read_again() == []
