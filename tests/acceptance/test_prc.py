"""Processes: killed without a word, started twice, several crawls in one."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scrapy_resume.testing import Observer
from tests.acceptance.harness import NUMBERED, SLACK, Bench, Crawl, wait_until
from tests.acceptance.test_res import ONE_BY_ONE
from tests.acceptance.tiers import mostly_on
from tests.services import Redis

ONE_SHARD = NUMBERED + "    shard_pages = 12\n"


def asked(bench: Bench, *words: str) -> str:
    """What ``scrapy resume`` says."""
    told = bench.run_scrapy("resume", *words, "-s", f"RESUME_TABLE_PREFIX={bench.prefix}").wait()
    assert told.code == 0, told.log
    return told.log


# PRC.2

DEAD: dict[str, Any] = {"RESUME_LEASE": 2, "RESUME_HEARTBEAT": 0.4, "RESUME_MAX_WAIT": 10}


@mostly_on("mariadb")
def test_prc_2_a_start_before_the_lease_ends_waits_and_why_says_for_whom(bench: Bench) -> None:
    bench.write(ONE_SHARD)
    bench.settings = DEAD
    first = bench.crawl_killed("commit.after:3", **ONE_BY_ONE, RESUME_LEASE=3000)
    (worker,) = (row["worker"] for row in bench.shards)
    second = bench.start(home="another machine")
    told = asked(bench, "why", "rows")
    assert f"held by worker {worker[:8]}" in told and "unless it renews" in told, told
    second.wait_until_logged("Working on run")
    assert bench.site.pages() == [1, 2, 3]
    bench.expire_leases()
    ended = time.monotonic()
    second.wait()
    assert time.monotonic() - ended < 2 + SLACK
    assert first.code == -signal.SIGKILL
    assert second.finish_reason == "finished"
    assert sorted(bench.site.pages()) == list(range(1, 13))
    bench.assert_complete(bench.items)


@mostly_on("sqlite")
def test_prc_2_status_says_that_nobody_was_heard_of(bench: Bench) -> None:
    bench.write(ONE_SHARD)
    bench.settings = DEAD
    bench.crawl_killed("commit.after:3", **ONE_BY_ONE)
    lease = ("-s", "RESUME_LEASE=2", "-s", "RESUME_HEARTBEAT=0.4")
    wait_until(lambda: "no heartbeat since" in asked(bench, "status", *lease))
    started = time.monotonic()
    second = bench.crawl(home="another machine")
    assert time.monotonic() - started < 2 + SLACK
    assert second.finish_reason == "finished"
    bench.assert_complete(bench.items)
    assert sorted(bench.site.pages()) == list(range(1, 13))


# PRC.3

SHOPS = """\
class Rows(Numbered):
    name = 'rows'
    last_page = 6
    shard_pages = 2

    def __init__(self, shop="", **kwargs):
        super().__init__(**kwargs)
        self.shop = shop
        self.page_url = SITE + "/list?page={page}&shop=" + shop

    def parse(self, response):
        for item in rows(response):
            yield {**item, "key": f"{self.shop} {item['key']}"}
"""
PAIRS, AT_ONCE = 20, 4


def twice(bench: Bench, shops: list[int], **given: Any) -> list[tuple[Crawl, Crawl]]:
    """Start each shop's crawl twice, 100 ms apart; every answer waits until all have begun."""
    held = bench.site.behave(page=range(1, 7), hold=True)
    rounds: list[list[Crawl]] = []
    for home in ("one", "two"):
        begun = time.monotonic()
        rounds.append([bench.start("rows", f"shop={n}", home=home, **given) for n in shops])
        time.sleep(max(0.0, 0.1 - (time.monotonic() - begun)))
    both = [crawl for one in rounds for crawl in one]
    wait_until(lambda: all(_knows(crawl) for crawl in both), timeout=60)
    held.heal()
    for crawl in both:
        crawl.wait()
    return list(zip(*rounds, strict=True))


def _knows(crawl: Crawl) -> bool:
    return "Working on run" in crawl.log or crawl.code is not None


@pytest.mark.parametrize("join", [True, False], ids=["join", "alone"])
def test_prc_3_the_same_job_started_twice(mariadb_bench: Bench, join: bool) -> None:
    """Twenty double starts in all, on two machines."""
    bench = mariadb_bench
    bench.write(SHOPS)
    bench.settings = {"RESUME_SHARDS": 1, "RESUME_PAGES_IN_FLIGHT": 1}
    shops = list(range(0, PAIRS, 2)) if join else list(range(1, PAIRS, 2))
    observer = Observer(bench.database_url, prefix=bench.prefix)
    with observer.watching(0.2):
        pairs = [
            pair
            for at in range(0, len(shops), AT_ONCE)
            for pair in twice(bench, shops[at : at + AT_ONCE], RESUME_JOIN=join)
        ]
    assert observer.violations == []
    hits: dict[str, list[int]] = {}
    for request in bench.site.requests:
        hits.setdefault(request.query["shop"], []).append(request.page or 0)
    assert {shop: sorted(pages) for shop, pages in hits.items()} == {
        str(shop): list(range(1, 7)) for shop in shops
    }
    assert [task["verdict"] for task in bench.tasks] == ["complete"] * len(shops)
    assert len(bench.items) == 60 * len(shops)
    for pair in pairs:
        reasons = sorted(str(crawl.finish_reason) for crawl in pair)
        assert reasons == (["finished"] * 2 if join else ["finished", "resume_nothing_to_do"])
        assert [crawl.code for crawl in pair] == [0, 0]
        for crawl in pair:
            assert "Traceback" not in crawl.log
            if crawl.finish_reason == "resume_nothing_to_do":
                assert "worked on by" in crawl.log


# PRC.4


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[Redis]:
    """A Redis of the test's own."""
    server = Redis(tmp_path / "redis")
    server.start()
    yield server
    server.discard()


BOTH = """\
class Rows(Numbered):
    name = 'rows'
    shard_pages = 3

    def __init__(self, shop="", **kwargs):
        super().__init__(**kwargs)
        self.shop = shop

    def parse(self, response):
        for item in rows(response):
            yield {**item, "key": f"{self.shop} {item['key']}"}


class Short(Chain):
    name = 'short'
    start_urls = [SITE + "/list?page=1&_next_page=2"]

    def parse(self, response):
        for item in rows(response):
            yield {**item, "key": f"short {item['key']}"}
        if number_of(response) < 5:
            yield self.next_page(response.follow(f"/list?page={number_of(response) + 1}"))
"""
MANY = """\
import asyncio
import sys

from scrapy import signals
from scrapy.crawler import AsyncCrawlerProcess
from scrapy.utils.project import get_project_settings

process = AsyncCrawlerProcess(get_project_settings())
crawlers = [process.create_crawler(name) for name in ("rows", "short", "rows")]
short, pages, stopping = crawlers[1], [], []


def seen(response):
    pages.append(response)
    if len(pages) == 3:
        stopping.append(asyncio.ensure_future(short.stop_async()))


if sys.argv[1] == "stop":
    short.signals.connect(seen, signals.response_received)
process.crawl(crawlers[0])
process.crawl(crawlers[1])
process.crawl(crawlers[2], shop="two")
process.start()
for crawler in crawlers:
    stats = crawler.stats
    print("STATS", stats.get_value("finish_reason"), stats.get_value("resume/verdict"),
          stats.get_value("resume/pages/committed", 0), stats.get_value("resume/items/written", 0))
"""


def in_one_process(bench: Bench, how: str) -> list[list[str]]:
    """Crawl all three; the finish reason, verdict, pages and items of each."""
    script = bench.directory / "many.py"
    script.write_text(MANY)
    bench.env |= {
        "RESUME_HOME": str(bench.directory / "home"),
        "RESUME_TABLE_PREFIX": bench.prefix,
        "SCRAPY_SETTINGS_MODULE": "bench.settings",
    }
    crawl = bench.run([sys.executable, str(script), how]).wait()
    assert crawl.code == 0 and "Traceback" not in crawl.log, crawl.tail
    return [line.split()[1:] for line in crawl.log.splitlines() if line.startswith("STATS")]


@mostly_on("sqlite")
def test_prc_4_several_spiders_in_one_process(bench: Bench, redis: Redis) -> None:
    bench.env["RESUME_REDIS_URL"] = redis.url
    bench.write(BOTH)
    bench.settings = {}
    bench.site.delay = 0.05
    bench.env["RESUME_COMMIT_PAGES"] = "1"
    first, stopped, other = in_one_process(bench, "stop")
    alone = ["finished", "complete", "12", "120"]
    assert (first, other) == (alone, alone)
    assert stopped[:2] == ["shutdown", "incomplete"]
    bench.assert_sound({})
    tasks = {task["name"]: task for task in bench.tasks}
    assert len(tasks) == 3
    verdicts = [task["verdict"] for _, task in sorted(tasks.items())]
    assert sorted(map(str, verdicts)) == ["None", "complete", "complete"]
    keys = {shop: sum(key.startswith(f"{shop} k") for key in bench.items) for shop in ("", "two")}
    assert keys == {"": 120, "two": 120}
    assert bench.crawl("short").finish_reason == "finished"
    assert sum(key.startswith("short ") for key in bench.items) == 50
    assert len(bench.items) == 290


# PRC.5

WARM = """\
class Rows(Chain):
    name = 'rows'

    async def warm_up(self):
        await self.fetch(Request(SITE + '/start?currency=EUR&rows=5'))

    def parse(self, response):
        currency = response.css('.currency::text').get()
        for item in super().parse(response):
            yield {**item, 'currency': currency} if isinstance(item, dict) else item
"""


@mostly_on("sqlite")
def test_prc_5_the_login_comes_before_the_first_resumed_page(bench: Bench) -> None:
    """Asked without its cookies the site shows page 1, in another currency."""
    bench.site.listing.__init__(pages=12, rows=5)
    bench.write(WARM)
    bench.site.behave(path="/list", unless_cookie="prefs", show_page=1)
    bench.crawl_killed("commit.after:6", **ONE_BY_ONE)
    assert bench.watermark == 6
    before = len(bench.site.requests)
    crawl = bench.crawl()
    asked = bench.site.requests[before:]
    assert [(one.path, one.page) for one in asked[:2]] == [("/start", None), ("/list", 7)]
    assert [one.page for one in asked[1:]] == list(range(7, 13))
    old, new = ({r.cookies["session"] for r in part if r.page} for part in (
        bench.site.requests[:before], asked
    ))  # fmt: skip
    assert len(old) == len(new) == 1 and old != new
    expected = {key for page in bench.served.values() for key in page}
    bench.assert_complete(bench.items)
    assert set(bench.items) == expected
    assert all('"currency":"EUR"' in text.replace(" ", "") for text in bench.items.values())
    _assert_kept_nowhere(bench, old | new, crawl)


def _assert_kept_nowhere(bench: Bench, sessions: set[str], crawl: Crawl) -> None:
    """I4: a cookie is in no log, in no checkpoint and in no journal."""
    words = [f"session={session}" for session in sessions]
    texts = [crawl.log, *(str(row) for row in bench.snapshot().shards.values())]
    files = (bench.directory / "home").rglob("*")
    texts += [one.read_bytes().decode("latin-1") for one in files if one.is_file()]
    assert not [word for word in words if any(word in text for text in texts)]
