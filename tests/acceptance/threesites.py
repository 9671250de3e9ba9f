"""A fleet of three workers that reads three sites, one of which blocks for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from example_project.site import Rule, Site

from tests.acceptance.harness import Bench, Crawl

ROWS, WORKERS = 2, 3
SPIDER = """\
from urllib.parse import urlsplit

PLAN = eval(os.environ["PLAN"])


class Rows(ResumeSpiderMixin, scrapy.Spider):
    name = 'rows'
    item_key = "key"

    def plan(self):
        for first in range(1, max(pages for _, pages, _ in PLAN) + 1, PLAN[0][2]):
            for number, (url, pages, size) in enumerate(PLAN):
                if first <= pages:
                    last = first + size - 1
                    yield Shard(f"{number}-{first}", first, last, site=f"site-{number}", spec=url)

    def page_request(self, page):
        return Request(f"{page.shard.spec}/list?page={page.number}")

    def parse(self, response):
        for row in rows(response):
            yield {**row, "key": f"{urlsplit(response.url).port}-{row['key']}"}
"""


@dataclass
class Block:
    """What reaches the blocked site: how many requests are on their way as each comes in."""

    site: Site
    rule: Rule
    on_their_way: list[int]

    def lift(self) -> None:
        self.rule.heal()


class ThreeSites:
    """The sites, and the fleet. The first site is the one that may block."""

    def __init__(self, bench: Bench, sites: list[Site], size: int) -> None:
        self.bench, self.sites, self.size = bench, sites, size
        self.pages = [len(site.listing.rows) // ROWS for site in sites]
        plan = [(site.url, pages, size) for site, pages in zip(sites, self.pages, strict=True)]
        bench.env["PLAN"] = repr(plan)
        bench.write(SPIDER)

    def start(self, **settings: Any) -> list[Crawl]:
        """The three workers, each on a machine of its own."""
        return [self.bench.start(home=f"machine-{n}", **settings) for n in range(WORKERS)]

    def block(self, delay: float) -> Block:
        """From now on the first site refuses all its lists, each after *delay* seconds."""
        site, counts = self.sites[0], list[int]()

        def seen(request: object) -> bool:
            counts.append(sum(one.status is None for one in list(site.requests)))
            return True

        rule = site.behave(path="/list", status=403, delay=delay, when=seen)
        return Block(site, rule, counts)

    def shards(self, number: int) -> list[Any]:
        """The shards of one site."""
        return [row for row in self.bench.shards if row["site"] == f"site-{number}"]

    def is_read(self, number: int) -> bool:
        """Is every page of the site stored?"""
        shards = self.shards(number)
        return bool(shards) and all(row["status"] == "done" for row in shards)

    @property
    def served(self) -> dict[str, dict[int, list[str]]]:
        """What the sites serve, by shard and page."""
        served = {}
        for number, (site, pages) in enumerate(zip(self.sites, self.pages, strict=True)):
            for first in range(1, pages + 1, self.size):
                served[f"{number}-{first}"] = {
                    page: [f"{site.port}-{key}" for key in site.listing.keys[at : at + ROWS]]
                    for page in range(first, first + self.size)
                    for at in [(page - 1) * ROWS]
                }
        return served

    def assert_complete(self) -> None:
        """Every page of every site is stored, and no shard spent an attempt."""
        self.bench.assert_sound(self.served)
        assert self.bench.task["verdict"] == "complete", self.bench.task["reason"]
        assert len(self.bench.items) == ROWS * sum(self.pages)
        assert {row["attempt_count"] for row in self.bench.shards} == {0}


@contextmanager
def three_sites(
    bench: Bench, pages: tuple[int, int, int], *, size: int, delay: float
) -> Iterator[ThreeSites]:
    """Sites with so many *pages*, read by shards of *size*, that answer after *delay* seconds."""
    sites = [Site(pages=count, rows=ROWS, delay=delay) for count in pages]
    try:
        yield ThreeSites(bench, [site.start() for site in sites], size)
    finally:
        for site in sites:
            site.heal()
        bench.end()
        for site in sites:
            site.stop()
