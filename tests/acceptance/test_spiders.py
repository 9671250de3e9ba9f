"""What a spider author sees: little to change, and a plain spider when the suite is off."""

from __future__ import annotations

import difflib
import json
from typing import Any

import pytest
from scrapy import Spider
from scrapy.core.scheduler import Scheduler
from scrapy.utils.test import get_crawler

from tests.acceptance.conftest import Reference
from tests.acceptance.harness import CHAIN, DETAILS, HEADER, NUMBERED, Bench
from tests.acceptance.test_res import ONE_BY_ONE
from tests.acceptance.tiers import mostly_on

REUSED = """\
class Rows(Chain):
    name = 'rows'

    def parse(self, response):
        item = {}
        for output in super().parse(response):
            if isinstance(output, dict):
                item.update(output)
                yield item
                item["title"] = "changed afterwards"
            else:
                yield output
"""


def test_an_item_object_that_the_spider_fills_again_is_copied_on_arrival(
    sqlite_bench: Bench, reference: Reference
) -> None:
    """A pipeline that awaits lets the spider go on before the item gets to ours."""
    late = 'ITEM_PIPELINES = {"bench.pipelines.Late": 100}\n'
    sqlite_bench.write(REUSED, settings=late, pipelines=LATE)
    sqlite_bench.crawl()
    sqlite_bench.assert_complete(reference(CHAIN))


LATE = """\
import asyncio


class Late:
    async def process_item(self, item):
        await asyncio.sleep(0)
        return item
"""


CHANGED = """\
class Rows(Numbered):
    name = 'rows'

    def parse(self, response):
        items = rows(response)
        yield from items
        url = "/item/" + items[0]["key"]
        yield response.follow(url, self.later, cb_kwargs={"page": number_of(response)})
        self.items = {**getattr(self, "items", {}), number_of(response): items}

    def later(self, response, page):
        for item in self.items[page]:
            item.update(title="changed afterwards", key="wrong")
"""


def test_an_item_object_that_the_spider_changes_later_was_copied(
    sqlite_bench: Bench, reference: Reference
) -> None:
    """The pages are still open, and so not stored, when the spider changes their items."""
    sqlite_bench.write(CHANGED)
    sqlite_bench.crawl()
    sqlite_bench.assert_complete(reference(CHAIN))


BEFORE = """\
import scrapy


class RowsSpider(scrapy.Spider):
    name = "rows"
    start_urls = ["URL/list?page=1"]

    def parse(self, response):
        for row in response.css("li.row"):
            yield {
                "key": row.attrib["data-key"],
                "title": row.css("a.title::text").get(),
            }
        next_page = response.css("a.next::attr(href)").get()
        if next_page is not None:
            yield response.follow(next_page, callback=self.parse)
"""
AFTER = (
    BEFORE.replace(
        "import scrapy\n", "import scrapy\nfrom scrapy_resume import ResumeSpiderMixin\n"
    )
    .replace("(scrapy.Spider)", "(ResumeSpiderMixin, scrapy.Spider)")
    .replace(
        "yield response.follow(next_page, callback=self.parse)",
        "yield self.next_page(response.follow(next_page, callback=self.parse))",
    )
)


@mostly_on("sqlite")
def test_an_existing_spider_becomes_resumable_by_three_lines(bench: Bench) -> None:
    changes = list(difflib.ndiff(BEFORE.splitlines(), AFTER.splitlines()))
    assert len([line for line in changes if line.startswith("+ ")]) <= 3
    spider = bench.directory / "bench" / "spiders" / "rows.py"
    spider.write_text(BEFORE.replace("URL", bench.site.url))
    plain = _scraped(bench, RESUME_ENABLED=False)
    spider.write_text(AFTER.replace("URL", bench.site.url))
    bench.crawl_killed("commit.before:4", **ONE_BY_ONE)
    bench.crawl()
    assert bench.task["verdict"] == "complete"
    stored = [json.loads(payload) for payload in bench.items.values()]
    assert sorted(stored, key=_key) == sorted(plain, key=_key)
    assert len(plain) == 120


def _key(item: dict[str, Any]) -> str:
    return str(item["key"])


def _scraped(bench: Bench, *args: str, **given: Any) -> list[dict[str, Any]]:
    """Crawl into a feed."""
    path = bench.directory / "items.jl"
    path.unlink(missing_ok=True)
    feeds = json.dumps({str(path): {"format": "jsonlines"}})
    bench.crawl("rows", *args, FEEDS=feeds, **given)
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def untouched(bench: Bench) -> bool:
    """Nothing of ours: no database, no state directory."""
    files = {path.name for path in bench.directory.rglob("*")}
    return not files & {"home", "resume.db", ".scrapy", "slot-0"} and not bench.tasks


@pytest.mark.parametrize("spider", [CHAIN, NUMBERED, DETAILS], ids=["chain", "numbered", "details"])
def test_switched_off_it_is_a_plain_spider(
    sqlite_bench: Bench, reference: Reference, spider: str
) -> None:
    bench = sqlite_bench
    bench.write(spider)
    items = _scraped(bench, RESUME_ENABLED=False)
    assert {item["key"] for item in items} == set(reference(spider))
    assert len(items) == 120
    assert sorted(bench.site.pages()) == list(range(1, 13))
    assert bench.crawls[-1].finish_reason == "finished"
    assert "[scrapy_resume" not in bench.crawls[-1].log
    assert untouched(bench)


def test_switched_off_a_mistake_in_our_settings_is_no_mistake(sqlite_bench: Bench) -> None:
    sqlite_bench.write(CHAIN)
    crawl = sqlite_bench.crawl(RESUME_ENABLED=False, RESUME_LEASE="nonsense")
    assert crawl.finish_reason == "finished"
    assert crawl.stats["item_scraped_count"] == 120


CONTRACT = '''\
class Rows(Chain):
    name = 'rows'

    def parse(self, response):
        """A list page.

        @url URL/list?page=3
        @returns items 10 10
        @returns requests 1 1
        @scrapes key title price
        """
        return super().parse(response)
'''


@pytest.mark.parametrize("spider", [CHAIN, NUMBERED], ids=["chain", "numbered"])
def test_scrapy_shell_and_parse_behave_plainly(sqlite_bench: Bench, spider: str) -> None:
    bench = sqlite_bench
    bench.write(spider)
    url = f"{bench.site.url}/list?page=3"
    shell = bench.run_scrapy("shell", url, "-c", "print('rows:', len(response.css('li.row')))")
    assert shell.wait().code == 0
    assert "rows: 10" in shell.log
    parse = bench.run_scrapy("parse", "--spider=rows", "-c", "parse", "--nolinks", url).wait()
    assert parse.code == 0
    assert parse.log.count("'key': 'k0") == 10
    assert untouched(bench)


def test_scrapy_check_behaves_plainly(sqlite_bench: Bench) -> None:
    bench = sqlite_bench
    bench.write(CONTRACT.replace("URL", bench.site.url))
    check = bench.run_scrapy("check", "rows").wait()
    assert check.code == 0, check.log
    assert "Ran 3 contracts" in check.log and "OK" in check.log
    assert untouched(bench)


COMPONENTS = {
    "SCHEDULER": "scrapy_resume.scheduler.ShardScheduler",
    "EXTENSIONS": {"scrapy_resume.extensions.CheckpointExtension": 0},
    "SPIDER_MIDDLEWARES": {"scrapy_resume.spidermiddlewares.PageMiddleware": 0},
    "DOWNLOADER_MIDDLEWARES": {"scrapy_resume.downloadermiddlewares.SiteHealthMiddleware": 560},
    "ITEM_PIPELINES": {"scrapy_resume.pipelines.UpsertPipeline": 1000},
}


def by_hand(*without: str) -> str:
    """Settings that place the components one by one, except those of *without*."""
    kept = {name: value for name, value in COMPONENTS.items() if name not in without}
    return "ADDONS = {}\n" + "".join(f"{name} = {value!r}\n" for name, value in kept.items())


def test_components_set_by_hand_work_as_the_add_on_does(
    sqlite_bench: Bench, reference: Reference
) -> None:
    bench = sqlite_bench
    bench.write(CHAIN, settings=by_hand())
    bench.crawl_killed("commit.before:4", **ONE_BY_ONE)
    bench.assert_sound()
    bench.crawl()
    bench.assert_complete(reference(CHAIN))


@pytest.mark.parametrize("without", ["SCHEDULER", "EXTENSIONS", "SPIDER_MIDDLEWARES"])
def test_without_one_component_the_spider_is_plain_and_says_so(
    sqlite_bench: Bench, reference: Reference, without: str
) -> None:
    bench = sqlite_bench
    bench.write(CHAIN, settings=by_hand(without))
    crawl = bench.crawl()
    assert (crawl.finish_reason, crawl.stats["item_scraped_count"]) == ("finished", 120)
    name = str(next(iter(COMPONENTS[without])) if without != "SCHEDULER" else COMPONENTS[without])
    if without != "SPIDER_MIDDLEWARES":  # who would say it
        assert name.rpartition(".")[2] in "".join(crawl.said("WARNING"))
    assert bench.tasks == []
    assert bench.items == reference(CHAIN)  # UpsertPipeline alone still stores
    assert not crawl.said("ERROR")


def test_without_the_pipeline_pages_are_checkpointed_and_items_go_elsewhere(
    sqlite_bench: Bench,
) -> None:
    bench = sqlite_bench
    bench.write(CHAIN, settings=by_hand("ITEM_PIPELINES"))
    bench.crawl_killed("commit.before:4", **ONE_BY_ONE)
    assert bench.watermark == 3
    crawl = bench.crawl()
    assert (bench.task["verdict"], bench.watermark, bench.items) == ("complete", 12, {})
    assert crawl.stats["item_scraped_count"] == 90


def test_the_add_on_can_leave_out_one_component(sqlite_bench: Bench) -> None:
    bench = sqlite_bench
    off = 'ITEM_PIPELINES = {"scrapy_resume.pipelines.UpsertPipeline": None}\n'
    bench.write(CHAIN, settings=off)
    bench.crawl()
    assert (bench.task["verdict"], bench.watermark, bench.items) == ("complete", 12, {})


class TheirScheduler(Scheduler):
    """A user's own."""


def test_the_add_on_never_overrides_what_the_user_set() -> None:
    theirs: dict[str, Any] = {
        "CONCURRENT_ITEMS": 7,
        "ITEM_PIPELINES": {"scrapy_resume.pipelines.UpsertPipeline": 250},
        "EXTENSIONS": {"scrapy_resume.extensions.CheckpointExtension": 3},
        "SPIDER_MIDDLEWARES": {"scrapy_resume.spidermiddlewares.PageMiddleware": 4},
        "SCHEDULER": "tests.acceptance.test_spiders.TheirScheduler",
        "DUPEFILTER_CLASS": "scrapy.dupefilters.BaseDupeFilter",
        "RETRY_TIMES": 9,
    }
    bare = get_crawler(Spider, {}).settings
    addons = {"scrapy_resume.ResumeAddon": 500}
    settings = get_crawler(Spider, {**theirs, "ADDONS": addons}).settings
    kept = {name: settings[name] for name in theirs if name != "SCHEDULER"}
    for name in ("ITEM_PIPELINES", "EXTENSIONS", "SPIDER_MIDDLEWARES"):
        kept[name] = dict(kept[name])
    assert kept == {name: value for name, value in theirs.items() if name != "SCHEDULER"}
    assert settings["RESUME_INNER_SCHEDULER"] == theirs["SCHEDULER"]
    # On a user who set nothing it changes what its documentation lists, and no more.
    changed = get_crawler(Spider, {"ADDONS": addons}).settings
    differing = {name for name in changed if changed[name] != bare[name]}
    assert differing <= {
        *COMPONENTS,
        "CONCURRENT_ITEMS",
        "LOG_FORMATTER",
        "RESUME_INNER_SCHEDULER",
        "ADDONS",
    }


OWN_SCHEDULER = """\
import logging

from scrapy.core.scheduler import Scheduler


class Own(Scheduler):
    def enqueue_request(self, request):
        logging.getLogger("own").info("queued %s", request.url)
        return super().enqueue_request(request)
"""


def test_the_users_own_scheduler_is_wrapped(sqlite_bench: Bench, reference: Reference) -> None:
    bench = sqlite_bench
    bench.write(CHAIN, settings='SCHEDULER = "bench.queue.Own"\n', queue=OWN_SCHEDULER)
    crawl = bench.crawl()
    bench.assert_complete(reference(CHAIN))
    assert crawl.log.count("[own] INFO: queued") == 12


SEVERAL = """\
class Rows(Chain):
    name = 'rows'

    async def start(self):
        yield {"key": "k000", "title": "from start()", "price": "0"}
        for page in (1, 7):
            yield Request(SITE + f"/list?page={page}", cb_kwargs={"until": page + 5})

    def parse(self, response, until):
        yield from rows(response)
        page = number_of(response)
        if page < until:
            following = response.follow(f"/list?page={page + 1}", cb_kwargs={"until": until})
            yield self.next_page(following)
"""


@mostly_on("mariadb")
def test_every_start_request_becomes_a_chain_of_its_own(bench: Bench, reference: Reference) -> None:
    bench.write(SEVERAL)
    bench.crawl_killed("commit.after:4", **ONE_BY_ONE)
    pages = {shard["shard_no"]: shard["page_count"] for shard in bench.shards}
    assert len(pages) == 2 and sum(pages.values()) == 4
    with bench.requests() as asked:
        bench.crawl()
    assert (bench.task["verdict"], asked.total()) == ("complete", 8)
    stored = bench.items
    assert stored.pop("k000")
    assert stored == reference(CHAIN)
    assert {shard["page_count"] for shard in bench.shards} == {6}


@mostly_on("sqlite")
def test_an_item_of_start_without_its_key_is_on_record_once(bench: Bench) -> None:
    keyless = SEVERAL.replace("""yield {"key": "k000",""", """yield {"key": None,""")
    bench.write(keyless.replace("name = 'rows'", "name, item_key = 'rows', 'key'"))
    crawl = bench.crawl()
    (row,) = bench.quarantine
    assert (row["kind"], row["error_class"], row["column_name"]) == ("item", "NoKey", "key")
    assert (row["task_id"], row["page"]) == (bench.task["id"], None)
    assert bench.task["verdict"] == "complete_with_rejects"
    assert crawl.said("Traceback") == crawl.said("ERROR") == []


REACTORS: dict[str, dict[str, Any]] = {
    "asyncio": {"TWISTED_REACTOR": "twisted.internet.asyncioreactor.AsyncioSelectorReactor"},
    "twisted": {"TWISTED_REACTOR": "twisted.internet.epollreactor.EPollReactor"},
    "none": {"TWISTED_REACTOR_ENABLED": False},
}


@pytest.mark.parametrize("reactor", REACTORS)
def test_every_kind_of_event_loop(sqlite_bench: Bench, reference: Reference, reactor: str) -> None:
    bench = sqlite_bench
    bench.write(DETAILS)
    bench.settings = REACTORS[reactor]
    bench.crawl_killed("commit.before:3", RESUME_COMMIT_PAGES=1)
    bench.assert_sound()
    bench.crawl()
    bench.assert_complete(reference(DETAILS))


def test_a_spider_in_a_file_of_its_own(sqlite_bench: Bench, reference: Reference) -> None:
    bench = sqlite_bench
    (bench.directory / "alone.py").write_text(HEADER + CHAIN)
    bench.crawl_killed("commit.after:4", "alone.py", verb="runspider", **ONE_BY_ONE)
    assert bench.watermark == 4
    bench.crawl("alone.py", verb="runspider")
    bench.assert_complete(reference(CHAIN))


WARM = """\
class Rows(Chain):
    name = 'rows'

    async def warm_up(self):
        response = await self.fetch(Request(SITE + "/start?currency=EUR"))
        assert response.status == 200

    def check_page(self, response, page):
        if not response.css(".currency::text").get() == "EUR":
            raise NotAPage("another currency")
"""


def test_warm_up_runs_before_the_first_page_of_every_process(sqlite_bench: Bench) -> None:
    bench = sqlite_bench
    bench.write(WARM)
    bench.crawl_killed("commit.after:3", **ONE_BY_ONE)
    bench.crawl()
    assert (bench.task["verdict"], bench.watermark) == ("complete", 12)
    assert bench.site.hits(path="/start") == 2
    assert bench.site.requests[0].path == "/start"
