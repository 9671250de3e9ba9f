"""A bench for each test, on each database, and the tables that undisturbed runs leave."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from example_project.site import Site

from tests.acceptance.forkserver import ForkServer
from tests.acceptance.gauntlet import Tally
from tests.acceptance.harness import Bench
from tests.proxy import Proxy
from tests.services import MariaDB

Reference = Callable[..., dict[str, str]]

_numbers = itertools.count(1)


@pytest.fixture
def site() -> Iterator[Site]:
    """12 pages of 10 rows unless a test changes them."""
    with Site() as site:
        yield site


@pytest.fixture
def proxy(mariadb: MariaDB) -> Iterator[Proxy]:
    """A relay in front of MariaDB that holds, drops or cuts what a test says."""
    relay = Proxy(mariadb.port)
    yield relay
    relay.close()


@pytest.fixture
def bench(
    tmp_path: Path, database_url: str, site: Site, forks: ForkServer | None
) -> Iterator[Bench]:
    """A project on each database in turn."""
    yield from _bench(tmp_path, database_url, site, forks)


@pytest.fixture
def sqlite_bench(
    tmp_path: Path, sqlite_url: str, site: Site, forks: ForkServer | None
) -> Iterator[Bench]:
    """A project on SQLite, for what the database has no part in."""
    yield from _bench(tmp_path, sqlite_url, site, forks)


@pytest.fixture
def mariadb_bench(
    tmp_path: Path, mariadb: MariaDB, mariadb_name: str, site: Site, forks: ForkServer | None
) -> Iterator[Bench]:
    """A project on MariaDB, for what only a server does."""
    yield from _bench(tmp_path, mariadb.url(mariadb_name), site, forks)


def _bench(directory: Path, url: str, site: Site, forks: ForkServer | None) -> Iterator[Bench]:
    bench = Bench(directory / "project", url, site, f"t{next(_numbers)}_", forks)
    try:
        yield bench
    finally:
        site.heal()
        bench.end()
        print(bench.logs())  # shown when the test fails


@pytest.fixture(scope="session")
def reference(tmp_path_factory: pytest.TempPathFactory, forks: ForkServer | None) -> Reference:
    """The item table after one undisturbed run of a spider over such a site (REF)."""
    known: dict[object, dict[str, str]] = {}

    def run(spiders: str, *args: str, pages: int = 12, rows: int = 10) -> dict[str, str]:
        key = (spiders, args, pages, rows)
        if key not in known:
            home = tmp_path_factory.mktemp("reference")
            with Site(pages=pages, rows=rows) as site:
                url = f"sqlite:///{home / 'resume.db'}"
                bench = Bench(home / "project", url, site, "ref_", forks)
                bench.write(spiders)
                crawl = bench.crawl("rows", *args)
                assert bench.tasks and bench.task["verdict"] == "complete", crawl.tail
                known[key] = bench.items
        return dict(known[key])

    return run


_tally = Tally()


@pytest.fixture(scope="session")
def tally() -> Tally:
    """Counts the kills of a test run; shown at its end."""
    return _tally


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Beside other test processes a failure here counts if it happens twice.

    These tests kill and freeze real processes, and have limits of time that a machine busy with
    all of them at once may miss. What was run again is listed as "rerun", and a file that is run
    by itself is not.
    """
    if "PYTEST_XDIST_WORKER" in os.environ:
        for item in items:
            if item.path.is_relative_to(Path(__file__).parent):
                item.add_marker(pytest.mark.flaky(reruns=1))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _tally.counts:
        terminalreporter.write_line(str(_tally))
        _tally.counts.clear()  # once, even if the stress tests' conftest asks too


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker of pytest-xdist has no terminal of its own."""
    if _tally.counts and hasattr(session.config, "workeroutput"):
        capture = session.config.pluginmanager.getplugin("capturemanager")
        with capture.global_and_fixture_disabled():
            print(f"\n{_tally}", file=sys.stderr)
        _tally.counts.clear()
