"""Items and tables that nobody had in mind: each harms itself at most, and no other row."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pytest
from pymysql.connections import Connection

from scrapy_resume.exceptions import ConfigurationError
from scrapy_resume.store import migrate
from scrapy_resume.store.engine import Database
from tests.store.shelves import Shelf
from tests.store.worlds import World, page

BOOK = "isbn VARCHAR(20) NOT NULL PRIMARY KEY, price INT"
WITH_ID = {
    "sqlite": "id INTEGER NOT NULL PRIMARY KEY, isbn VARCHAR(20) NOT NULL UNIQUE, price INT",
    "mysql": "id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, isbn VARCHAR(20) NOT NULL UNIQUE,"
    " price INT",
}
LONG = 10**5000  # Python refuses to write so many digits
REFUSES = "CREATE TRIGGER no BEFORE INSERT ON book FOR EACH ROW BEGIN IF NEW.price < 0 THEN "


@pytest.mark.parametrize("create", [BOOK, "isbn BIGINT NOT NULL PRIMARY KEY, price DECIMAL(9,2)"])
def test_a_number_too_long_to_be_written_is_refused(world: World, create: str) -> None:
    shelf = Shelf(world, create)
    shelf.store({"isbn": 1, "price": 1}, {"isbn": 2, "price": LONG}, {"isbn": LONG, "price": 3})
    assert [int(row[0]) for row in shelf.rows()] == [1]
    said = "a number of some 5000 digits"
    assert shelf.refused() == [("2", "Unfit", "price", said), (said, "Unfit", "isbn", said)]


def test_many_digits_that_are_no_number_take_no_time(world: World) -> None:
    shelf = Shelf(world, BOOK)
    started = time.monotonic()
    shelf.store({"isbn": "1", "price": "1" * 20_000 + "x"}, {"isbn": "2", "price": 2})
    assert time.monotonic() - started < 5
    assert shelf.rows() == [("2", 2)]


def test_a_key_that_is_no_number_at_all(world: World) -> None:
    shelf = Shelf(world, "isbn DECIMAL(9,2) NOT NULL PRIMARY KEY, price INT")
    shelf.store({"isbn": Decimal("sNaN"), "price": 1}, {"isbn": Decimal(2), "price": 2})
    assert [row[1] for row in shelf.rows()] == [2]
    assert [row[1:3] for row in shelf.refused()] == [("Unfit", "isbn")]


def test_a_row_that_no_partition_takes(mariadb_world: World) -> None:
    parts = "PARTITION BY RANGE (isbn) (PARTITION low VALUES LESS THAN (100)"
    shelf = Shelf(mariadb_world, f"isbn INT NOT NULL PRIMARY KEY, price INT) {parts}")
    shelf.store(*({"isbn": n, "price": 1} for n in (1, 200, 3)))
    assert shelf.rows() == [(1, 1), (3, 1)]
    assert shelf.refused() == [("200", "NoPartition", None, None)]


@pytest.mark.parametrize(
    "signal",
    ["'45000' SET MYSQL_ERRNO = 9999", "'45000' SET MYSQL_ERRNO = 45000", "'45000'", "'02000'"],
)
def test_a_trigger_may_give_any_number(mariadb_world: World, signal: str) -> None:
    shelf = Shelf(mariadb_world, BOOK)
    mariadb_world.sql(f"{REFUSES} SIGNAL SQLSTATE {signal}; END IF; END")
    shelf.store(*({"isbn": str(n), "price": n} for n in (1, -2, 3)))
    assert shelf.rows() == [("1", 1), ("3", 3)]
    assert shelf.refused() == [("-2", "Trigger", None, None)]


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("update", ["all", None])
def test_an_id_that_an_item_brings_strikes_no_other_row(
    world: World, together: bool, update: Any
) -> None:
    shelf = Shelf(world, WITH_ID[world.db.dialect], options={"update": update})
    shelf.store({"isbn": "b", "price": 1, "id": 5}, {"isbn": "a", "price": 2, "id": 6})
    items = [
        {"isbn": "c", "price": 3, "id": 5}, {"isbn": "b", "price": 4, "id": 6},
        {"isbn": "b", "id": 7}, {"isbn": "a", "price": 5, "id": 5}, {"isbn": "d", "price": 6},
    ]  # fmt: skip
    for part in [items] if together else [[one] for one in items]:
        shelf.store(*part)
    rows = [(5, "a", 5), (7, "b", 1)] if update else [(6, "a", 2), (5, "b", 1)]
    assert shelf.rows("id, isbn, price")[:2] == rows
    assert shelf.rows("isbn, price")[2:] == [("d", 6)]
    refused = [("c", "OtherUniqueIndex", "id", "5")]
    refused += [("b", "OtherUniqueIndex", "id", "6")] if update else []
    assert shelf.refused() == refused


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("DATE", "2024-01-02"), ("DATETIME(3)", datetime(2024, 1, 2, 3, 4, 5, 6000)),
        ("TIME", "03:04"), ("DECIMAL(9,2)", "1.5"), ("DATE", date(2024, 1, 2)), ("YEAR", 2024),
    ],
)  # fmt: skip
def test_a_key_that_the_driver_reads_otherwise_is_known_again(
    mariadb_world: World, kind: str, value: Any
) -> None:
    create = "id TINYINT NOT NULL AUTO_INCREMENT PRIMARY KEY, isbn VARCHAR(20) NOT NULL,"
    create += f" day {kind} NOT NULL, price INT, UNIQUE (isbn, day)"
    shelf = Shelf(mariadb_world, create, key=("isbn", "day"))
    shelf.store({"isbn": "1", "day": value, "price": 0})
    mariadb_world.sql("ALTER TABLE book AUTO_INCREMENT = 120")
    for price in range(10):
        shelf.store({"isbn": "1", "day": value, "price": price})
    shelf.store({"isbn": "2", "day": value, "price": 1})
    assert shelf.rows("id, price") == [(1, 9), (120, 1)]
    assert shelf.refused() == []


def test_a_row_is_updated_although_no_id_is_left_to_try_it(mariadb_world: World) -> None:
    create = "id TINYINT NOT NULL AUTO_INCREMENT PRIMARY KEY, price INT,"
    create += " isbn VARCHAR(20) COLLATE utf8mb4_general_ci NOT NULL UNIQUE"
    shelf = Shelf(mariadb_world, create)
    shelf.store({"isbn": "a", "price": 1})
    mariadb_world.sql("ALTER TABLE book AUTO_INCREMENT = 127")
    shelf.store({"isbn": "b", "price": 1})
    shelf.store({"isbn": "A", "price": 2}, {"isbn": "c", "price": 3})
    assert shelf.rows("isbn, price") == [("a", 2), ("b", 1)]
    assert [row[:3] for row in shelf.refused()] == [("c", "IdsUsedUp", "id")]


def test_no_statement_is_longer_than_the_server_takes(
    mariadb_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"c{'x' * 55}{n:03}" for n in range(300)]
    shelf = Shelf(mariadb_world, ", ".join([BOOK, *(f"{name} TEXT" for name in names)]))
    shelf.store({"isbn": "1"})
    packet, sent = 200_000, list[int]()
    mariadb_world.db.row_bytes = packet - 8192
    send = Connection._execute_command

    def noted(self: Connection, command: int, statement: Any) -> None:
        raw = statement.encode() if isinstance(statement, str) else statement
        sent.append(len(raw))
        send(self, command, statement)

    monkeypatch.setattr(Connection, "_execute_command", noted)
    for size in (100, 300, 400, 630):
        shelf.store({"isbn": str(size), **dict.fromkeys(names, "y" * size)}, {"isbn": "1"})
    assert max(sent) <= packet
    assert {row[:2] for row in shelf.refused()} == {("400", "RowTooLarge"), ("630", "RowTooLarge")}


ALIKE = [
    ("utf8mb4_general_ci", "😀", "😁"), ("utf8mb4_general_ci", "strase", "straße"),
    ("utf8mb4_general_ci", "i", "ı"), ("utf8mb4_unicode_ci", "strasse", "straße"),
    ("utf8mb4_unicode_ci", "oe", "œ"), ("utf8mb4_unicode_ci", "あ", "ア"),
    ("utf8mb4_unicode_ci", "ab", "a\u200bb"), ("utf8mb4_unicode_ci", "a\x01b", "ab"),
    ("utf8mb4_unicode_520_ci", "o", "ø"), ("utf8mb4_unicode_520_ci", "ł", "l"),
    ("utf8mb4_unicode_520_ci", "æ", "ae"),
]  # fmt: skip


def test_the_last_of_keys_that_a_collation_takes_for_one_wins(mariadb_world: World) -> None:
    for number, (collation, *keys) in enumerate(ALIKE):
        mariadb_world.sql("DROP TABLE IF EXISTS book")
        shelf = Shelf(
            mariadb_world, f"isbn VARCHAR(20) COLLATE {collation} NOT NULL PRIMARY KEY, price INT"
        )
        for turned in (keys, keys[::-1]):
            mariadb_world.sql("DELETE FROM book")
            shelf.store(*({"isbn": key, "price": n} for n, key in enumerate(turned)))
            assert mariadb_world.sql("SELECT price FROM book") == [(1,)], (number, turned)


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("second", [True, False], ids=["careful", "plain"])
def test_the_guard_goes_with_a_list_of_what_an_update_changes(
    world: World, together: bool, second: bool
) -> None:
    create = BOOK + ", at INT" + (", slug INT UNIQUE" if second else "")
    shelf = Shelf(world, create, options={"update": ["price"], "newer_by": "at"})
    items = [{"isbn": "1", "price": n, "at": n} for n in (1, 3, 2)]
    for part in [items] if together else [[one] for one in items]:
        shelf.store(*part)
    assert shelf.rows("isbn, price, at") == [("1", 3, 3)]


@pytest.fixture
def sqlite_world(sqlite_url: str) -> Iterator[World]:
    database = Database.connect(sqlite_url)
    migrate.ensure_schema(database)
    yield World(database)
    database.close()


def test_a_trigger_that_undoes_everything_lets_nothing_be_stored_without_its_page(
    sqlite_world: World,
) -> None:
    world = sqlite_world
    shelf = Shelf(world, BOOK)
    world.sql(
        "CREATE TRIGGER no BEFORE INSERT ON book WHEN NEW.price < 0"
        " BEGIN SELECT RAISE(ROLLBACK, 'no'); END"
    )
    (shard,) = world.claim(world.plan())
    rows = [shelf.row(isbn=str(n), price=-1 if n == 4 else n) for n in range(9)]
    with pytest.raises(ConfigurationError, match="book undoes the whole transaction"):
        world.commit(page(shard, 1, *rows), writer=shelf.writer)
    assert shelf.rows() == []
    assert world.shard(shard.id).cur_page == 0


def test_a_key_of_zero_is_a_key(world: World) -> None:
    kind = "INTEGER" if world.db.dialect == "sqlite" else "BIGINT AUTO_INCREMENT"
    shelf = Shelf(world, f"isbn {kind} NOT NULL PRIMARY KEY, price INT")
    for price in (1, 2):
        shelf.store({"isbn": 0, "price": price}, {"isbn": 7, "price": price})
    assert shelf.rows() == [(0, 2), (7, 2)]


def test_a_key_that_its_character_set_lacks_is_refused_alone(mariadb_world: World) -> None:
    create = "isbn VARCHAR(20) CHARACTER SET latin1 COLLATE latin1_bin NOT NULL PRIMARY KEY,"
    shelf = Shelf(mariadb_world, create + " price INT, slug INT UNIQUE")
    for price in (1, 2):
        rows = enumerate(("é", "日本", "x"))
        shelf.store(*({"isbn": key, "price": price, "slug": n} for n, key in rows))
    assert sorted(shelf.rows("isbn, price")) == [("x", 2), ("é", 2)]
    assert [row[0] for row in shelf.refused()] == ["日本", "日本"]
