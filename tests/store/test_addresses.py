"""Database URLs: what is refused before any network access, and what never shows."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import pymysql
import pytest
from sqlalchemy.engine import URL

from scrapy_resume.exceptions import ConfigurationError
from scrapy_resume.store import address, connections, migrate
from scrapy_resume.store.engine import Database
from tests.services import MariaDB
from tests.store.worlds import World, item, page

SECRET = "c4nary-p4ss"


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("mysql+pymysql://u:p@ss@db/x", "write it as %40"),
        ("mysql+pymysql://u:pw@db", "the database's name is missing"),
        ("postgresql://u:pw@db/x", "allowed are sqlite and mysql"),
        ("nonsense", "is not a database URL"),
        ("", "is not a database URL"),
    ],
)
def test_a_url_that_cannot_work(url: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as caught:
        Database.connect(url)
    assert "pw" not in str(caught.value)
    assert "p@ss" not in str(caught.value)


@pytest.mark.parametrize("url", ["mysql://u:pw@h/d", "mariadb+pymysql://u:pw@h/d"])
def test_other_names_of_mysql(url: str) -> None:
    db = Database.connect(url)
    assert (db.dialect, db.engine.dialect.driver) == ("mysql", "pymysql")
    assert db.redacted_url == "mysql+pymysql://u:***@h/d"


def test_the_shown_url_holds_no_secret() -> None:
    url = f"mysql+pymysql://u:{SECRET}@[::1]:3306/d?ssl_key=/k&password={SECRET}&x={SECRET}"
    db = Database.connect(url)
    assert db.redacted_url == "mysql+pymysql://u:***@[::1]:3306/d"
    assert repr(db) == f"<Database {db.redacted_url}>"


def test_a_prefix_that_names_no_table() -> None:
    with pytest.raises(ConfigurationError, match="RESUME_TABLE_PREFIX is 'a-b'"):
        Database.connect("sqlite:////tmp/x.db", prefix="a-b")


def test_tls_is_not_set_up_unless_asked_for() -> None:
    plain = address.connect_args(address.parse("mysql://u@h/d"), 15.0)
    asked = address.connect_args(address.parse("mysql://u@h/d?ssl_ca=/ca.pem"), 15.0)
    assert (plain["ssl_disabled"], asked["ssl_disabled"]) == (True, False)
    assert (plain["charset"], plain["read_timeout"]) == ("utf8mb4", 15.0)
    own = address.connect_args(address.parse("mysql://u@h/d?read_timeout=60&charset=latin1"), 15.0)
    assert "read_timeout" not in own
    assert own["charset"] == "utf8mb4"


@pytest.mark.parametrize(
    "error",
    [
        pymysql.err.OperationalError(3159, "Connections using insecure transport are prohibited"),
        RuntimeError("'cryptography' package is required for caching_sha2_password"),
    ],
)
def test_tls_is_tried_when_the_server_wants_it(error: Exception) -> None:
    calls: list[dict[str, Any]] = []

    class Dialect:
        def connect(self, **params: Any) -> SimpleNamespace:
            calls.append(params)
            if params["ssl_disabled"]:
                raise error
            return SimpleNamespace(_read_timeout=params["read_timeout"])

    given = {"ssl_disabled": True, "read_timeout": 15.0, "connect_timeout": 5.0}
    connection = connections._connect_mysql(Dialect(), None, (), given)
    assert [params["ssl_disabled"] for params in calls] == [True, False]
    # The greeting of a frozen server is not waited for as long as an answer.
    assert [params["read_timeout"] for params in calls] == [5.0, 5.0]
    assert connection._read_timeout == 15.0


PASSWORDS = ["p@ss", "p/w", "a#b", "a:b", "100%", "ö ü", "日本", " lead", "a?b", "'\"\\"]


@pytest.mark.parametrize("password", PASSWORDS)
def test_passwords_of_any_kind(mariadb: MariaDB, mariadb_name: str, password: str) -> None:
    mariadb.execute("CREATE OR REPLACE USER odd@'127.0.0.1' IDENTIFIED BY %s", password)
    mariadb.execute(f"GRANT ALL ON `{mariadb_name}`.* TO odd@'127.0.0.1'")
    escaped = f"mysql+pymysql://odd:{quote(password, safe='')}@127.0.0.1:{mariadb.port}"
    built = URL.create("mysql+pymysql", "odd", password, "127.0.0.1", mariadb.port, mariadb_name)
    for url in (f"{escaped}/{mariadb_name}", built):
        db = Database.connect(url)
        with db.read() as conn:
            assert conn.exec_driver_sql("SELECT 1").scalar() == 1
        assert db.redacted_url == f"mysql+pymysql://odd:***@127.0.0.1:{mariadb.port}/{mariadb_name}"
        db.close()


@pytest.fixture
def ipv6_server(tmp_path: Path) -> Iterator[MariaDB]:
    server = MariaDB(tmp_path / "mariadb6", host="::1")
    server.start()
    yield server
    server.discard()


def test_ipv6(ipv6_server: MariaDB) -> None:
    ipv6_server.execute("CREATE DATABASE six")
    url = ipv6_server.url("six")
    assert "@[::1]:" in url
    db = Database.connect(url)
    migrate.ensure_schema(db)
    world = World(db)
    (one,) = world.claim(world.plan(1))
    assert world.commit(page(one, 1)).written == 2
    assert "[::1]" in db.redacted_url
    db.close()


def test_no_parameter_is_in_any_error(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    (one,) = world.claim(world.plan(1))
    secret = item(f"key-{SECRET}", token=SECRET)
    with pytest.raises(Exception, match="resume_") as caught, world.db.transaction() as conn:
        conn.execute(world.db.tables.item.insert(), [{**secret.values, "no_such": SECRET}])
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    secret.values["payload"] = None
    bad = item("x" * 600 + SECRET, token=SECRET)
    world.commit(page(one, 1, secret, bad, cursor=f'"{SECRET}"'))
    with pytest.raises(Exception, match="resume_") as caught, world.db.transaction() as conn:
        conn.execute(world.db.tables.task_shard.update().values(cursor=SECRET, status=SECRET))
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    assert SECRET not in caplog.text
    errors = world.sql("SELECT error_class, error FROM resume_quarantine")
    assert len(errors) == 2
    assert SECRET not in str(errors)


def test_a_refused_value_is_not_repeated_in_its_error(world: World) -> None:
    if world.db.dialect == "sqlite":
        return
    from scrapy_resume.store import checkpoints
    from scrapy_resume.store.items import ItemTable, ItemWriter, Row

    world.sql("CREATE TABLE t (id INTEGER NOT NULL PRIMARY KEY, at DATETIME, n INTEGER,"
              " a VARCHAR(90) CHARACTER SET latin1, u VARCHAR(90), UNIQUE (u))")  # fmt: skip
    world.sql(f"INSERT INTO t (id, u) VALUES (1, '{SECRET}')")
    writer = ItemWriter(world.db, [ItemTable("t", ["id"], update=None)])
    refused = [{"at": SECRET}, {"n": SECRET}, {"a": f"{SECRET}日本"}, {"u": "x" * 100 + SECRET}]
    for values in refused:
        rows = [Row("t", (2,), {"id": 2, **values})]
        assert checkpoints.store_rows(world.db, rows, writer=writer).written == 0
    errors = world.sql("SELECT error FROM resume_quarantine")
    assert len(errors) == 4
    assert SECRET not in str(errors), errors
