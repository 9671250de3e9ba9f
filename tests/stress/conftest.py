"""The bench of the acceptance tests."""

from __future__ import annotations

from tests.acceptance.conftest import (
    mariadb_bench,
    pytest_sessionfinish,
    pytest_terminal_summary,
    reference,
    site,
    tally,
)

__all__ = [
    "mariadb_bench",
    "pytest_sessionfinish",
    "pytest_terminal_summary",
    "reference",
    "site",
    "tally",
]
