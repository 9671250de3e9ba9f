"""Resume and checkpoint: what may go wrong between a page and its record."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest

from tests.acceptance.conftest import Reference
from tests.acceptance.harness import CHAIN, NUMBERED, Bench, wait_until
from tests.acceptance.tiers import mostly_on, rarely

# Each page is stored before the next one is asked for; a journal would let it go before.
ONE_BY_ONE: dict[str, Any] = {
    "RESUME_PAGES_IN_FLIGHT": 1,
    "RESUME_COMMIT_PAGES": 1,
    "RESUME_COMMIT_DELAY": 0,
    "RESUME_JOURNAL": False,
}


@pytest.mark.parametrize(
    ("database_url", "fault", "watermark", "hits"),
    [
        rarely("sqlite", "page.response:7", 6, 2, id="sqlite-response"),
        pytest.param("sqlite", "page.item:65", 6, 2, id="sqlite-item"),
        rarely("sqlite", "commit.after:7", 7, 1, id="sqlite-commit"),
        rarely("mariadb", "page.response:7", 6, 2, id="mariadb-response"),
        rarely("mariadb", "page.item:65", 6, 2, id="mariadb-item"),
        pytest.param("mariadb", "commit.after:7", 7, 1, id="mariadb-commit"),
    ],
    indirect=["database_url"],
)
def test_res_1_killed_in_the_middle_of_a_page(
    bench: Bench, reference: Reference, fault: str, watermark: int, hits: int
) -> None:
    if fault.startswith("commit"):
        bench.forks = None  # "python -m scrapy", as a user starts it
    bench.write(CHAIN)
    bench.settings = ONE_BY_ONE
    bench.crawl_killed(fault)
    bench.assert_sound()
    assert bench.watermark == watermark
    assert len(bench.items) == 10 * watermark
    with bench.requests() as asked:
        bench.crawl()
    bench.assert_complete(reference(CHAIN))
    assert sorted(asked) == list(range(watermark + 1, 13))
    assert bench.site.hits(page=7) == hits


@mostly_on("mariadb")
def test_res_2_a_stopped_crawl_goes_on_and_does_not_close_at_once(
    bench: Bench, reference: Reference
) -> None:
    bench.write(CHAIN)
    bench.settings = {**ONE_BY_ONE, "RESUME_GRACE": 0.2}
    held = bench.site.behave(page=4, hold=True)
    crawl = bench.start()
    held.wait()
    crawl.stop().wait()
    bench.site.heal()
    bench.assert_sound()
    assert (bench.watermark, bench.shard["status"], bench.task["verdict"]) == (3, "pending", None)
    assert crawl.finish_reason == "shutdown"
    with bench.requests() as asked:
        crawl = bench.crawl()
    bench.assert_complete(reference(CHAIN))
    assert sorted(asked) == list(range(4, 13))
    assert crawl.finish_reason == "finished"


def test_res_2_after_a_finished_run_the_next_one_reads_everything_again(
    sqlite_bench: Bench, reference: Reference
) -> None:
    bench = sqlite_bench
    bench.site.listing.rows = bench.site.listing.rows[:30]
    bench.write(CHAIN)
    bench.crawl()
    assert (bench.task["run_no"], bench.task["verdict"], bench.watermark) == (1, "complete", 3)
    bench.site.listing.insert(20, at=30)
    with bench.requests() as asked:
        crawl = bench.crawl()
    assert (bench.task["run_no"], bench.task["verdict"], bench.watermark) == (2, "complete", 5)
    assert asked == dict.fromkeys(range(1, 6), 1)
    assert crawl.finish_reason == "finished"
    assert len(bench.items) == 50
    bench.assert_sound()


BREAKS = """\
class Rows(Chain):
    name = 'rows'

    def parse(self, response):
        outputs = [*super().parse(response)]
        if number_of(response) == 5 and os.environ.get("BROKEN"):
            kept = {"before": outputs[:4], "after": [*outputs[:4], outputs[-1]]}
            yield from kept[os.environ["BROKEN"]]
            raise ValueError("the spider has a bug")
        yield from outputs
"""


@pytest.mark.parametrize("moment", ["before", "after"])
@mostly_on("sqlite")
def test_res_3_a_callback_that_raises_leaves_its_page_undone(
    bench: Bench, reference: Reference, moment: str
) -> None:
    bench.write(BREAKS)
    bench.env = {"BROKEN": moment}
    crawl = bench.crawl()
    bench.assert_sound()
    assert bench.watermark == 4
    assert len(bench.items) == 40
    assert crawl.finish_reason == "resume_incomplete"
    outcome = f"{crawl.stats['resume/verdict_reason']}"
    assert "page 5" in outcome and "ValueError" in outcome
    assert "ValueError" in bench.shard["last_error"]
    assert bench.shard["failed_pages"] == "5"
    bench.env = {}
    with bench.requests() as asked:
        bench.crawl()
    bench.assert_complete(reference(CHAIN))
    assert asked == dict.fromkeys(range(5, 13), 1)


PICKY = """\
import os

from scrapy.exceptions import DropItem


class Picky:
    def process_item(self, item):
        if item["key"] == "k043" and not os.environ.get("MENDED"):
            raise KeyError("no such colour")
        if item["key"] == "k044":
            raise DropItem("not wanted")
        return item
"""
WITH_PICKY = 'ITEM_PIPELINES = {"bench.pipelines.Picky": 100}\n'


@mostly_on("mariadb")
def test_res_4_a_failed_item_is_on_record_and_a_dropped_one_is_counted(
    bench: Bench, reference: Reference
) -> None:
    bench.write(CHAIN, settings=WITH_PICKY, pipelines=PICKY)
    crawl = bench.crawl()
    bench.assert_sound()
    whole = reference(CHAIN)
    assert bench.items == {k: v for k, v in whole.items() if k not in ("k043", "k044")}
    (reject,) = bench.quarantine
    assert (reject["page"], reject["kind"], reject["error_class"]) == (5, "item", "KeyError")
    assert (reject["item_key"], reject["shard_no"]) == ("k043", bench.shard["shard_no"])
    assert (bench.shard["dropped_count"], bench.shard["quarantined_count"]) == (1, 1)
    assert (bench.shard["written_count"], bench.shard["cur_page"]) == (118, 12)
    assert bench.task["verdict"] == "complete_with_rejects"
    assert crawl.finish_reason == "finished"
    assert crawl.stats["resume/items/quarantined"] == crawl.stats["resume/items/dropped"] == 1


def test_res_4_a_failed_item_can_hold_its_page(sqlite_bench: Bench, reference: Reference) -> None:
    bench = sqlite_bench
    bench.write(CHAIN, settings=WITH_PICKY, pipelines=PICKY)
    bench.settings = {"RESUME_ON_FAILED_RECORD": "hold"}
    crawl = bench.crawl()
    bench.assert_sound()
    assert (bench.watermark, len(bench.items), bench.quarantine) == (4, 40, [])
    assert crawl.finish_reason == "resume_incomplete"
    bench.env = {"MENDED": "1"}
    bench.crawl()
    bench.assert_complete({k: v for k, v in reference(CHAIN).items() if k != "k044"})
    assert bench.shard["dropped_count"] == 1


SLOW_FIRST = """\
import asyncio
import os


class SlowFirst:
    async def process_item(self, item):
        while item["key"] <= "k010" and not os.path.exists("go"):
            await asyncio.sleep(0.01)
        return item
"""


@mostly_on("sqlite")
def test_res_5_a_later_page_is_stored_before_an_earlier_one(
    bench: Bench, reference: Reference
) -> None:
    spider = NUMBERED + "    shard_pages = 12\n"
    bench.write(
        spider,
        settings='ITEM_PIPELINES = {"bench.pipelines.SlowFirst": 100}\n',
        pipelines=SLOW_FIRST,
    )
    crawl = bench.start(RESUME_PAGES_IN_FLIGHT=8)
    wait_until(lambda: bench.tasks and bench.shards and 3 in bench.committed())
    crawl.kill()
    bench.assert_sound()
    done = bench.committed()
    assert bench.watermark == 0 and 3 in done
    assert not {"k001", "k010"} & set(bench.items)
    (bench.directory / "go").touch()
    with bench.requests() as asked:
        bench.crawl()
    bench.assert_complete(reference(spider))
    assert 1 in asked and not done & set(asked)


CATEGORIES = """\
class Rows(Numbered):
    name = 'rows'
    identity_args = ("category", "sort")
    shard_pages = 12

    def __init__(self, category="", sort="", note="", **kwargs):
        super().__init__(**kwargs)
        self.page_url = SITE + f"/list?page={{page}}&category={category}"


class Plain(Rows):
    name = 'plain'
    identity_args = None
"""


def test_res_6_every_set_of_arguments_has_its_own_checkpoint(sqlite_bench: Bench) -> None:
    bench = sqlite_bench
    bench.write(CATEGORIES)
    bench.settings = ONE_BY_ONE
    bench.crawl_killed("commit.after:8", "rows", "category=a", "sort=up")
    bench.crawl("rows", "category=b", "sort=up", RESUME_RUN="auto")
    bench.crawl("rows", "note=hello", "sort=up", "category=a")
    asked: dict[str, list[int | None]] = {"a": [], "b": []}
    for request in bench.site.requests:
        asked[request.query["category"]].append(request.page)
    assert asked["b"] == list(range(1, 13))
    assert asked["a"][:8] == list(range(1, 9))
    assert asked["a"][8:] == list(range(9, 13))
    assert [task["run_no"] for task in bench.tasks] == [1, 1]
    assert len({task["name"] for task in bench.tasks}) == 2
    assert {task["verdict"] for task in bench.tasks} == {"complete"}


def test_res_6_by_default_all_arguments_count_but_those_with_an_underscore(
    sqlite_bench: Bench,
) -> None:
    bench = sqlite_bench
    bench.write(CATEGORIES)
    bench.settings = {**ONE_BY_ONE, "CLOSESPIDER_PAGECOUNT": 1}
    bench.crawl("plain", "category=a", "_job=1")
    bench.crawl("plain", "category=a", "_job=2")
    bench.crawl("plain", "category=a", "note=hello")
    assert [task["run_no"] for task in bench.tasks] == [1, 1]
    assert bench.site.pages() == [1, 2, 1]


LOG_SQL = """\
import logging

logging.getLogger("sqlalchemy.engine").setLevel(logging.INFO)
"""
TWO_SPIDERS = CHAIN + "\n\nclass Other(Chain):\n    name = 'other'\n"


def test_res_7_a_start_destroys_nothing(bench: Bench, reference: Reference) -> None:
    bench.write(TWO_SPIDERS, settings=LOG_SQL)
    bench.crawl_killed("commit.after:6", **ONE_BY_ONE)
    before = bench.snapshot()
    assert bench.crawl("rosw").code != 0
    assert bench.snapshot() == before
    bench.crawl("other")
    after = bench.snapshot()
    for number, shard in before.shards.items():
        assert _position(after.shards[number]) == _position(shard)
    assert {k: v for k, v in after.items.items() if k[0] == "rows"} == before.items
    resumed = bench.crawl("rows")
    assert {k: v for (s, k), v in _payloads(bench).items() if s == "rows"} == reference(CHAIN)
    statements = "\n".join(crawl.log for crawl in bench.crawls)
    assert "INSERT INTO" in statements
    assert not re.search(r"\b(DROP (?!INDEX)|TRUNCATE\b|REPLACE INTO\b)", statements)
    assert "DELETE FROM" not in resumed.log
    assert set(re.findall(r"DELETE FROM \S+", statements)) <= {
        f"DELETE FROM {bench.prefix}task_shard"  # what a dead planner of the same new run left
    }


def _position(shard: Mapping[str, Any]) -> dict[str, Any]:
    """What a shard knows; not who holds it: the next start takes it from the dead process."""
    names = (
        "first_page",
        "cur_page",
        "cursor",
        "ahead",
        "failed_pages",
        "version",
        "checkpoint_at",
    )
    return {name: shard[name] for name in (*names, "page_count", "written_count", "digests")}


def _payloads(bench: Bench) -> dict[tuple[str, str], str]:
    return {key: row["payload"] for key, row in bench.snapshot().items.items()}


@pytest.mark.parametrize(
    "limit",
    [
        pytest.param({"CLOSESPIDER_ITEMCOUNT": 25}, id="CLOSESPIDER_ITEMCOUNT"),
        pytest.param({"CLOSESPIDER_PAGECOUNT": 3}, id="CLOSESPIDER_PAGECOUNT"),
        rarely({"CLOSESPIDER_TIMEOUT": 1}, id="CLOSESPIDER_TIMEOUT"),
    ],
)
@pytest.mark.parametrize("spider", [CHAIN, NUMBERED], ids=["chain", "numbered"])
def test_res_8_a_limit_never_cuts_a_page_in_half(
    sqlite_bench: Bench, reference: Reference, limit: dict[str, int], spider: str
) -> None:
    bench = sqlite_bench
    bench.write(spider)
    bench.settings = {"RESUME_SHARDS": 1, "RESUME_PAGES_IN_FLIGHT": 2}
    if "CLOSESPIDER_TIMEOUT" in limit:
        # However slow the machine, the run is planned, begun, and not over when time is up.
        bench.crawl(CLOSESPIDER_PAGECOUNT=1)
        bench.site.delay = 1
    crawl = bench.crawl(**limit)
    bench.assert_sound()
    assert crawl.finish_reason.startswith("closespider_")
    assert crawl.stats["resume/stop/seconds"] > 0
    assert "running" not in {row["status"] for row in bench.shards}, "leases were kept"
    assert len(bench.items) == 10 * len(bench.committed())
    assert 1 <= len(bench.committed()) < 12
    assert bench.task["verdict"] is None
    bench.site.delay = 0
    with bench.requests() as asked:
        done = bench.committed()
        bench.crawl()
    bench.assert_complete(reference(spider))
    assert set(asked) == set(range(1, 13)) - done
