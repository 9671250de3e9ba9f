"""The users' tables are looked at before the first request."""

from __future__ import annotations

import pytest

from scrapy_resume.exceptions import ConfigurationError
from scrapy_resume.store import items
from scrapy_resume.store.items import ItemTable
from tests.store.worlds import World

GOOD = [
    "CREATE TABLE book (isbn VARCHAR(20) NOT NULL PRIMARY KEY, title TEXT)",
    "CREATE TABLE book (isbn VARCHAR(20) NOT NULL, title TEXT, UNIQUE (isbn))",
    "CREATE TABLE book (id INTEGER PRIMARY KEY {counted}, isbn VARCHAR(20) NOT NULL, title TEXT,"
    " UNIQUE (isbn))",
    "CREATE TABLE book (isbn VARCHAR(20) NOT NULL PRIMARY KEY, title VARCHAR(20), shop INTEGER)",
]

BAD = [
    ("CREATE TABLE film (id INTEGER)", "table book: it does not exist"),
    ("CREATE TABLE book (title TEXT)", "table book, column isbn: there is no such column"),
    ("CREATE TABLE book (isbn VARCHAR(20), title TEXT, UNIQUE (isbn))",
     "table book, column isbn: a key column must be NOT NULL"),
    ("CREATE TABLE book (isbn VARCHAR(20) NOT NULL, title TEXT)",
     r"table book: no unique index is made of just \(isbn\)"),
    ("CREATE TABLE book (isbn VARCHAR(20) NOT NULL, shop INTEGER NOT NULL, UNIQUE (isbn, shop))",
     r"table book: no unique index is made of just \(isbn\)"),
    ("CREATE TABLE book (isbn VARCHAR(20) NOT NULL PRIMARY KEY, slug VARCHAR(20), UNIQUE (slug))",
     r"its unique index \(slug\) may match an unrelated row"),
    ("CREATE TABLE book (slug VARCHAR(20) PRIMARY KEY, isbn VARCHAR(20) NOT NULL, UNIQUE (isbn))",
     r"its unique index \(slug\) may match an unrelated row"),
]  # fmt: skip


@pytest.mark.parametrize("create", GOOD)
def test_a_fit_table(world: World, create: str) -> None:
    counted = "AUTO_INCREMENT" if world.db.dialect == "mysql" else ""
    world.sql(create.format(counted=counted))
    findings = items.require(world.db, [ItemTable("book", ["isbn"])])
    assert [finding for finding in findings if finding.refuse] == []


@pytest.mark.parametrize(("create", "message"), BAD)
def test_an_unfit_table_is_refused_by_name(world: World, create: str, message: str) -> None:
    world.sql(create)
    with pytest.raises(ConfigurationError, match=message):
        items.require(world.db, [ItemTable("book", ["isbn"])])


def test_columns_that_an_item_table_names_must_exist(world: World) -> None:
    world.sql(GOOD[0])
    table = ItemTable("book", ["isbn"], update=["title", "price"], newer_by="seen")
    texts = [str(finding) for finding in items.inspect(world.db, [table])]
    assert texts[:2] == [
        "table book, column price: there is no such column",
        "table book, column seen: there is no such column",
    ]


@pytest.mark.parametrize(
    ("definition", "message", "refuse"),
    [
        ("isbn VARCHAR(20) NOT NULL PRIMARY KEY) ENGINE=MyISAM", "its engine is MyISAM", True),
        ("isbn VARCHAR(90) NOT NULL, UNIQUE (isbn(50)))", "no unique index is made of just", True),
        ("isbn VARCHAR(20) NOT NULL PRIMARY KEY) COLLATE utf8mb4_general_ci",
         "the collation utf8mb4_general_ci takes different keys for one", False),
        ("isbn VARCHAR(20) COLLATE utf8mb4_bin NOT NULL PRIMARY KEY, title TEXT"
         " CHARACTER SET utf8mb3)", "utf8mb3 cannot hold every character", False),
    ],
)  # fmt: skip
def test_what_only_mariadb_can_get_wrong(
    world: World, definition: str, message: str, refuse: bool
) -> None:
    if world.db.dialect == "sqlite":
        return
    world.sql(f"CREATE TABLE book ({definition}")
    found = [f for f in items.inspect(world.db, [ItemTable("book", ["isbn"])])
             if message in f.text]  # fmt: skip
    assert [finding.refuse for finding in found] == [refuse]


def test_a_composite_key_in_any_order(world: World) -> None:
    world.sql("CREATE TABLE book (shop INTEGER NOT NULL, isbn VARCHAR(20) COLLATE "
              + ("utf8mb4_bin" if world.db.dialect == "mysql" else "BINARY")
              + " NOT NULL, UNIQUE (shop, isbn))")  # fmt: skip
    assert items.require(world.db, [ItemTable("book", ["isbn", "shop"])]) == []
