"""SIGKILL while pages are written to the journal, and while what it holds is stored."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.conftest import Reference
from tests.acceptance.forkserver import ForkServer
from tests.acceptance.gauntlet import PAGES, ROWS, SPIDERS, Run, Tally, benches, taken_over
from tests.acceptance.harness import Bench
from tests.acceptance.test_gauntlet import JOURNAL
from tests.services import MariaDB

# One after the other, in one run: each start has what the one before it left.
IN_ORDER = (
    "journal.append:2", "journal.synced:2", "replay.before:1", "replay.settled:1",
    "journal.trimmed:1",
)  # fmt: skip


@pytest.fixture
def run(
    tmp_path: Path, mariadb: MariaDB, mariadb_name: str, forks: ForkServer | None, tally: Tally
) -> Iterator[Run]:
    """A crawl that is killed again and again, with a journal."""
    with benches(tmp_path, mariadb.url(mariadb_name), forks, ["journal"]) as made:
        yield Run(made["journal"], "details", tally)


def test_killed_while_the_journal_is_written_and_read(run: Run, reference: Reference) -> None:
    for fault in IN_ORDER:
        run.killed_at(fault)
    run.finish(reference(SPIDERS["details"], pages=PAGES, rows=ROWS))


def test_killed_while_lost_pages_are_salvaged(run: Run, reference: Reference) -> None:
    """Another machine has taken the shards over, and has not read those pages again so far."""
    bench = run.bench
    run.killed_at("journal.synced:2")
    assert bench.journalled()
    other = taken_over(bench)
    before = bench.snapshot()
    bench.crawl_killed("salvage.before:1")
    assert bench.snapshot().items == before.items
    salvaged = bench.start()
    salvaged.wait_until_logged("was replayed: ")
    assert len(bench.snapshot().items) > len(before.items)
    assert salvages(bench)
    bench.site.heal()
    for crawl in (other, salvaged):
        assert crawl.wait().finish_reason == "finished", crawl.tail
    run.finish(reference(SPIDERS["details"], pages=PAGES, rows=ROWS))
    assert bench.journalled() == set()


def salvages(bench: Bench) -> list[Any]:
    return [act for act in bench.snapshot().operations if act["kind"] == "salvage"]


def test_these_are_all_points_of_the_journal() -> None:
    assert {fault.partition(":")[0] for fault in IN_ORDER} | {"salvage.before"} == {*JOURNAL}
