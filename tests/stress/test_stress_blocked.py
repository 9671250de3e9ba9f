"""One of three sites blocks for two minutes, at the times that a user has; ``make stress``."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from tests.acceptance.harness import Bench, wait_until
from tests.acceptance.threesites import ThreeSites, three_sites

pytestmark = pytest.mark.stress

BLOCKED = 120.0  # seconds
BEGINS = 15.0  # seconds from the first answers to the block
SETTINGS: dict[str, Any] = {
    "RESUME_LEASE": 15,
    "RESUME_HEARTBEAT": 3,
    "RESUME_SITE_SHARDS": 6,  # so that the other sites have no more when one has none
    "RESUME_PAGES_IN_FLIGHT": 2,
    "RESUME_MAX_WAIT": 600,
}


def speeds(world: ThreeSites, begin: float, end: float) -> list[float]:
    """The pages per second that each site was asked for between two moments."""
    counts = [sum(begin <= one.time < end for one in site.requests) for site in world.sites]
    return [count / (end - begin) for count in counts]


def undisturbed(bench: Bench) -> list[float]:
    """What the sites give in the same minutes if none blocks; the run is then killed."""
    with three_sites(bench, (2400, 2400, 2400), size=30, delay=1.0) as world:
        crawls = world.start(**SETTINGS)
        wait_until(lambda: all(site.requests for site in world.sites), 60)
        begin = time.time() + BEGINS
        threading.Event().wait(BEGINS + BLOCKED)
        for crawl in crawls:
            crawl.kill()
        return speeds(world, begin, begin + BLOCKED)


def test_two_sites_lose_nothing_while_the_third_blocks_for_two_minutes(
    mariadb_bench: Bench,
) -> None:
    bench, prefix = mariadb_bench, mariadb_bench.prefix
    bench.prefix += "u_"
    before = undisturbed(bench)
    bench.end()
    bench.prefix, bench._database = prefix, None
    with three_sites(bench, (600, 2400, 2400), size=30, delay=1.0) as world:
        crawls = world.start(**SETTINGS)
        wait_until(lambda: all(site.requests for site in world.sites), 60)
        threading.Event().wait(BEGINS)
        begin = time.time()
        block = world.block(delay=1.0)
        wait_until(lambda: any(row["error_kind"] == "blocked" for row in world.shards(0)), 60)
        wait_until(lambda: all(row["status"] != "running" for row in world.shards(0)), 30)
        parked, reached = time.time(), len(block.on_their_way)
        threading.Event().wait(begin + BLOCKED - time.time())
        during = speeds(world, begin, begin + BLOCKED)
        assert all(row["attempt_count"] == (row["status"] == "running") for row in world.shards(0))
        probes = block.on_their_way[reached:]
        block.lift()
        for crawl in crawls:
            assert crawl.wait(900).finish_reason == "finished", crawl.tail
        took = time.time() - begin
        world.assert_complete()
        print(f"pages/s without a block {before}, with it {during}")
        print(f"parked after {parked - begin:.1f} s and {reached} refusals; {len(probes)} probes")
        print(f"the run ended {took:.0f} s after the block began")
        assert all(now > 0.95 * then for now, then in zip(during[1:], before[1:], strict=True))
        assert probes and max(probes) == 1
