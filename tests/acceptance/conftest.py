"""A bench for each test, on each database, and the tables that undisturbed runs leave."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from example_project.site import Site

from tests.acceptance.harness import Bench

Reference = Callable[..., dict[str, str]]

_numbers = itertools.count(1)


@pytest.fixture
def site() -> Iterator[Site]:
    """12 pages of 10 rows unless a test changes them."""
    with Site() as site:
        yield site


@pytest.fixture
def bench(tmp_path: Path, database_url: str, site: Site) -> Iterator[Bench]:
    """A project on each database in turn."""
    yield from _bench(tmp_path, database_url, site)


@pytest.fixture
def sqlite_bench(tmp_path: Path, sqlite_url: str, site: Site) -> Iterator[Bench]:
    """A project on SQLite, for what the database has no part in."""
    yield from _bench(tmp_path, sqlite_url, site)


def _bench(directory: Path, url: str, site: Site) -> Iterator[Bench]:
    bench = Bench(directory / "project", url, site, f"t{next(_numbers)}_")
    try:
        yield bench
    finally:
        site.heal()
        bench.end()
        print(bench.logs())  # shown when the test fails


@pytest.fixture(scope="session")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    """The item table after one undisturbed run of a spider over such a site (REF)."""
    known: dict[object, dict[str, str]] = {}

    def run(spiders: str, *args: str, pages: int = 12, rows: int = 10) -> dict[str, str]:
        key = (spiders, args, pages, rows)
        if key not in known:
            home = tmp_path_factory.mktemp("reference")
            with Site(pages=pages, rows=rows) as site:
                bench = Bench(home / "project", f"sqlite:///{home / 'resume.db'}", site, "ref_")
                bench.write(spiders)
                crawl = bench.crawl("rows", *args)
                assert bench.tasks and bench.task["verdict"] == "complete", crawl.tail
                known[key] = bench.items
        return dict(known[key])

    return run
