"""Servers that are stopped in the middle of a crawl, and how fast it goes meanwhile."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from example_project.site import Site

from tests.acceptance.forkserver import ForkServer
from tests.acceptance.harness import NUMBERED, Bench, wait_until
from tests.services import MariaDB, Redis

# Stores say after a moment, and not after many seconds, that the database is away.
QUICK = """\
import scrapy_resume.store.repeats as repeats

repeats.AWAY_FOR = 0.3
"""
SETTINGS: dict[str, Any] = {
    "RESUME_LEASE": 1.0,
    "RESUME_HEARTBEAT": 0.2,
    "RESUME_MAX_WAIT": 5,
    "RESUME_SHARDS": 4,
    "RESUME_PAGES_IN_FLIGHT": 2,
}
_numbers = itertools.count(1)


@dataclass
class Servers:
    """A database and a Redis that may be harmed."""

    mariadb: MariaDB
    redis: Redis

    def back(self) -> None:
        """Start what was stopped."""
        for server in (self.mariadb, self.redis):
            if server.process is None or server.process.poll() is not None:
                server.start()


@pytest.fixture(scope="module")
def harmed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Both, running, for the tests of one module."""
    directory = tmp_path_factory.mktemp("servers")
    made = Servers(MariaDB(directory / "mariadb"), Redis(directory / "redis"))
    made.back()
    yield made
    made.mariadb.discard()
    made.redis.discard()


@contextmanager
def struck_bench(
    directory: Path, made: Servers, forks: ForkServer | None, *, pages: int, rows: int
) -> Iterator[Bench]:
    """A project of its own in a database of its own."""
    name = f"struck_{next(_numbers)}"
    made.mariadb.execute(f"CREATE DATABASE {name}")
    with Site(pages=pages, rows=rows) as site:
        bench = Bench(directory / name, made.mariadb.url(name), site, "p_", forks)
        try:
            yield bench
        finally:
            made.back()
            site.heal()
            bench.end()
            print(bench.logs())
            made.mariadb.execute(f"DROP DATABASE {name}")


class Outage:
    """A crawl of *pages* list pages in *shards* shards, and a database that goes away."""

    def __init__(self, bench: Bench, mariadb: MariaDB, pages: int, shards: int) -> None:
        self.bench, self.mariadb, self.pages = bench, mariadb, pages
        spider = f"{NUMBERED}    last_page = {pages}\n    shard_pages = {-(-pages // shards)}\n"
        bench.settings = SETTINGS
        bench.write(spider, settings=QUICK)

    @property
    def asked(self) -> int:
        """How many list pages the site was asked for so far."""
        return len(self.bench.site.requests)

    def begin(self, after: int) -> None:
        """Stop the database, the hard way, once the site was asked for *after* pages."""
        wait_until(lambda: self.asked >= after, timeout=60)
        self.bench.database.close()
        self.mariadb.kill()

    def end(self) -> None:
        """Start it again, unless it runs; what it holds is what was committed."""
        if self.mariadb.process is None or self.mariadb.process.poll() is not None:
            self.mariadb.start()

    def pace(self, seconds: float) -> float:
        """Pages per second that the site is asked for in the *seconds* from now."""
        before = self.asked
        time.sleep(seconds)
        return (self.asked - before) / seconds

    def assert_whole(self) -> None:
        """The run is complete, nothing is lost, and no page was read twice."""
        self.bench.assert_complete(self.bench.items)
        assert sorted(self.bench.items) == sorted(self.bench.site.listing.keys)

    def read_again(self) -> list[int]:
        """The pages that the site was asked for more than once."""
        pages = self.bench.site.pages()
        return sorted({page for page in pages if pages.count(page) > 1})
