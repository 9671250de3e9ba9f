"""Rows that the database refuses: isolated, on record with column and value, in few statements."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy import event

from scrapy_resume.store.items import Row
from scrapy_resume.store.items.rowerrors import shortened
from tests.store.shelves import Shelf
from tests.store.worlds import World, page

BOOK = "isbn VARCHAR(20) NOT NULL PRIMARY KEY, title VARCHAR(255), price INT"
CHECKED = BOOK + ", CHECK (price >= 0)"
OWNED = BOOK + ", shop INTEGER, FOREIGN KEY (shop) REFERENCES shop (id)"
BAD: list[tuple[str, dict[str, Any], tuple[str, str | None, str | None]]] = [
    (BOOK, {"title": "x" * 300}, ("Unfit", "title", "x" * 59 + "…")),
    (BOOK, {"price": 10**12}, ("Unfit", "price", "1000000000000")),
    (BOOK, {"price": "dear"}, ("Unfit", "price", "dear")),
    (BOOK, {"title": b"\xff"}, ("Unfit", "title", "b'\\xff'")),
    (BOOK, {"title": "\ud800"}, ("Unfit", "title", "?")),
    (BOOK + " NOT NULL", {"price": None}, ("Unfit", "price", None)),
    (BOOK + " NOT NULL", {}, ("NoValue", "price", None)),
    (CHECKED, {"price": -1}, ("Check", None, None)),
    (OWNED, {"shop": 99}, ("NoParent", "shop", "99")),
]
BAD_IDS = ["long", "range", "type", "bytes", "surrogate", "null", "missing", "check", "foreign"]


@contextmanager
def counted(world: World) -> Iterator[list[str]]:
    """The statements that go to the driver meanwhile."""
    sent: list[str] = []

    def note(conn: Any, cursor: Any, statement: str, *rest: Any) -> None:
        sent.append(statement)

    event.listen(world.db.engine, "before_cursor_execute", note)
    try:
        yield sent
    finally:
        event.remove(world.db.engine, "before_cursor_execute", note)


def shelf_of(world: World, create: str) -> Shelf:
    if create is OWNED:
        world.sql("CREATE TABLE shop (id INTEGER NOT NULL PRIMARY KEY)")
        world.sql("INSERT INTO shop VALUES (1)")
    return Shelf(world, create)


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize(("create", "bad", "why"), BAD, ids=BAD_IDS)
def test_val_3_one_bad_row_among_good_ones(
    world: World, create: str, bad: dict[str, Any], why: tuple[Any, ...], together: bool
) -> None:
    shelf = shelf_of(world, create)
    good = [{"isbn": str(n), "title": "t", "price": n} for n in range(9)]
    items = [*good[:5], {"isbn": "bad", **bad}, *good[5:]]
    parts = [items] if together else [[one] for one in items]
    results = [shelf.store(*part) for part in parts]
    assert (sum(r.written for r in results), sum(len(r.rejected) for r in results)) == (9, 1)
    assert shelf.rows("isbn, title, price") == [(str(n), "t", n) for n in range(9)]
    ((key, error_class, column, value),) = shelf.refused()
    if world.db.dialect == "sqlite" and error_class == "NoParent":
        column, value = why[1:]  # SQLite does not say which foreign key it was
    assert (key, (error_class, column, value)) == ("bad", why)


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize(
    ("create", "bad"), [(CHECKED, {"price": -1}), (BOOK, {"price": "x"}), (OWNED, {"shop": 9})]
)
def test_a_bad_row_is_as_bad_if_a_good_one_of_its_key_follows(
    world: World, create: str, bad: dict[str, Any], together: bool
) -> None:
    shelf = shelf_of(world, create)
    wrong, worse = {"title": "bad", **bad}, {"title": "worse", **bad}
    items = [{"isbn": "1", **wrong}, {"isbn": "1", "price": 2}, {"isbn": "1", **worse},
             {"isbn": "2", **wrong}, {"isbn": "3", **wrong}, {"isbn": "3", "price": 3}]  # fmt: skip
    results = [shelf.store(*part) for part in ([items] if together else [[i] for i in items])]
    assert shelf.rows("isbn, title, price") == [("1", None, 2), ("3", None, 3)]
    assert sum(result.written for result in results) == 2
    assert sum(result.repeated for result in results) == 0
    assert [row[0] for row in shelf.refused()] == ["1", "1", "2", "3"]


@pytest.mark.parametrize("bad", [1, 2, 5])
def test_a_bad_row_costs_few_statements(world: World, bad: int) -> None:
    shelf = Shelf(world, CHECKED)
    shelf.store({"isbn": "first"})  # the table is known from now on
    count = 512
    wrong = {n * count // bad + 3 for n in range(bad)}
    with counted(world) as sent:
        result = shelf.store(
            *({"isbn": f"{n:03}", "price": -1 if n in wrong else n} for n in range(count))
        )
    assert (result.written, len(result.rejected)) == (count - bad, bad)
    inserts = [text for text in sent if text.startswith("INSERT INTO book")]
    assert len(inserts) <= 1 + bad * (2 * math.log2(count) + 2)


def test_what_rules_find_costs_no_statement(world: World) -> None:
    shelf = Shelf(world, BOOK)
    shelf.store({"isbn": "first"})
    with counted(world) as sent:
        shelf.store(*({"isbn": str(n), "price": "x" if n % 2 else n} for n in range(100)))
    assert sum(text.startswith("INSERT INTO book") for text in sent) == 1
    assert len(shelf.refused()) == 50


def test_every_row_is_bad(world: World) -> None:
    shelf = Shelf(world, CHECKED)
    with counted(world) as sent:
        result = shelf.store(*({"isbn": str(n), "price": -1} for n in range(64)))
    assert (result.written, len(result.rejected)) == (0, 64)
    assert sum(text.startswith("INSERT INTO book") for text in sent) <= 2 * 64


def test_key_5_distinct_rows_and_repeated_ones(world: World) -> None:
    shelf = Shelf(world, BOOK)
    items = [{"isbn": f"k{n:03}", "price": n} for n in range(21, 27)]
    again = [{"isbn": "k021", "price": 7}, {"isbn": "k022"}, {"isbn": "k022", "price": 1}]
    result = shelf.store(*items, *again)
    assert (result.written, result.repeated, len(result.rejected)) == (6, 3, 0)
    assert shelf.rows("isbn, price")[:2] == [("k021", 7), ("k022", 1)]


def test_a_shard_counts_what_is_stored(world: World) -> None:
    shelf = Shelf(world, CHECKED)
    (one,) = world.claim(world.plan(1))

    def rows(*prices: int) -> list[Row]:
        return [shelf.row(isbn=f"k{n // 2}", price=price) for n, price in enumerate(prices)]

    result = world.commit(page(one, 1, *rows(1, -1, -1, -1, 5, 6)), writer=shelf.writer)
    assert (result.written, result.repeated, len(result.rejected)) == (2, 1, 3)
    shard = world.shard(one.id)
    assert (shard.written_count, shard.quarantined_count, shard.cur_page) == (2, 3, 1)
    assert [row[0] for row in shelf.refused()] == ["k0", "k1", "k1"]
    result = world.commit(page(one, 2, *rows(1, -2)), page(one, 3, *rows(-3)), writer=shelf.writer)
    shard = world.shard(one.id)
    assert (shard.written_count, shard.quarantined_count, shard.cur_page) == (3, 5, 3)


def test_a_key_that_the_column_spells_otherwise_is_one_key(world: World) -> None:
    shelf = Shelf(world, "isbn INTEGER NOT NULL PRIMARY KEY, title VARCHAR(20)")
    (one,) = world.claim(world.plan(1))
    rows = [shelf.row(isbn=isbn, title=str(n)) for n, isbn in enumerate([7, "7", "007", 8])]
    result = world.commit(page(one, 1, *rows), writer=shelf.writer)
    assert (result.written, result.repeated) == (2, 2)
    assert world.shard(one.id).written_count == 2
    assert shelf.rows() == [(7, "2"), (8, "3")]


@pytest.mark.parametrize(
    ("column", "value", "expected"),
    [
        ("title", "x" * 70, "x" * 59 + "…"),
        ("url", "https://user:pw@site.example/list?token=abc#top", "https://site.example/list?…"),
        ("url", "see http://a.b/c?d=e and http://f.g/h", "see http://a.b/c?… and http://f.g/h"),
        ("api_token", "abc", "…"),
        ("Password", 7, "…"),
        ("price", 7.5, "7.5"),
        ("photo", b"\x00" * 1000, "b'" + "\\x00" * 14 + "\\…"),
    ],
)
def test_a_shortened_value_tells_no_secrets(column: str, value: Any, expected: str) -> None:
    assert shortened(column, value) == expected


def test_a_trigger_that_refuses_a_row(world: World) -> None:
    shelf = Shelf(world, BOOK)
    if world.db.dialect == "mysql":
        body = (
            "IF NEW.price < 0 THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'too cheap'; END IF"
        )
        world.sql(f"CREATE TRIGGER t BEFORE INSERT ON book FOR EACH ROW {body}")
    else:
        body = "BEGIN SELECT RAISE(ABORT, 'too cheap'); END"
        world.sql(f"CREATE TRIGGER t BEFORE INSERT ON book WHEN NEW.price < 0 {body}")
    shelf.store(*({"isbn": str(n), "price": n - 2} for n in range(4)))
    assert shelf.rows("isbn") == [("2",), ("3",)]
    assert [(row[0], row[1]) for row in shelf.refused()] == [("0", "Trigger"), ("1", "Trigger")]


def test_key_1_a_row_without_its_key_is_no_new_row_on_every_pass(world: World) -> None:
    shelf = Shelf(world, "site INTEGER NOT NULL, ext_id INTEGER, UNIQUE (site, ext_id)",
                  ("site", "ext_id"))  # fmt: skip
    items = [{"site": 1, "ext_id": n} for n in range(6)] + [{"site": 1, "ext_id": None}]
    for _ in range(3):
        assert shelf.store(*items, {"site": 1}).written == 6
    assert len(shelf.rows()) == 6
    assert {row[1:] for row in shelf.refused()} == {("NoKey", "ext_id", None)}


@pytest.mark.parametrize("together", [True, False])
def test_a_row_that_brings_no_value_where_one_must_be_is_refused_even_if_its_key_is_there(
    world: World, together: bool
) -> None:
    shelf = Shelf(world, BOOK + " NOT NULL")
    items = [{"isbn": "1", "title": "a"}, {"isbn": "1", "title": "b", "price": 1},
             {"isbn": "1", "title": "c"}]  # fmt: skip
    for part in [items] if together else [[one] for one in items]:
        shelf.store(*part)
    assert shelf.rows() == [("1", "b", 1)]
    assert [row[1:3] for row in shelf.refused()] == [("NoValue", "price")] * 2


def test_what_is_coerced_is_counted_once(world: World, caplog: pytest.LogCaptureFixture) -> None:
    shelf = Shelf(world, "isbn VARCHAR(20) NOT NULL PRIMARY KEY, cost DECIMAL(6,2), price INT")
    items = [{"isbn": str(n), "cost": Decimal("1.005"), "price": n} for n in range(6)]
    with caplog.at_level(logging.WARNING):
        result = shelf.store(*items, {"isbn": "bad", "cost": Decimal(1), "price": "dear"})
    assert (result.written, result.coerced, len(result.rejected)) == (6, 6, 1)
    assert len([one for one in caplog.records if "column cost" in one.getMessage()]) == 1


TEXTS = ["a\0b", "\\", "'", "it''s", "%s", "\n", "é", "\x1a", '"', "`", "😎", "", "\\'", "\0"]


@pytest.mark.parametrize("together", [True, False])
def test_texts_of_every_kind(world: World, together: bool) -> None:
    shelf = Shelf(world, "isbn VARCHAR(20) NOT NULL PRIMARY KEY, title VARCHAR(50), photo BLOB")
    items = [
        {"isbn": f"{n:02}", "title": text, "photo": text.encode() + b"\xff"}
        for n, text in enumerate(TEXTS)
    ]
    for part in [items] if together else [[one] for one in items]:
        shelf.store(*part)
    assert shelf.rows("title, photo") == [(text, text.encode() + b"\xff") for text in TEXTS]
