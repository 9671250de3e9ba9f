"""``scrapy resume plan``."""

from __future__ import annotations

import json

from tests.acceptance.harness import CHAIN, NUMBERED, Bench, Crawl

FETCHING = """
    class Rows(Numbered):
        name = 'rows'

        async def plan(self):
            response = await self.fetch(Request(SITE + "/list?page=1"))
            assert response.css("li.row")
            yield Shard("all", 1, 12)

        async def warm_up(self):
            raise RuntimeError("no page is wanted yet")
"""
PLAIN = "class Rows(scrapy.Spider):\n    name = 'rows'\n    start_urls = [SITE + '/list?page=1']\n"


def plan(bench: Bench, *words: str) -> Crawl:
    return bench.run_scrapy("resume", "plan", "rows", "-L", "ERROR", *words).wait()


def test_it_plans_the_run_and_reads_no_page(bench: Bench) -> None:
    bench.write(NUMBERED)
    done = plan(bench)
    assert done.code == 0
    lines = done.log.splitlines()
    assert [line.split()[:2] for line in lines[lines.index("Shards of rows, run 1") + 2 :]] == [
        ["1", "1-4"],
        ["2", "5-8"],
        ["3", "9-12"],
    ]
    assert bench.site.requests == []
    assert {shard["status"] for shard in bench.shards} == {"pending"}
    assert bench.task["planned_at"] is not None
    assert bench.crawl().code == 0
    assert (bench.task["run_no"], bench.task["verdict"]) == (1, "complete")


def test_a_plan_may_download_and_no_page_follows(bench: Bench) -> None:
    bench.write(FETCHING)
    assert plan(bench).code == 0
    assert bench.site.pages() == [1]
    assert bench.shard["fencing_token"] == 0


def test_start_requests_become_chains(bench: Bench) -> None:
    bench.write(CHAIN)
    assert plan(bench).code == 0
    assert (bench.shard["ordered"], bench.shard["last_page"]) == (1, None)
    assert bench.site.requests == []


def test_a_planned_run_is_shown_and_not_planned_again(bench: Bench) -> None:
    bench.write(NUMBERED)
    plan(bench)
    before = bench.shards
    assert plan(bench).code == 0
    assert bench.shards == before


def test_the_same_object_as_status_prints(bench: Bench) -> None:
    bench.write(NUMBERED)
    printed = json.loads(plan(bench, "-a", "last_page=8", "--json").log)
    status = bench.run_scrapy("resume", "status", str(bench.task["id"]), "--json").wait()
    shown = json.loads(status.log)
    assert printed["tasks"][0].pop("now") < shown["tasks"][0].pop("now")
    assert printed == shown
    assert printed["tasks"][0]["name"] == "rows last_page=8"


def test_a_spider_that_has_no_plan_is_refused(bench: Bench) -> None:
    bench.write(PLAIN)
    done = plan(bench)
    assert done.code == 1
    assert done.log == (
        "scrapy resume: spider 'rows' cannot be planned, since it has no ResumeSpiderMixin\n"
    )


def test_with_the_suite_off_it_reads_nothing_either(bench: Bench) -> None:
    bench.write(NUMBERED)
    done = plan(bench, "-s", "RESUME_ENABLED=False")
    assert done.code == 1
    assert "scrapy resume: the suite is off" in done.log
    assert bench.site.requests == []


def test_a_plan_that_is_wrong_is_one_line(bench: Bench) -> None:
    bench.write("""
        class Rows(Numbered):
            name = 'rows'
            def plan(self):
                yield Shard("a", 5, 2)
    """)
    done = plan(bench)
    assert done.code == 1
    assert done.log.splitlines()[-1].startswith("scrapy resume: ")
    assert "Traceback" not in done.log
