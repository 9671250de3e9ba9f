"""The SQL itself: upserts by dialect and version, and how many statements reach the server."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import Column, MetaData, String, Table
from sqlalchemy.dialects import mysql, sqlite

from scrapy_resume.page import Shard
from scrapy_resume.store import cursors
from scrapy_resume.store.items import ItemTable, ItemWriter, Row
from scrapy_resume.store.items.statements import Statements
from scrapy_resume.store.items.upserts import Rule, change, upsert
from tests.services import MariaDB
from tests.store.worlds import World, item, page

TABLE = Table("book", MetaData(), *(Column(name, String) for name in ("isbn", "title", "seen")))


def dialect(version: tuple[int, ...], *, mariadb: bool = False) -> Any:
    made = mysql.dialect(is_mariadb=mariadb)
    made.server_version_info = version
    made.is_mariadb = mariadb
    # What the dialect concludes from a server's version when it connects.
    made._requires_alias_for_on_duplicate_key = not mariadb and version >= (8, 0, 20)
    return made


def text(rule: Rule, at: Any) -> str:
    statement = upsert("mysql" if at.name != "sqlite" else "sqlite", TABLE, rule)
    return " ".join(str(statement.compile(dialect=at)).split())


OLD = [
    dialect((5, 7, 44)),
    dialect((8, 0, 19)),
    dialect((10, 11, 4), mariadb=True),
    dialect((11, 8, 1), mariadb=True),
]
NEW = [dialect((8, 0, 20)), dialect((8, 4, 0)), dialect((9, 1, 0)), dialect((9, 5, 0))]


@pytest.mark.parametrize("at", OLD)
def test_upsert_with_values(at: Any) -> None:
    plain = text(Rule(("isbn",), ("title",)), at)
    assert plain.endswith("ON DUPLICATE KEY UPDATE title = VALUES(title)")
    assert " AS new" not in plain


@pytest.mark.parametrize("at", NEW)
def test_upsert_with_an_alias(at: Any) -> None:
    plain = text(Rule(("isbn",), ("title",)), at)
    assert plain.endswith("AS new ON DUPLICATE KEY UPDATE title = new.title")
    assert "VALUES(" not in plain


@pytest.mark.parametrize("at", [*OLD, *NEW])
def test_the_guard_is_assigned_last(at: Any) -> None:
    for order in (("title", "seen"), ("seen", "title")):
        guarded = text(Rule(("isbn",), order, "seen"), at).split("UPDATE ", 1)[1]
        assert guarded.startswith("title = CASE WHEN (book.seen IS NULL OR ")
        assert ", seen = CASE WHEN " in guarded


@pytest.mark.parametrize("at", [*OLD, *NEW])
def test_keeping_what_is_there(at: Any) -> None:
    assert text(Rule(("isbn",), ()), at).endswith("ON DUPLICATE KEY UPDATE isbn = book.isbn")


def test_upserts_of_sqlite() -> None:
    at = sqlite.dialect()
    assert text(Rule(("isbn",), ()), at).endswith("ON CONFLICT (isbn) DO NOTHING")
    assert text(Rule(("isbn",), ("title",)), at).endswith(
        "ON CONFLICT (isbn) DO UPDATE SET title = excluded.title"
    )
    assert " WHERE book.seen IS NULL OR " in text(Rule(("isbn",), ("title", "seen"), "seen"), at)


@pytest.mark.parametrize("at", [*OLD, *NEW, sqlite.dialect()])
def test_a_row_without_a_date_is_not_newer(at: Any) -> None:
    guarded = text(Rule(("isbn",), ("title",), "seen", dated=False), at)
    assert "book.seen IS NULL" in guarded
    assert ">=" not in guarded


@pytest.mark.parametrize("at", [*OLD, *NEW])
def test_a_change_by_the_key(at: Any) -> None:
    statement = change(TABLE, Rule(("isbn",), ("seen", "title"), "seen"))
    whole = " ".join(str(statement.compile(dialect=at)).split())
    assert whole.startswith("UPDATE book SET title=%s, seen=%s WHERE book.isbn = %s AND ")
    assert whole.endswith("(book.seen IS NULL OR %s IS NOT NULL AND %s >= book.seen)")


def statements(at: Any, **options: Any) -> Statements:
    if at.name != "sqlite":
        at.paramstyle, at.positional = "format", True
    # As much of a Database as statements look at.
    described = SimpleNamespace(
        dialect="sqlite" if at.name == "sqlite" else "mysql", engine=SimpleNamespace(dialect=at)
    )
    return Statements(described, ItemTable("book", "isbn", **options), ["isbn", "title", "a%b"])  # type: ignore[arg-type]


@pytest.mark.parametrize("at", OLD)
def test_what_is_sent_to_older_servers(at: Any) -> None:
    made = statements(at)
    fields = frozenset({"isbn", "title", "a%b"})
    assert " ".join(made.upsert(fields).text.split()) == (
        "INSERT INTO book (isbn, title, `a%%b`) VALUES (%s, %s, %s)"
        " ON DUPLICATE KEY UPDATE title = VALUES(title), `a%%b` = VALUES(`a%%b`)"
    )
    assert made.keep(fields).text.endswith(" ON DUPLICATE KEY UPDATE isbn = book.isbn")
    assert made.insert(fields).text.endswith("VALUES (%s, %s, %s)")
    changed = made.change(fields)
    assert changed is not None
    assert changed.text == "UPDATE book SET title=%s, `a%%b`=%s WHERE book.isbn = %s"
    values = {"isbn": "1", "title": "t", "a%b": 5}
    assert changed.parameters(values) == ("t", 5, "1")


@pytest.mark.parametrize("at", NEW)
def test_what_is_sent_to_newer_servers(at: Any) -> None:
    made = statements(at)
    fields = frozenset({"isbn", "title", "a%b"})
    assert " ".join(made.upsert(fields).text.split()) == (
        "INSERT INTO book (isbn, title, `a%%b`) VALUES (%s, %s, %s) AS new"
        " ON DUPLICATE KEY UPDATE title = new.title, `a%%b` = new.`a%%b`"
    )
    assert made.keep(fields).text.endswith(" AS new ON DUPLICATE KEY UPDATE isbn = book.isbn")


def test_what_is_sent_to_sqlite() -> None:
    made = statements(sqlite.dialect())
    assert " ".join(made.upsert(frozenset({"isbn", "a%b"})).text.split()) == (
        'INSERT INTO book (isbn, "a%b") VALUES (?, ?)'
        ' ON CONFLICT (isbn) DO UPDATE SET "a%b" = excluded."a%b"'
    )
    assert made.upsert(frozenset({"isbn"})).text.endswith("ON CONFLICT (isbn) DO NOTHING")


@pytest.mark.parametrize("at", [*OLD, *NEW, sqlite.dialect()])
def test_nothing_is_changed_that_is_to_stay(at: Any) -> None:
    made = statements(at, update=None)
    assert made.change(frozenset({"isbn", "title"})) is None
    assert "title =" not in made.upsert(frozenset({"isbn", "title"})).text.split("ON ")[1]


def test_every_value_is_a_plain_placeholder() -> None:
    for at in (*OLD, *NEW):
        values = text(Rule(("isbn",), ("title", "seen"), "seen"), at).split("VALUES (")[1]
        assert values.startswith("%s, %s, %s)")


class Sent:
    """The statements that a connection sends to the server, one by one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sent: list[str] = []
        original = cursors.BulkCursor._query

        def query(cursor: Any, statement: Any) -> Any:
            if isinstance(statement, (bytes, bytearray)):
                statement = statement.decode()
            self.sent.append(statement)
            return original(cursor, statement)

        monkeypatch.setattr(cursors.BulkCursor, "_query", query)

    def count(self, beginning: str) -> int:
        return sum(statement.startswith(beginning) for statement in self.sent)


@pytest.fixture
def on_mariadb(mariadb: MariaDB, mariadb_name: str) -> World:
    from scrapy_resume.store import migrate
    from scrapy_resume.store.engine import Database

    db = Database.connect(mariadb.url(mariadb_name))
    migrate.ensure_schema(db)
    return World(db)


def test_a_group_of_pages_is_few_statements(
    on_mariadb: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = on_mariadb
    claimed = world.claim(world.plan(4))
    records = [
        page(claimed[n % 4], n // 4 + 1, *(item(f"k{n}-{at}") for at in range(20)))
        for n in range(20)
    ]
    sent = Sent(monkeypatch)
    world.commit(*records)
    assert sent.count("INSERT INTO resume_item") == 1
    assert sent.count("UPDATE resume_task_shard") == 4
    assert len(sent.sent) == 6  # and the time
    assert len(world.items()) == 400


def test_users_tables_too(on_mariadb: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world = on_mariadb
    world.sql("CREATE TABLE book (isbn VARCHAR(20) NOT NULL PRIMARY KEY, title TEXT, n INTEGER)")
    (one,) = world.claim(world.plan(1))
    writer = ItemWriter(world.db, [ItemTable("book", ["isbn"], newer_by="n")])
    rows = [Row("book", (str(n),), {"isbn": str(n), "title": "t", "n": n}) for n in range(2500)]
    sent = Sent(monkeypatch)
    world.commit(page(one, 1, *rows), writer=writer)
    assert sent.count("INSERT INTO book") == 3
    assert world.sql("SELECT COUNT(*) FROM book") == [(2500,)]


def test_statements_are_cut_by_bytes(on_mariadb: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world = on_mariadb
    (one,) = world.claim(world.plan(1))
    rows = [item(f"k{n}", text="ü'\\" * 20_000) for n in range(40)]
    sent = Sent(monkeypatch)
    world.commit(page(one, 1, *rows))
    inserts = [text for text in sent.sent if text.startswith("INSERT INTO resume_item")]
    assert len(inserts) > 1
    assert max(len(text.encode()) for text in inserts) <= 1_000_000
    assert len(world.items()) == 40


def test_a_plan_is_few_statements(on_mariadb: World, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = Sent(monkeypatch)
    on_mariadb.plan([Shard(f"s{n}", site="s" * 20) for n in range(2000)])
    assert sent.count("INSERT INTO resume_task_shard") <= 4
