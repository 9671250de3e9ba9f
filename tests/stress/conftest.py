"""The bench of the acceptance tests."""

from __future__ import annotations

from tests.acceptance.conftest import (
    forks,
    pytest_sessionfinish,
    pytest_terminal_summary,
    reference,
    tally,
)

__all__ = ["forks", "pytest_sessionfinish", "pytest_terminal_summary", "reference", "tally"]
