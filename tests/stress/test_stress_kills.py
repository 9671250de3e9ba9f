"""Hundreds of kills at random moments; ``make stress``, with STRESS_KILLS for more."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.acceptance.conftest import Reference
from tests.acceptance.forkserver import ForkServer
from tests.acceptance.gauntlet import PAGES, ROWS, SPIDERS, Tally, benches, random_kills

KILLS = int(os.environ.get("STRESS_KILLS", "25"))


@pytest.mark.stress
@pytest.mark.parametrize("spider", SPIDERS)
def test_stress_random_kills(
    spider: str,
    tmp_path: Path,
    database_url: str,
    forks: ForkServer | None,
    reference: Reference,
    tally: Tally,
) -> None:
    """50 kills on each database, half of them of each kind of spider."""
    seed = int(os.environ.get("STRESS_SEED", random.randrange(2**32)))
    print(f"STRESS_SEED={seed}")
    expected = reference(SPIDERS[spider], pages=PAGES, rows=ROWS)
    with benches(tmp_path, database_url, forks, ["stress"]) as made:
        random_kills(made["stress"], spider, expected, tally, kills=KILLS, seed=seed)
