"""Fixtures that every tier shares: real servers and a fresh database for each test."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.forkserver import ForkServer
from tests.services import MariaDB, Redis

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDB]:
    """A private MariaDB server, shared by the session; a test that harms it heals it."""
    server = MariaDB(tmp_path_factory.mktemp("mariadb"))
    server.start()
    yield server
    server.discard()


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Redis]:
    """A private Redis server, shared by the session."""
    server = Redis(tmp_path_factory.mktemp("redis"))
    server.start()
    yield server
    server.discard()


@pytest.fixture(scope="session")
def forks() -> Iterator[ForkServer | None]:
    """Starts most crawls; none while coverage is measured, which follows real starts only."""
    if any(name.startswith("COVERAGE_PROCESS") for name in os.environ):
        yield None
        return
    server = ForkServer(Path(__file__).parents[1])
    yield server
    server.close()


@pytest.fixture
def mariadb_name(mariadb: MariaDB) -> Iterator[str]:
    """The name of a fresh, empty MariaDB database."""
    name = f"resume_{os.getpid()}_{next(_numbers)}"
    mariadb.execute(f"CREATE DATABASE `{name}`")
    yield name
    mariadb.execute(f"DROP DATABASE IF EXISTS `{name}`")


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """The address of an SQLite file that does not exist yet."""
    return f"sqlite:///{tmp_path / 'resume.db'}"


@pytest.fixture(params=["sqlite", "mariadb"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a fresh, empty database, of each kind in turn."""
    if request.param == "sqlite":
        return str(request.getfixturevalue("sqlite_url"))
    server: MariaDB = request.getfixturevalue("mariadb")
    return server.url(request.getfixturevalue("mariadb_name"))
