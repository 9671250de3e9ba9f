"""Fixtures of the queue's tests: a private Redis, and askers that share one run in it."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator

import pytest
from redis import Redis as Client
from scrapy.settings import Settings

from scrapy_resume.redisclient import RedisClient
from scrapy_resume.settings import ResumeSettings
from scrapy_resume.shardqueue import ShardQueue
from tests.services import Redis

_databases = itertools.count(1)


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("RESUME_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def server(redis_server: Redis) -> Iterator[Redis]:
    """The session's Redis, empty before and well after."""
    redis_server.client().flushall()
    yield redis_server
    redis_server.thaw()
    client = redis_server.client()
    client.config_set("maxmemory", 0)
    client.config_set("maxmemory-policy", "noeviction")
    for user in client.acl_users():
        if user != "default":
            client.acl_deluser(user)
    client.flushall()


@pytest.fixture
def redis_client(server: Redis) -> Client:
    """A client of redis-py, for what the product itself must not do."""
    return server.client()


@pytest.fixture
def database_id() -> str:
    """The id of a database that no other test uses."""
    return f"{next(_databases):012x}"


@pytest.fixture
def client_for(server: Redis) -> Iterator[Callable[[], RedisClient]]:
    """Makes clients as the product does."""
    made: list[RedisClient] = []

    def make() -> RedisClient:
        client = RedisClient.of(ResumeSettings(redis_url=server.url), Settings())
        assert client is not None
        made.append(client)
        return client

    yield make
    for client in made:
        client.close()


@pytest.fixture
def asker(client_for: Callable[[], RedisClient], database_id: str) -> Callable[..., ShardQueue]:
    """Makes askers: each sees the same run of the same database."""

    def make(name: str, run: int = 1, database: str = database_id) -> ShardQueue:
        return ShardQueue(client_for(), database, run, name)

    return make
