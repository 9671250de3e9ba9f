"""All paths: importing this module fills the table."""

from __future__ import annotations

from tests.ledger import (
    paths_callbacks,
    paths_downloads,
    paths_duplicates,
    paths_errbacks,
    paths_filters,
    paths_injected,
    paths_items,
    paths_middlewares,
    paths_pages,
    paths_retries,
)
from tests.ledger.table import PATHS

__all__ = [
    "PATHS",
    "paths_callbacks",
    "paths_downloads",
    "paths_duplicates",
    "paths_errbacks",
    "paths_filters",
    "paths_injected",
    "paths_items",
    "paths_middlewares",
    "paths_pages",
    "paths_retries",
]
