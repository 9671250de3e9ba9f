"""Fixtures of the store's conformance suite, which runs over every database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from scrapy_resume.store.engine import Database
from tests.proxy import Proxy
from tests.services import MariaDB
from tests.store.journals import Slot
from tests.store.worlds import World
from tests.tables import database_with_tables


@pytest.fixture
def db(database_url: str) -> Iterator[Database]:
    """A database with the product's tables."""
    database = database_with_tables(database_url)
    yield database
    database.close()


@pytest.fixture
def world(db: Database) -> World:
    """The database with a few short-hands for tasks, claims and records."""
    return World(db)


@pytest.fixture
def mariadb_world(mariadb: MariaDB, mariadb_name: str) -> Iterator[World]:
    """The same on MariaDB only."""
    database = database_with_tables(mariadb.url(mariadb_name))
    yield World(database)
    database.close()


@pytest.fixture
def proxy(mariadb: MariaDB) -> Iterator[Proxy]:
    """A relay in front of MariaDB."""
    relay = Proxy(mariadb.port)
    yield relay
    relay.close()


@pytest.fixture
def relayed(
    mariadb: MariaDB, mariadb_name: str, mariadb_world: World, proxy: Proxy
) -> Iterator[World]:
    """The database of *mariadb_world*, reached through the proxy."""
    database = Database.connect(mariadb.url(mariadb_name, port=proxy.port), network_timeout=2.0)
    yield World(database)
    database.close()


@pytest.fixture
def slot(world: World, tmp_path: Path) -> Slot:
    """The slot of a worker of that database, for its journal."""
    return Slot(world, tmp_path / "slot-0")
