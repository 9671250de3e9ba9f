"""Awkward moments and plausible mistakes, each with the loss, hang or verdict it could cost."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest

from tests.acceptance.conftest import Reference
from tests.acceptance.harness import CHAIN, NUMBERED, Bench, Crawl, wait_until
from tests.acceptance.test_res import ONE_BY_ONE
from tests.acceptance.test_spiders import LATE
from tests.acceptance.tiers import mostly_on

SMALL = NUMBERED + "    last_page = 3\n    shard_pages = 3\n"


def refused(crawl: Crawl) -> str:
    """The one line in which a crawl said why it does not begin."""
    (line,) = crawl.said("ERROR")
    assert crawl.finish_reason == "resume_refused"
    assert "Traceback" not in crawl.log
    return line


# Nothing is lost


LONG_KEY = """\
class Rows(Chain):
    name = 'rows'
    _mended = False

    def parse(self, response):
        for output in super().parse(response):
            if not self._mended and isinstance(output, dict) and output["key"] == "k021":
                output["key"] += "x" * 2000
            yield output
"""


def test_a_chain_does_not_pass_over_a_page_whose_row_was_refused(
    bench: Bench, reference: Reference
) -> None:
    """The pages behind it are queued while its own commit is under way."""
    bench.write(LONG_KEY)
    bench.settings = {"RESUME_ON_FAILED_RECORD": "hold", "RESUME_COMMIT_PAGES": 1}
    bench.crawl(RESUME_FAULT="commit.before:1:sleep=0.5")
    bench.assert_sound()
    assert (bench.watermark, bench.shard["ahead"], bench.shard["failed_pages"]) == (2, "", "3")
    with bench.requests() as asked:
        bench.crawl("rows", "_mended=1", RESUME_MAX_WAIT=5)
    assert asked == dict.fromkeys(range(3, 13), 1)
    bench.assert_complete(reference(CHAIN))


SHARED_DETAIL = """\
class Rows(Details):
    name = 'rows'
    last_page = 3

    def parse(self, response):
        yield response.follow("/item/k050", self.parse_item)
        if number_of(response) == 1:
            raise ValueError("page 1 is odd")
"""


def test_a_detail_of_a_page_set_aside_is_fetched_for_the_next_page(sqlite_bench: Bench) -> None:
    """What the page had fetched was thrown away with it."""
    bench = sqlite_bench
    bench.write(SHARED_DETAIL)
    aside = {"RESUME_ON_FAILED_PAGE": "quarantine", "RESUME_PAGE_RETRIES": 0}
    bench.crawl(**aside, RESUME_PAGES_IN_FLIGHT=1)
    assert set(bench.items) == {"k050"}
    assert bench.task["verdict"] == "complete_with_rejects"


ONE_ITEM = """\
class Row(scrapy.Item):
    key = scrapy.Field()


class Rows(Numbered):
    name = 'rows'

    def parse(self, response):
        item = Row()
        for row in rows(response):
            item["key"] = row["key"]
            yield item
"""


def test_an_item_of_scrapys_class_that_is_filled_again_is_copied(sqlite_bench: Bench) -> None:
    bench = sqlite_bench
    late = 'ITEM_PIPELINES = {"bench.pipelines.Late": 100}\n'
    bench.write(ONE_ITEM, settings=late, pipelines=LATE)
    bench.crawl()
    assert sorted(bench.items) == bench.site.listing.keys
    assert bench.task["verdict"] == "complete"


START_ITEM = """\
class Rows(Chain):
    name = 'rows'

    async def start(self):
        yield ITEM
        async for request in super().start():
            yield request
"""


@pytest.mark.parametrize("item", ['{"no": "key"}', '{"key": "x" * 2000}'], ids=["no key", "long"])
def test_an_item_of_start_that_fails_is_on_record(
    sqlite_bench: Bench, reference: Reference, item: str
) -> None:
    bench = sqlite_bench
    bench.write(START_ITEM.replace("ITEM", item))
    bench.crawl()
    bench.assert_complete(reference(CHAIN), verdict="complete_with_rejects")
    (aside,) = bench.quarantine
    assert (aside["task_id"], aside["page"]) == (bench.task["id"], None)


# Every crawl ends


ENOUGH = """\
class Rows(Numbered):
    name = 'rows'
    last_page = None

    def parse(self, response):
        yield from rows(response)
        if number_of(response) == 4:
            yield self.end_of_shard("enough")
"""


@pytest.mark.parametrize("repeats", [False, True], ids=["spider", "repeat"])
def test_an_open_ended_list_ends_below_pages_that_are_read_already(
    sqlite_bench: Bench, repeats: bool
) -> None:
    bench = sqlite_bench
    bench.write(OPEN_ENDED if repeats else ENOUGH)
    if repeats:
        bench.site.behave(from_page=5, show_page=4)
    held = bench.site.behave(page=4, hold=True)
    crawl = bench.start()
    held.wait()
    bench.site.wait_for(page=7)  # asked for because page 5 held items
    held.heal()
    crawl.wait()
    assert (bench.task["verdict"], bench.watermark, len(bench.items)) == ("complete", 4, 40)


OPEN_ENDED = "class Rows(Numbered):\n    name = 'rows'\n    last_page = None\n"


DETAIL_OF_TWO = """\
class Rows(Chain):
    name = 'rows'

    def parse(self, response):
        if number_of(response) == 2:
            yield response.follow("/item/k010", self.detail)
        yield from super().parse(response)

    def detail(self, response):
        pass
"""


def test_a_retry_does_not_outlive_its_page(sqlite_bench: Bench, reference: Reference) -> None:
    """Page 3 waits to be tried again when page 2 fails and takes it down with it."""
    bench = sqlite_bench
    bench.write(DETAIL_OF_TWO)
    bench.site.behave(page=3, delay=1.5)  # the second time: beyond the end of the wait
    bench.site.behave(page=3, status=503, retry_after=1, times=1)
    detail = bench.site.behave(path="/item/k010", status=503, hold=True, times=1)
    hold = {"RESUME_ON_FAILED_RECORD": "hold", "RESUME_MAX_WAIT": 5, "RETRY_ENABLED": False}
    crawl = bench.start(**hold)
    bench.site.wait_for(page=3)
    detail.wait()
    detail.release()
    crawl.wait()
    bench.assert_complete(reference(CHAIN))
    assert bench.site.hits(page=3) == 2


TOTAL = """\
class Rows(Numbered):
    name = 'rows'
    last_page = LAST
    shard_pages = 12

    def stated_total(self, response):
        return response.css("p.total::text").re_first(WHAT)
"""


@pytest.mark.parametrize("last", [12, None], ids=["bounded", "open"])
def test_a_total_may_be_stated_as_text(
    sqlite_bench: Bench, reference: Reference, last: int | None
) -> None:
    bench = sqlite_bench
    bench.site.listing.totals = True
    bench.write(TOTAL.replace("LAST", str(last)).replace("WHAT", r"r'\d+'"))
    bench.crawl()
    bench.assert_complete(reference(CHAIN))


@pytest.mark.parametrize("last", [12, None], ids=["bounded", "open"])
def test_a_total_that_is_no_number_holds_the_page(sqlite_bench: Bench, last: int | None) -> None:
    bench = sqlite_bench
    bench.site.listing.totals = True
    bench.write(TOTAL.replace("LAST", str(last)).replace("WHAT", "r'[a-z]+'"))
    crawl = bench.crawl()
    assert crawl.finish_reason == "resume_nothing_read"
    assert {shard["error_kind"] for shard in bench.shards} == {"code"}
    assert "ValueError" in crawl.stats["resume/verdict_reason"]


@pytest.mark.parametrize(
    ("reason", "said"), [("response.status", "200"), ("None", "the spider says so")]
)
def test_the_reason_of_an_end_may_be_anything(sqlite_bench: Bench, reason: str, said: str) -> None:
    bench = sqlite_bench
    bench.write(ENOUGH.replace('"enough"', reason))
    crawl = bench.crawl()
    assert (bench.shard["status"], bench.shard["reason"]) == ("done", said)
    assert (bench.watermark, crawl.finish_reason) == (4, "finished")


LATER = """\
from scrapy import signals
from scrapy.exceptions import DontCloseSpider


class Rows(Numbered):
    name = 'rows'
    sent = False

    @classmethod
    def from_crawler(cls, crawler, *args, **kwargs):
        spider = super().from_crawler(crawler, *args, **kwargs)
        crawler.signals.connect(spider.idle, signals.spider_idle)
        return spider

    def idle(self):
        if not self.sent:
            self.sent = True
            self.crawler.engine.crawl(Request(SITE + "/item/k001", self.detail))
            raise DontCloseSpider

    def detail(self, response):
        self.logger.info("the late page is here")
"""


def test_what_a_spider_crawls_after_its_run_is_not_cancelled(sqlite_bench: Bench) -> None:
    bench = sqlite_bench
    bench.write(LATER)
    bench.site.behave(path="/item/k001", delay=1.0)
    crawl = bench.crawl(RESUME_GRACE=0.2)
    assert "the late page is here" in crawl.log
    assert (bench.task["verdict"], crawl.finish_reason) == ("complete", "finished")


@mostly_on("mariadb")
def test_a_stop_during_a_claim_gives_the_shards_back(bench: Bench, reference: Reference) -> None:
    bench.write(NUMBERED)
    crawl = bench.start(RESUME_FAULT="claim.after:1:sleep=1")
    wait_until(lambda: [shard for shard in bench.shards if shard["status"] == "running"])
    crawl.stop().wait()
    left = {(shard["status"], shard["attempt_count"], shard["worker"]) for shard in bench.shards}
    assert left == {("pending", 0, None)}
    bench.crawl(home="another machine")
    bench.assert_complete(reference(CHAIN))


@pytest.mark.parametrize("wanted", [{"RESUME_JOIN": False}, {"RESUME_RUN": "new"}], ids=str)
def test_a_machine_that_died_for_good_does_not_stand_in_the_way(
    sqlite_bench: Bench, reference: Reference, wanted: dict[str, Any]
) -> None:
    bench = sqlite_bench
    bench.write(NUMBERED)
    bench.crawl_killed("commit.after:1", home="dead", **ONE_BY_ONE)
    bench.expire_leases()
    bench.crawl(home="alive", **wanted)
    bench.assert_complete(reference(CHAIN))


POISON = """\
import signal


class Rows(Numbered):
    name = 'rows'
    shard_pages = 2

    def parse(self, response):
        if number_of(response) == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        yield from rows(response)
"""


def test_a_page_that_kills_its_process_costs_its_own_shard_only(sqlite_bench: Bench) -> None:
    bench = sqlite_bench
    bench.write(POISON)
    bench.settings = {"RESUME_MAX_ATTEMPTS": 3, "RESUME_PAGE_RETRIES": 0, "RESUME_MAX_WAIT": 5}
    for _ in range(10):
        if bench.crawl().code != -signal.SIGKILL:
            break
    bench.assert_sound()
    assert [shard["status"] for shard in bench.shards] == ["failed", *["done"] * 5]
    assert bench.committed() >= set(range(3, 13))
    assert bench.task["verdict"] == "incomplete"


# The verdict


def test_a_run_whose_pages_were_all_set_aside_read_nothing(sqlite_bench: Bench) -> None:
    bench = sqlite_bench
    bench.write(SMALL)
    bench.site.behave(path="/list", status=403)
    crawl = bench.crawl(RESUME_ON_FAILED_PAGE="quarantine")
    assert [row["kind"] for row in bench.quarantine] == ["page"] * 3
    assert bench.task["verdict"] == "nothing_read"
    assert crawl.finish_reason == "resume_nothing_read"


FREE = """\
class Rows(Chain):
    name = 'rows'

    def plan(self):
        yield Shard("all")

    def page_request(self, page):
        return Request(SITE + (page.cursor or "/list?page=1"))

    def parse(self, response):
        yield from rows(response)
        yield self.next_page(response.css("a.next::attr(href)").get())
"""


def test_no_next_page_may_be_said_by_none(sqlite_bench: Bench, reference: Reference) -> None:
    bench = sqlite_bench
    bench.write(FREE)
    with bench.requests() as asked:
        bench.crawl()
    bench.assert_complete(reference(CHAIN))
    assert asked == dict.fromkeys(range(1, 13), 1)


# Mistakes of a spider's author


STRANGE = """\
class Sealed:
    def __init__(self):
        self.key = "sealed"

    def __copy__(self):
        raise TypeError("not to be copied")


class Rows(Numbered):
    name = 'rows'

    def parse(self, response):
        yield from rows(response)
        yield WHAT
"""


@pytest.mark.parametrize("what", ["(row for row in [1])", "Sealed()"])
def test_a_strange_output_does_not_cost_its_page(
    sqlite_bench: Bench, reference: Reference, what: str
) -> None:
    bench = sqlite_bench
    bench.write(STRANGE.replace("WHAT", what))
    bench.crawl()
    assert bench.items == reference(CHAIN)
    assert {shard["status"] for shard in bench.shards} == {"done"}
    assert set(bench.site.pages()) == set(range(1, 13))
    assert len(bench.site.pages()) == 12, "no page was tried again"


@pytest.mark.parametrize(
    ("shard", "said"),
    [
        ("Shard(7, 1, 3)", "key=7"),
        ("Shard('a', '1', 3)", "first_page='1'"),
        ("Shard('a', 1, '3')", "last_page='3'"),
        ("Shard('a', 1, 3, priority='high')", "priority='high'"),
        ("Shard('a', 1, 3, site=5)", "site=5"),
    ],
)
def test_a_shard_of_the_wrong_types_is_named(sqlite_bench: Bench, shard: str, said: str) -> None:
    sqlite_bench.write(f"{NUMBERED}\n    def plan(self):\n        yield {shard}\n")
    assert said in refused(sqlite_bench.crawl())
    assert sqlite_bench.site.pages() == []


@pytest.mark.parametrize(
    ("body", "args"),
    [
        ("end_statuses = 404", []),
        ("end_statuses = None", []),
        ("pass", ["end_statuses=404"]),
        ("pass", ["end_statuses=404,410"]),
        ("def warm_up(self): self.warm = True", []),
    ],
)
def test_what_an_author_may_well_write_works(
    sqlite_bench: Bench, reference: Reference, body: str, args: list[str]
) -> None:
    bench = sqlite_bench
    if "404" in body + str(args):
        bench.site.listing.past_end = "404"
    bench.write(f"{OPEN_ENDED}    {body}\n")
    crawl = bench.crawl("rows", *args)
    bench.assert_complete(reference(CHAIN))
    assert crawl.said("ERROR") == [] and "Traceback" not in crawl.log


@pytest.mark.parametrize("attribute", ["end_statuses = ['gone']", "stop_on_empty = None"])
def test_an_attribute_that_cannot_work_is_named(sqlite_bench: Bench, attribute: str) -> None:
    sqlite_bench.write(f"{OPEN_ENDED}    {attribute}\n")
    assert attribute.partition(" ")[0] in refused(sqlite_bench.crawl())
    assert sqlite_bench.site.pages() == []


def test_the_stats_hold_no_secret_of_what_a_plan_raised(sqlite_bench: Bench) -> None:
    bench = sqlite_bench
    url = "http://me:hush@shop.invalid/list?token=sesame"
    bench.write(f"{NUMBERED}\n    def plan(self):\n        raise ValueError('no list at {url}')\n")
    crawl = bench.crawl()
    error = crawl.stats["resume/error"]
    assert "ValueError: no list at http://shop.invalid/list" in error
    assert "hush" not in error and "sesame" not in error
    assert "hush" not in json.dumps(crawl.stats, default=str)
