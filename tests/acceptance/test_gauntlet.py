"""SIGKILL at every fault point, and at random moments, on every database."""

from __future__ import annotations

import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from scrapy_resume import faults
from tests.acceptance.conftest import Reference
from tests.acceptance.forkserver import ForkServer
from tests.acceptance.gauntlet import (
    IN_FLIGHT,
    PAGES,
    ROWS,
    SETTINGS,
    SPIDERS,
    Run,
    Tally,
    benches,
    random_kills,
)
from tests.acceptance.harness import Bench
from tests.acceptance.tiers import mostly_on, rarely

# How often a point is passed when the process is killed at it.
PASSES: dict[str, tuple[int, ...]] = {
    "page.response": (1, 8),
    "page.item": (2, 17),
    "page.complete": (1, 7),
    "commit.begin": (1, 4),
    "commit.fenced": (1, 4),
    "commit.items": (1, 4),
    "commit.before": (1, 4),
    "commit.after": (1, 4),
    "commit.acked": (1, 4),
    "claim.begin": (1, 2),
    "claim.before": (1, 2),
    "claim.after": (1, 2),
    "plan.before": (1,),
    "renew.before": (1, 3),
    "finish.before": (1, 2),
}
# Outside the database's code: on the one that goes through the journal too.
ANY_DATABASE = ("page.response", "page.item", "page.complete", "commit.acked", "renew.before")
CASES = [
    (point, database)
    for point in sorted(PASSES)
    for database in ("sqlite", "mariadb")
    if point not in ANY_DATABASE or database == "mariadb"
]
# Passed when an earlier process left something behind: here, and on another machine.
REAPING = ("reap.selected", "reap.before")
# Passed by rows of no page alone: see test_pipeline_alone.py.
LOOSE = ("batch.before", "batch.after")


# Passed where there is a journal: see test_gauntlet_journal.py.
JOURNAL = (
    "journal.append", "journal.synced", "journal.trimmed",
    "replay.before", "replay.settled", "salvage.before",
)  # fmt: skip


def test_every_fault_point_is_in_the_gauntlet() -> None:
    assert {*PASSES, *REAPING, *LOOSE, *JOURNAL} == faults.POINTS


def through(
    point: str, passes: int, bench: Bench, spider: str, reference: dict[str, str], tally: Tally
) -> None:
    run = Run(bench, spider, tally)
    if point == "renew.before":
        bench.site.delay = 0.1
    run.killed_at(f"{point}:{passes}")
    bench.site.delay = 0
    run.finish(reference)


@pytest.mark.parametrize(("point", "database_url"), CASES, indirect=["database_url"])
def test_killed_at(
    point: str,
    tmp_path: Path,
    database_url: str,
    forks: ForkServer | None,
    reference: Reference,
    tally: Tally,
) -> None:
    expected = reference(SPIDERS["details"], pages=PAGES, rows=ROWS)
    names = [f"{point}:{passes}" for passes in PASSES[point]]
    with benches(tmp_path, database_url, forks, names) as made, ThreadPoolExecutor(2) as pool:
        jobs = [
            pool.submit(through, point, passes, made[name], "details", expected, tally)
            for name, passes in zip(names, PASSES[point], strict=True)
        ]
    for job in jobs:
        job.result()


@pytest.mark.parametrize("point", REAPING)
@pytest.mark.parametrize(
    ("database_url", "home"),
    [
        ("sqlite", "home"),
        rarely("sqlite", "another machine"),  # hardly ever a file is shared by machines
        ("mariadb", "home"),
        ("mariadb", "another machine"),
    ],
    indirect=["database_url"],
)
def test_killed_while_taking_back_what_a_dead_process_held(
    point: str,
    home: str,
    tmp_path: Path,
    database_url: str,
    forks: ForkServer | None,
    reference: Reference,
    tally: Tally,
) -> None:
    expected = reference(SPIDERS["details"], pages=PAGES, rows=ROWS)
    with benches(tmp_path, database_url, forks, [point]) as made:
        run = Run(made[point], "details", tally)
        run.killed_at("commit.before:3")
        before = made[point].snapshot()
        run.killed_at(f"{point}:{_with_rows(point, home)}", home=home)
        assert made[point].snapshot().operations == before.operations
        run.finish(expected)


def _with_rows(point: str, home: str) -> int:
    # Another machine passes the first when it starts, and finds nothing of its own there.
    return 2 if point == "reap.selected" and home != "home" else 1


@pytest.mark.parametrize(
    ("database_url", "spider"),
    [
        ("sqlite", "chain"),
        ("mariadb", "details"),
        rarely("sqlite", "details"),
        rarely("mariadb", "chain"),
    ],
    indirect=["database_url"],
)
def test_killed_at_random_moments(
    spider: str,
    tmp_path: Path,
    database_url: str,
    forks: ForkServer | None,
    reference: Reference,
    tally: Tally,
) -> None:
    expected = reference(SPIDERS[spider], pages=PAGES, rows=ROWS)
    seed = zlib.crc32(f"{spider} {database_url[:6]}".encode())
    with benches(tmp_path, database_url, forks, ["random"]) as made:
        random_kills(made["random"], spider, expected, tally, kills=4, seed=seed)


@mostly_on("mariadb")
def test_a_crawl_under_three_kinds_of_faults(
    tmp_path: Path,
    database_url: str,
    forks: ForkServer | None,
    reference: Reference,
    tally: Tally,
) -> None:
    """Killed before, within and after a commit, one after the other, in one run."""
    expected = reference(SPIDERS["chain"], pages=PAGES, rows=ROWS)
    with benches(tmp_path, database_url, forks, ["chain"]) as made:
        run = Run(made["chain"], "chain", tally)
        # With a journal a slow commit lets so much be read that too little is left for the rest.
        faulty: dict[str, Any] = {
            "RESUME_COMMIT_PAGES": 1, "RESUME_COMMIT_DELAY": 0, "RESUME_JOURNAL": False
        }  # fmt: skip
        for fault in ("commit.after:2", "commit.items:3", "page.complete:2", "commit.before:2"):
            run.killed_at(fault, **faulty)
        run.finish(expected)


def test_the_pages_in_flight_are_bounded(bench: Bench) -> None:
    """A page keeps its slot until it is stored or journalled: what is not durable is not much."""
    bench.write(SPIDERS["details"])
    bench.settings = {**SETTINGS, "RESUME_COMMIT_DELAY": 60, "RESUME_COMMIT_PAGES": 1000}
    point = "commit.begin" if bench.database.dialect == "sqlite" else "journal.append"
    crawl = bench.start(RESUME_FAULT=f"{point}:1:sleep=60")
    bench.site.wait_for(page=6)
    time.sleep(1)  # while it sleeps nothing more may be asked for
    pages = bench.site.pages()
    crawl.kill()
    assert len(pages) <= SETTINGS["RESUME_SHARDS"] * IN_FLIGHT
    assert bench.committed() == set()
