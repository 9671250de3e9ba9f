"""A whole crawl while Redis stops, fills up, throws keys away or answers nothing.

What the queue itself makes of it is tested with the queue. Here the crawl has to end as if
nothing had happened, and the event loop must not have waited.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.harness import NUMBERED, Bench, Crawl, wait_until
from tests.acceptance.test_red import QUICK, assert_whole, fleet, watched
from tests.services import Redis

AWAY, BACK = "is away", "is back"
NOTICED = 20.0  # seconds within which a Redis that answers nothing is done without
STOPPED = 25.0  # seconds within which a polite stop ends, whatever Redis does

LAG = '''\
"""Measures how late the event loop runs what is due."""

import asyncio
import time

from scrapy import signals


class Lag:
    EVERY = 0.01

    def __init__(self, stats):
        self.stats, self.worst, self.task = stats, 0.0, None

    @classmethod
    def from_crawler(cls, crawler):
        made = cls(crawler.stats)
        crawler.signals.connect(made.opened, signals.spider_opened)
        crawler.signals.connect(made.closed, signals.spider_closed)
        return made

    def opened(self):
        self.task = asyncio.ensure_future(self.measure())

    async def measure(self):
        while True:
            due = time.monotonic() + self.EVERY
            await asyncio.sleep(self.EVERY)
            self.worst = max(self.worst, time.monotonic() - due)

    def closed(self):
        self.task.cancel()
        self.stats.set_value("lag/worst", self.worst)
'''
WITH_LAG = "EXTENSIONS = {'bench.lag.Lag': 0}\n"


class KeptRedis(Redis):
    """One that has its data back after a restart."""

    def command(self) -> list[str]:
        command = super().command()
        command[command.index("--appendonly") + 1] = "yes"
        return [*command, "--appendfsync", "always"]


@pytest.fixture(params=["kept", "lost"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Redis]:
    """A Redis whose data outlives a restart, and one whose data does not."""
    made = (KeptRedis if request.param == "kept" else Redis)(tmp_path / "redis")
    made.start()
    yield made
    made.discard()


@pytest.fixture
def red(mariadb_bench: Bench, server: Redis) -> Bench:
    """A project on MariaDB and Redis, 40 pages of 3 rows."""
    return prepared(mariadb_bench, server)


@pytest.fixture
def lossy(mariadb_bench: Bench, tmp_path: Path) -> Iterator[tuple[Bench, Redis]]:
    """The same, where it plays no part whether the data are kept."""
    redis = Redis(tmp_path / "redis")
    redis.start()
    yield prepared(mariadb_bench, redis), redis
    redis.discard()


def prepared(bench: Bench, redis: Redis) -> Bench:
    bench.env["RESUME_REDIS_URL"] = redis.url
    # Nobody dies here: no lease has to end, and on a slow machine none does.
    bench.settings = {
        **QUICK, "RESUME_LEASE": 30, "RESUME_SHARDS": 2, "RESUME_PAGES_IN_FLIGHT": 1
    }  # fmt: skip
    bench.site.listing.rows_per_page = 3
    bench.write(NUMBERED + "    last_page = 40\n    shard_pages = 4\n", settings=WITH_LAG, lag=LAG)
    return bench


def at_page_5(bench: Bench, size: int = 2, **given: Any) -> list[Crawl]:
    """Start a fleet; it stands at page 5 when this returns. ``bench.site.heal()`` lets it go."""
    held = bench.site.behave(page=5, hold=True)
    crawls = fleet(bench, size, **given)
    held.wait()
    return crawls


def all_end_well(bench: Bench, crawls: list[Crawl]) -> None:
    for crawl in crawls:
        assert crawl.wait().finish_reason == "finished", crawl.tail
        assert "Traceback" not in crawl.log and not crawl.said("ERROR"), crawl.tail
        assert crawl.log.count(AWAY) <= 1  # said once an outage, never a flood
    assert_whole(bench, 40)
    assert sorted(bench.site.pages()) == list(range(1, 41))


def test_red_5_redis_disappears_in_the_middle(red: Bench, server: Redis) -> None:
    with watched(red):
        crawls = at_page_5(red)
        server.kill()
        wait_until(lambda: any(AWAY in crawl.log for crawl in crawls))
        late = red.start(home="late")  # starts while it is gone
        late.wait_until_logged(AWAY)
        late.wait_until_logged("Working on run")  # of this run, which page 5 keeps open
        red.site.heal()
        wait_until(lambda: len(red.committed()) > 20)
        server.start()
        all_end_well(red, [*crawls, late])


def test_red_5_a_stop_is_not_held_up(lossy: tuple[Bench, Redis]) -> None:
    bench, redis = lossy
    (crawl,) = at_page_5(bench, 1)
    redis.kill()
    begun = time.monotonic()
    crawl.stop()
    bench.site.heal()
    crawl.wait()
    assert time.monotonic() - begun < STOPPED
    assert "Traceback" not in crawl.log
    assert [row["worker"] for row in bench.shards] == [None] * 10
    all_end_well(bench, [bench.start(home="another")])


def test_red_6_redis_is_full(lossy: tuple[Bench, Redis]) -> None:
    bench, redis = lossy
    client = redis.client()
    with watched(bench):
        crawls = at_page_5(bench)
        client.config_set("maxmemory-policy", "noeviction")
        client.config_set("maxmemory", 1)
        bench.site.heal()
        wait_until(lambda: any("maxmemory" in crawl.log for crawl in crawls))
        client.config_set("maxmemory", 0)
        all_end_well(bench, crawls)


def test_red_6_the_number_of_keys_does_not_grow_with_pages(lossy: tuple[Bench, Redis]) -> None:
    bench, redis = lossy
    bench.site.listing.rows_per_page = 1
    bench.write(NUMBERED + "    last_page = 120\n    shard_pages = 4\n")
    crawls = fleet(bench, 2)
    keys: dict[int, int] = {}

    def over() -> bool:
        keys[len(bench.committed()) // 40] = len(redis.client().keys("*"))
        return all(crawl.code is not None for crawl in crawls)

    wait_until(over, timeout=60)
    assert len(bench.items) == 120
    assert max(keys.values()) <= 12, keys
    assert [key for key in redis.client().keys("*") if b":run:" in key] == []  # the run is over


@pytest.mark.parametrize(
    ("policy", "said"), [("allkeys-lru", True), ("volatile-ttl", True), ("noeviction", False)]
)
def test_red_7_redis_may_throw_our_keys_away(
    lossy: tuple[Bench, Redis], policy: str, said: bool
) -> None:
    bench, redis = lossy
    redis.client().config_set("maxmemory-policy", policy)
    crawl = bench.start()
    all_end_well(bench, [crawl])
    warned = [line for line in crawl.said("WARNING") if policy in line]
    assert bool(warned) == said


def test_red_7_what_cannot_be_checked_is_said(lossy: tuple[Bench, Redis]) -> None:
    bench, redis = lossy
    redis.client().execute_command(
        "ACL", "SETUSER", "limited", "on", ">secret-word", "~*", "&*", "+@all", "-config", "-info"
    )
    bench.env["RESUME_REDIS_URL"] = redis.url.replace("//", "//limited:secret-word@")
    crawl = bench.start()
    all_end_well(bench, [crawl])
    assert "Cannot check" in crawl.log
    assert "secret-word" not in crawl.log


def test_red_8_redis_is_a_black_hole(lossy: tuple[Bench, Redis]) -> None:
    bench, redis = lossy
    bench.site.delay = 0.02
    with watched(bench):
        crawls = at_page_5(bench)
        redis.freeze()
        frozen = time.monotonic()
        bench.site.heal()
        wait_until(lambda: any(AWAY in crawl.log for crawl in crawls) or _over(crawls))
        assert time.monotonic() - frozen < NOTICED
        all_end_well(bench, crawls)  # it never came back
    redis.thaw()
    for crawl in crawls:
        # A call of redis-py in the loop would have cost its time limit, 2 s.
        assert crawl.stats["lag/worst"] < 1.5, crawl.stats["lag/worst"]


def test_red_8_a_stop_ends_in_time(lossy: tuple[Bench, Redis]) -> None:
    bench, redis = lossy
    (crawl,) = at_page_5(bench, 1)
    redis.freeze()
    begun = time.monotonic()
    crawl.signal(signal.SIGTERM)
    bench.site.heal()
    crawl.wait()
    assert time.monotonic() - begun < STOPPED
    redis.thaw()
    assert crawl.stats["lag/worst"] < 1.5
    all_end_well(bench, [bench.start(home="another")])


def test_red_9_an_idle_worker_logs_nothing_and_gets_every_shard(
    lossy: tuple[Bench, Redis],
) -> None:
    """It waits at an empty queue; what becomes free then is taken at once, by wake-up."""
    bench, redis = lossy
    bench.site.listing.rows_per_page = 10
    bench.write(NUMBERED + "    shard_pages = 1\n")
    slow = {"RESUME_LEASE": 300, "RESUME_HEARTBEAT": 60}  # only a wake-up can be quick
    held = bench.site.behave(page=range(1, 13), hold=True)
    first = bench.start(home="first", **{**slow, "RESUME_SHARDS": 12})
    wait_until(lambda: held.hits >= 8)
    second = bench.start(home="second", **{**slow, "RESUME_SHARDS": 12})
    second.wait_until_logged("Working on run")
    wait_until(lambda: redis.client().pubsub_channels("resume:*"))
    before = second.log
    time.sleep(1.0)  # long enough for a hundred limits of a socket to pass, were there any
    assert second.log == before
    bench.site.heal()
    begun = time.monotonic()
    first.stop().wait()
    second.wait()
    assert time.monotonic() - begun < 50
    assert bench.task["verdict"] == "complete"
    assert sorted(set(bench.site.pages())) == list(range(1, 13))
    assert not second.said("ERROR") and not second.said("WARNING")


def _over(crawls: list[Crawl]) -> bool:
    return all(crawl.code is not None for crawl in crawls)
