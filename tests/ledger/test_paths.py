"""The path table: every path through the engine, in every mode, on both Scrapys."""

from __future__ import annotations

from typing import Any

import pytest

from tests.ledger.paths import PATHS
from tests.ledger.runs import RARE_RUNS, RUNS, finished

IN_EVERY_MODE = pytest.mark.parametrize(
    ("mode", "scrapy"),
    [
        *(pytest.param(*run, id="-".join(run)) for run in RUNS),
        *(pytest.param(*run, id="-".join(run), marks=pytest.mark.stress) for run in RARE_RUNS),
    ],
)


def compared(outcome: Any, expected: dict[str, Any]) -> Any:
    """*outcome* without what *expected* leaves open."""
    if not isinstance(outcome, dict):
        return outcome
    pages = {
        number: {key: page[key] for key in expected["pages"].get(number, page)}
        for number, page in outcome["pages"].items()
    }
    return {**outcome, "pages": pages}


@pytest.mark.parametrize("name", PATHS)
@IN_EVERY_MODE
def test_path(mode: str, scrapy: str, name: str) -> None:
    outcomes, errors = finished(mode, scrapy)
    assert name in outcomes, f"the crawl ended before this path: {errors}"
    found = outcomes[name]
    expected = PATHS[name].expected(mode)
    assert compared(found["outcome"], expected) == expected
    assert found["problems"] == []


@IN_EVERY_MODE
def test_nothing_was_lost_without_a_word(mode: str, scrapy: str) -> None:
    """No task, Deferred or coroutine failed where nobody looked."""
    outcomes, errors = finished(mode, scrapy)
    assert outcomes["the end"]["problems"] == [], errors


def test_the_table_is_whole() -> None:
    assert len(PATHS) >= 82
