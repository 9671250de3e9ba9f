"""``scrapy resume run``: one exit code for each way a crawl may end."""

from __future__ import annotations

from typing import Any

import pytest

from scrapy_resume.commands.run import EXIT_CODES
from scrapy_resume.verdict import Verdict
from tests.acceptance.harness import NUMBERED, Bench, Crawl

PARTS = {
    "keyless": """
        class Rows(Numbered):
            name = 'rows'
            def parse(self, response):
                yield from rows(response)
                yield {"title": "a row without its key"}
        """,
    "blocked": """
        class Rows(Numbered):
            name = 'rows'
            def check_page(self, response, page):
                raise SiteBlocked("it asks who we are")
        """,
    "plain": """
        class Rows(scrapy.Spider):
            name = 'rows'
            start_urls = [SITE + "/list?page=1"]
            def parse(self, response):
                yield from rows(response)
        """,
}


def run(bench: Bench, *words: str, **settings: Any) -> Crawl:
    """``scrapy resume run rows`` to its end."""
    options = [part for name, value in settings.items() for part in ("-s", f"{name}={value}")]
    return bench.run_scrapy("resume", "run", "rows", *words, *options).wait()


def last_line(crawl: Crawl) -> str:
    return crawl.log.splitlines()[-1]


def test_every_verdict_has_a_code_of_its_own() -> None:
    assert EXIT_CODES == {
        "complete": 0,
        "complete_with_rejects": 10,
        "incomplete": 11,
        "blocked": 12,
        "nothing_read": 13,
        "nothing_to_do": 14,
    }
    assert set(EXIT_CODES) == {verdict.value for verdict in Verdict} | {"nothing_to_do"}


@pytest.mark.parametrize("reactor", [True, False])
def test_complete(bench: Bench, reactor: bool) -> None:
    bench.write(NUMBERED)
    crawl = run(
        bench, "-a", "last_page=4", "-o", "rows.jl", "-L", "ERROR",
        TWISTED_REACTOR_ENABLED=reactor,
    )  # fmt: skip
    assert (crawl.code, crawl.log) == (0, "")
    assert (bench.task["verdict"], len(bench.items)) == ("complete", 40)
    assert len((bench.directory / "rows.jl").read_text().splitlines()) == 40


def test_complete_with_a_twisted_reactor(bench: Bench) -> None:
    bench.write(NUMBERED)
    reactor = "twisted.internet.epollreactor.EPollReactor"
    crawl = run(bench, "-L", "DEBUG", TWISTED_REACTOR=reactor)
    assert (crawl.code, bench.task["verdict"]) == (0, "complete")
    assert f"Using reactor: {reactor}" in crawl.log


def test_complete_with_rejects(bench: Bench) -> None:
    bench.write(PARTS["keyless"])
    crawl = run(bench)
    assert (crawl.code, bench.task["verdict"]) == (10, "complete_with_rejects")
    assert last_line(crawl).startswith("scrapy resume: complete_with_rejects: ")


def test_incomplete_and_then_complete(bench: Bench) -> None:
    bench.write(NUMBERED)
    bench.site.behave(page=6, status=500)
    crawl = run(bench)
    assert (crawl.code, bench.task["verdict"]) == (11, None)
    assert last_line(crawl).startswith("scrapy resume: incomplete: 1 shard not done")
    bench.site.heal()
    assert run(bench).code == 0
    assert bench.task["verdict"] == "complete"


def test_blocked(bench: Bench) -> None:
    bench.write(PARTS["blocked"])
    crawl = run(bench)
    assert crawl.code == 12
    assert last_line(crawl).startswith("scrapy resume: blocked: ")


def test_nothing_read(bench: Bench) -> None:
    bench.write(NUMBERED)
    bench.site.behave(path="/list", status=500)
    crawl = run(bench)
    assert crawl.code == 13
    assert last_line(crawl).startswith("scrapy resume: nothing_read: ")


def test_nothing_to_do_here(bench: Bench) -> None:
    bench.write(NUMBERED)
    crawl = run(bench, RESUME_RUN="resume")
    assert crawl.code == 14
    assert "has no unfinished run to resume" in last_line(crawl)


@pytest.mark.parametrize(
    ("words", "settings", "said"),
    [
        ((), {"RESUME_LEASE": "soon"}, "RESUME_LEASE is 'soon'; allowed is"),
        ((), {"JOBDIR": "job"}, "JOBDIR is set; it must not be"),
        (("-a", "last_page=ten"), {}, "the spider has last_page='ten'; it must be"),
        ((), {"RESUME_ENABLED": "False"}, "the crawl of rows has no verdict"),
    ],
    ids=["setting", "jobdir", "argument", "off"],
)
def test_a_refusal_is_one_line_and_no_traceback(
    bench: Bench, words: tuple[str, ...], settings: dict[str, str], said: str
) -> None:
    bench.write(NUMBERED)
    crawl = run(bench, *words, **settings)
    assert crawl.code == 1
    assert last_line(crawl).startswith(f"scrapy resume: {said}")
    assert "Traceback" not in crawl.log


def test_a_spider_without_the_mixin_has_no_verdict(bench: Bench) -> None:
    bench.write(PARTS["plain"])
    crawl = run(bench)
    assert crawl.code == 1
    assert "the crawl of rows has no verdict (finish reason: finished)" in last_line(crawl)


def test_an_unknown_spider(bench: Bench) -> None:
    bench.write(NUMBERED)
    crawl = bench.run_scrapy("resume", "run", "row").wait()
    assert crawl.code == 1
    assert last_line(crawl) == (
        "scrapy resume: there is no spider 'row' in this project; did you mean rows?"
    )
    assert "Traceback" not in crawl.log


def test_a_wrong_feed_is_a_usage_error(bench: Bench) -> None:
    bench.write(NUMBERED)
    crawl = run(bench, "-o", "rows:nothing")
    assert crawl.code == 2
    assert bench.site.requests == []
