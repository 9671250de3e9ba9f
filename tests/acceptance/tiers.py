"""What every run of the tests tries, and what is left to ``make stress``."""

from __future__ import annotations

from typing import Any

import pytest


def rarely(*values: Any, id: str | None = None) -> Any:
    """A case of ``parametrize`` that says hardly more than the others do."""
    return pytest.param(*values, marks=pytest.mark.stress, id=id)


def mostly_on(database: str) -> pytest.MarkDecorator:
    """For a test that the database has little part in: the other one has its turn rarely."""
    cases = [one if one == database else rarely(one) for one in ("sqlite", "mariadb")]
    return pytest.mark.parametrize("database_url", cases, indirect=True)
