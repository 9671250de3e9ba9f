"""Fixtures of the store's conformance suite, which runs over every database."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from scrapy_resume.store import migrate
from scrapy_resume.store.engine import Database
from tests.store.worlds import World


@pytest.fixture
def db(database_url: str) -> Iterator[Database]:
    """A database with the product's tables."""
    database = Database.connect(database_url)
    migrate.ensure_schema(database)
    yield database
    database.close()


@pytest.fixture
def world(db: Database) -> World:
    """The database with a few short-hands for tasks, claims and records."""
    return World(db)
