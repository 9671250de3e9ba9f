"""Every way to stop a crawl: it claims no more, stores what it has, and gives the rest back."""

from __future__ import annotations

import signal
import time
from typing import Any

import pytest

from tests.acceptance.conftest import Reference
from tests.acceptance.harness import DETAILS, NUMBERED, Bench, wait_until
from tests.acceptance.test_txn import QUICK, relayed
from tests.acceptance.tiers import rarely
from tests.proxy import Proxy
from tests.services import MariaDB

__all__ = ["relayed"]  # a fixture

SPIDER = """\
import asyncio
import resource

from scrapy.exceptions import CloseSpider


class Rows(Numbered):
    name = 'rows'
    identity_args = ()
    way = ""

    @classmethod
    def update_settings(cls, settings):
        super().update_settings(settings)
        used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        if settings.getbool("MEMUSAGE_ENABLED"):
            settings.set("MEMUSAGE_LIMIT_MB", used + 50)

    def parse(self, response):
        if number_of(response) != 5:
            yield from rows(response)
            return
        found = rows(response)
        yield from found[:5]
        self.stop()
        yield from found[5:]

    def stop(self):
        engine = self.crawler.engine
        if self.way == "memory":
            self.ballast = b"x" * (150 << 20)
        elif self.way == "stop_async":
            self.stopping = asyncio.ensure_future(self.crawler.stop_async())
        elif self.way == "close_spider_async":
            self.stopping = asyncio.ensure_future(engine.close_spider_async(reason="enough"))
        elif self.way == "CloseSpider":
            raise CloseSpider("enough")
        elif self.way == "error":
            raise ValueError("the spider has a bug")
"""
WAYS: dict[str, dict[str, Any]] = {
    "SIGTERM": {},
    "SIGINT": {},
    "CLOSESPIDER_ITEMCOUNT": {"CLOSESPIDER_ITEMCOUNT": 15},
    "CLOSESPIDER_PAGECOUNT": {"CLOSESPIDER_PAGECOUNT": 2},
    "CLOSESPIDER_ERRORCOUNT": {"way": "error", "CLOSESPIDER_ERRORCOUNT": 1},
    "MEMUSAGE_LIMIT_MB": {
        "way": "memory", "MEMUSAGE_ENABLED": True, "MEMUSAGE_CHECK_INTERVAL_SECONDS": 0.1,
    },
    "stop_async": {"way": "stop_async"},
    "close_spider_async": {"way": "close_spider_async"},
    "CloseSpider": {"way": "CloseSpider"},
}  # fmt: skip
REASONS = {
    "MEMUSAGE_LIMIT_MB": "memusage_exceeded",
    "close_spider_async": "enough",
    "CloseSpider": "enough",
    **dict.fromkeys(("SIGTERM", "SIGINT", "stop_async"), "shutdown"),
    **{way: way.lower() for way in WAYS if way.startswith("CLOSESPIDER_")},
}
RAISES = ("CLOSESPIDER_ERRORCOUNT", "CloseSpider")  # in the callback of page 5


class Stopped:
    """A crawl of three shards that works on two: page 1 is stored, 2, 3, 5 and 6 are in flight."""

    def __init__(self, bench: Bench, way: str = "", **given: Any) -> None:
        bench.write(SPIDER)
        site, settings = bench.site, {"RESUME_SHARDS": 2, "RESUME_PAGES_IN_FLIGHT": 2}
        self.trigger = site.behave(page=5, hold=True)
        others = site.behave(page=(2, 3, 6), hold=True)
        settings |= {"MEMUSAGE_ENABLED": False, "RESUME_LEASE": 60, **given}
        self.bench, self.crawl = bench, bench.start("rows", f"way={way}", **settings)
        wait_until(lambda: (self.trigger.hits, others.hits, len(bench.items)) == (1, 3, 10))

    def wait_for_sign(self) -> None:
        """Wait until the crawl is closing."""
        self.crawl.wait_until_logged("Closing spider (")

    def given_back(self) -> None:
        """Nothing of it is in anyone's way, by the database."""
        bench, table = self.bench, self.bench.database.tables.worker
        bench.assert_sound()
        states = [(row["status"], row["due"], row["lease_until"]) for row in bench.shards]
        assert states == [("pending", 1, None)] * 3
        assert bench.shards[2]["fencing_token"] == 0, "it claimed more"
        with bench.database.read() as conn:
            (row,) = conn.execute(table.select()).mappings()
        assert row["stopped_at"] is not None
        assert bench.site.hits(page=4) + bench.site.hits(page=7) == 0, "it read on"


# Both signals have one handler in Scrapy, both calls one end; test_res.py has the two counts.
RARE_WAYS = ("SIGINT", "CLOSESPIDER_ITEMCOUNT", "CLOSESPIDER_PAGECOUNT", "close_spider_async")


@pytest.mark.parametrize("way", [rarely(way) if way in RARE_WAYS else way for way in WAYS])
def test_a_stop_stores_what_is_in_flight(sqlite_bench: Bench, way: str) -> None:
    bench, given = sqlite_bench, dict(WAYS[way])
    stopped = Stopped(bench, given.pop("way", ""), RESUME_GRACE=30, **given)
    if way.startswith("SIG"):
        stopped.crawl.signal(getattr(signal, way))
    else:
        stopped.trigger.heal()
    stopped.wait_for_sign()
    bench.site.heal()
    crawl = stopped.crawl.wait()
    assert crawl.finish_reason == REASONS[way]
    stopped.given_back()
    assert bench.committed() == {1, 2, 3, 6} | ({5} if way not in RAISES else set())
    assert len(bench.items) == 10 * len(bench.committed())
    assert 0 < crawl.stats["resume/stop/seconds"] < 30


def test_a_stop_gives_what_does_not_come_its_grace_and_then_to_others(
    mariadb_bench: Bench, reference: Reference
) -> None:
    bench = mariadb_bench
    stopped = Stopped(bench, RESUME_GRACE=0.5)
    crawl = stopped.crawl.stop().wait()
    assert crawl.finish_reason == "shutdown"
    assert 0.5 <= crawl.stats["resume/stop/seconds"] < 20
    stopped.given_back()
    bench.site.heal()
    with bench.requests() as asked:
        bench.crawl(home="another machine")  # nothing to wait for: RESUME_MAX_WAIT is 0
    bench.assert_complete(reference(NUMBERED))
    assert set(asked) == set(range(2, 13))


def test_prc_1_a_stop_with_a_slow_database(mariadb_bench: Bench, proxy: Proxy) -> None:
    bench = mariadb_bench
    bench.env["RESUME_DATABASE_URL"] = bench.database_url.replace(
        f":{proxy.target}/", f":{proxy.port}/"
    )
    stopped = Stopped(bench, RESUME_GRACE=30)
    proxy.delay = 0.03
    stopped.crawl.stop()
    stopped.wait_for_sign()
    bench.site.heal()
    crawl = stopped.crawl.wait()
    assert crawl.finish_reason == "shutdown" and crawl.stats["resume/stop/seconds"] > 0.5
    stopped.given_back()
    assert bench.committed() == {1, 2, 3, 5, 6} and len(bench.items) == 50


@pytest.mark.stress
def test_a_stop_in_an_outage_puts_nothing_into_quarantine(
    relayed: Bench, proxy: Proxy, reference: Reference
) -> None:
    """Details that wait until the journal has room, of pages that are given up then."""
    bench, spider = relayed, DETAILS + "    last_page = 40\n"
    bench.site.listing.__init__(pages=40, rows=10)  # type: ignore[misc]
    bench.site.delay = 0.05
    bench.write(spider, settings=QUICK)
    crawl = bench.start(
        RESUME_JOURNAL_MAX_PAGES=2, RESUME_GRACE=2, RESUME_ON_FAILED_RECORD="quarantine"
    )
    wait_until(lambda: len(bench.site.requests) >= 3)
    proxy.leave()
    crawl.wait_until_logged("The journal is full")
    time.sleep(1)  # the database is tried again less and less often
    crawl.stop().wait()
    assert "are abandoned" in crawl.log
    proxy.come_back()
    bench.site.delay = 0
    bench.crawl()
    bench.assert_complete(reference(spider, pages=40))


@pytest.mark.stress
def test_a_stop_does_not_wait_for_a_database_that_never_answers(
    mariadb_bench: Bench, mariadb: MariaDB, reference: Reference
) -> None:
    bench = mariadb_bench
    stopped = Stopped(bench, RESUME_GRACE=1)
    mariadb.freeze()
    try:
        began = time.monotonic()
        crawl = stopped.crawl.stop().wait()
        assert time.monotonic() - began < 20  # without an end to it: 45 s
    finally:
        mariadb.thaw()
    assert crawl.finish_reason == "shutdown" and "waited for no longer" in crawl.log
    bench.assert_sound()
    bench.site.heal()
    bench.crawl()
    bench.assert_complete(reference(NUMBERED))


@pytest.mark.parametrize("how", ["twice", "killed"])
def test_a_stop_cut_short_costs_what_was_in_flight(
    mariadb_bench: Bench, reference: Reference, how: str
) -> None:
    bench = mariadb_bench
    stopped = Stopped(bench, RESUME_GRACE=30)
    stopped.crawl.stop()
    stopped.wait_for_sign()
    if how == "twice":
        stopped.crawl.stop().wait()
    else:
        stopped.crawl.kill()
    bench.assert_sound()
    assert [row["status"] for row in bench.shards] == ["running", "running", "pending"]
    bench.site.heal()
    with bench.requests() as asked:
        bench.crawl()
    bench.assert_complete(reference(NUMBERED))
    assert asked == dict.fromkeys(range(2, 13), 1)


STUCK = """\
import asyncio


class Rows(Numbered):
    name = 'rows'
    identity_args = ()
    where = ""

    async def parse(self, response):
        if self.where == "callback":
            await stuck(response)
        return rows(response)


class Reads(Rows):
    name = 'reads'

    async def parse(self, response):
        for row in rows(response):
            yield row
        if self.where == "generator":
            await stuck(response)


async def stuck(response):
    while number_of(response) == 5:
        await asyncio.sleep(600)


class Pipeline:
    async def process_item(self, item):
        while "k041" <= item["key"] <= "k050":  # more of them than are handled at once
            await asyncio.sleep(600)
        return item
"""


@pytest.mark.parametrize("where", ["callback", "generator", "pipeline"])
def test_code_that_never_ends_does_not_outlive_the_grace(sqlite_bench: Bench, where: str) -> None:
    bench = sqlite_bench
    pipelines = 'ITEM_PIPELINES = {"bench.spiders.rows.Pipeline": 100}' * (where == "pipeline")
    bench.write(STUCK, settings=pipelines)
    settings = {"RESUME_GRACE": 0.3, "RESUME_SHARDS": 3, "RESUME_PAGES_IN_FLIGHT": 4}
    crawl = bench.start("reads" if where == "generator" else "rows", f"where={where}", **settings)
    wait_until(lambda: bench.tasks and bench.committed() == {*range(1, 13)} - {5})
    crawl.stop().wait()
    assert (crawl.code, crawl.finish_reason) == (0, "shutdown")
    bench.assert_sound()
    assert [row["status"] for row in bench.shards] == ["done", "pending", "done"]
    assert len(bench.items) == 110 and "k041" not in bench.items
    assert not crawl.said("ERROR") and "Traceback" not in crawl.log
