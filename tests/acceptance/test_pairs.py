"""Two things that go wrong at the same moment; ``make stress`` tries all of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from scrapy_resume import faults
from tests.acceptance.conftest import Reference
from tests.acceptance.forkserver import ForkServer
from tests.acceptance.gauntlet import PAGES, ROWS, SPIDERS, Tally
from tests.acceptance.outages import Servers, harmed, struck_bench
from tests.acceptance.pairs import (
    DATABASE,
    KILL,
    PAIRS,
    REDIS,
    STRUCK_AT,
    Pair,
)
from tests.acceptance.test_gauntlet import LOOSE

__all__ = ["harmed"]  # a fixture

SAMPLE = {
    "journal.synced": (KILL, DATABASE),
    "commit.before": (DATABASE, REDIS),
}


@pytest.mark.parametrize("point", SAMPLE)
def test_a_pair(
    point: str,
    tmp_path: Path,
    harmed: Servers,
    forks: ForkServer | None,
    reference: Reference,
    tally: Tally,
) -> None:
    expected = reference(SPIDERS["details"], pages=PAGES, rows=ROWS)
    with struck_bench(tmp_path, harmed, forks, pages=PAGES, rows=ROWS) as bench:
        Pair(bench, harmed, point, SAMPLE[point]).run(expected, tally)


def test_every_pair_is_tried_at_every_fault_point() -> None:
    """But for those of rows without pages, which have no journal and no shard."""
    assert {*STRUCK_AT, *LOOSE} == faults.POINTS
    assert len(PAIRS) == 10
    assert {*SAMPLE.values()} <= {*PAIRS} and {*SAMPLE} <= {*STRUCK_AT}
