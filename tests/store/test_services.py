"""The servers that the tests start: they stop, die, freeze and come back."""

from __future__ import annotations

from pathlib import Path

import pymysql
import pytest
import redis

from tests.services import MariaDB, Redis


def test_mariadb_dies_and_comes_back_with_what_was_committed(tmp_path: Path) -> None:
    server = MariaDB(tmp_path / "mariadb")
    server.start()
    server.execute("CREATE DATABASE kept")
    server.kill()
    with pytest.raises(pymysql.err.OperationalError):
        server.connect()
    server.start()
    server.freeze()
    server.thaw()
    assert ("kept",) in server.execute("SHOW DATABASES")
    assert server.connections() == 0
    server.stop()
    assert server.process is not None
    assert server.process.returncode == 0
    data = server.data
    server.discard()
    assert not data.exists()


def test_redis_dies_and_comes_back_empty(redis_server: Redis) -> None:
    redis_server.client().set("key", "value")
    redis_server.kill()
    with pytest.raises(redis.ConnectionError):
        redis_server.client().ping()
    redis_server.start()
    assert redis_server.client().get("key") is None
    redis_server.freeze()
    impatient = redis.Redis(host=redis_server.host, port=redis_server.port, socket_timeout=0.2)
    with pytest.raises(redis.TimeoutError):
        impatient.ping()
    redis_server.thaw()
    assert redis_server.client().ping()
