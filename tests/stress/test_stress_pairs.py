"""Every pair of disasters at every fault point; ``make stress``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.conftest import Reference
from tests.acceptance.forkserver import ForkServer
from tests.acceptance.gauntlet import PAGES, ROWS, SPIDERS, Tally
from tests.acceptance.outages import Servers, harmed, struck_bench
from tests.acceptance.pairs import PAIRS, STRUCK_AT, Pair

__all__ = ["harmed"]  # a fixture

pytestmark = pytest.mark.stress


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: ", ".join(pair))
@pytest.mark.parametrize("point", STRUCK_AT)
def test_stress_pair(
    point: str,
    pair: tuple[str, str],
    tmp_path: Path,
    harmed: Servers,
    forks: ForkServer | None,
    reference: Reference,
    tally: Tally,
) -> None:
    expected = reference(SPIDERS["details"], pages=PAGES, rows=ROWS)
    with struck_bench(tmp_path, harmed, forks, pages=PAGES, rows=ROWS) as bench:
        Pair(bench, harmed, point, pair).run(expected, tally)
