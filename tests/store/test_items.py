"""Writing items into the users' own tables: one rule on every database."""

from __future__ import annotations

import itertools
from datetime import datetime, timezone
from decimal import Decimal
from typing import Any

import pytest

from scrapy_resume.exceptions import ConfigurationError
from scrapy_resume.store import checkpoints, quarantine
from scrapy_resume.store.items import ItemTable, ItemWriter, Row
from tests.store.worlds import World, item

BOOK = "CREATE TABLE book (isbn VARCHAR(20) NOT NULL PRIMARY KEY, title VARCHAR(50), price INTEGER,"
BOOK += " seen VARCHAR(30), cents DECIMAL(10,2))"


def row(isbn: Any, **fields: Any) -> Row:
    return Row("book", (isbn,), {"isbn": isbn, **fields})


class Books:
    """A table of the user's, an ItemTable that describes it, and what it holds."""

    def __init__(self, world: World, **options: Any) -> None:
        self.world = world
        world.sql(BOOK)
        self.writer = ItemWriter(world.db, [ItemTable("book", ["isbn"], **options)])

    def store(self, *rows: Row) -> int:
        return checkpoints.store_rows(self.world.db, rows, writer=self.writer).written

    def rows(self, *columns: str) -> list[tuple[Any, ...]]:
        names = ", ".join(columns or ("isbn", "title", "price"))
        return [tuple(one) for one in self.world.sql(f"SELECT {names} FROM book ORDER BY isbn")]


def test_insert_then_update(world: World) -> None:
    books = Books(world)
    assert books.store(row("1", title="a", price=1), row("2", title="b", price=2)) == 2
    assert books.store(row("1", title="A", price=10)) == 1
    assert books.rows() == [("1", "A", 10), ("2", "b", 2)]


def test_only_the_fields_an_item_has_are_written(world: World) -> None:
    books = Books(world)
    books.store(row("1", title="a", price=1))
    books.store(row("1", price=2))
    assert books.rows() == [("1", "a", 2)]
    books.store(row("1", price=None))
    assert books.rows() == [("1", "a", None)]
    books.store(row("1"))
    assert books.rows() == [("1", "a", None)]


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
@pytest.mark.parametrize("together", [True, False])
def test_items_with_different_fields(world: World, order: tuple[int, ...], together: bool) -> None:
    books = Books(world)
    rows = [row("1", title="a"), row("2", title="b", price=2), row("3", price=3, title="c")]
    mixed = [rows[at] for at in order]
    for part in [mixed] if together else [[one] for one in mixed]:
        books.store(*part)
    assert books.rows() == [("1", "a", None), ("2", "b", 2), ("3", "c", 3)]


@pytest.mark.parametrize("together", [True, False])
def test_the_same_key_twice_is_as_if_stored_one_by_one(world: World, together: bool) -> None:
    books = Books(world)
    rows = [row("1", title="a", price=5), row("1", price=7), row("1", title="b")]
    for part in [rows] if together else [[one] for one in rows]:
        books.store(*part)
    assert books.rows() == [("1", "b", 7)]


@pytest.mark.parametrize("together", [True, False])
def test_update_none_keeps_what_is_there(world: World, together: bool) -> None:
    books = Books(world, update=None)
    rows = [row("1", title="a", price=1), row("1", title="b", price=2)]
    for part in [rows] if together else [[one] for one in rows]:
        books.store(*part)
    assert books.rows() == [("1", "a", 1)]


@pytest.mark.parametrize("together", [True, False])
def test_update_lists_what_changes(world: World, together: bool) -> None:
    books = Books(world, update=["price"])
    rows = [row("1", title="a", price=1), row("1", title="b", price=2)]
    for part in [rows] if together else [[one] for one in rows]:
        books.store(*part)
    assert books.rows() == [("1", "a", 2)]


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
@pytest.mark.parametrize("together", [True, False])
def test_newer_by_lets_the_newest_win_in_any_order(
    world: World, order: tuple[int, ...], together: bool
) -> None:
    books = Books(world, newer_by="seen")
    rows = [row("1", title=f"t{n}", price=n, seen=f"2024-0{n + 1}") for n in range(3)]
    mixed = [rows[at] for at in order]
    for part in [mixed] if together else [[one] for one in mixed]:
        books.store(*part)
    assert books.rows("isbn", "title", "price", "seen") == [("1", "t2", 2, "2024-03")]


def test_a_row_without_its_key_is_rejected(world: World) -> None:
    books = Books(world)
    for _ in range(3):
        books.store(row(None, title="x"), row("1", title="a"))
    assert books.rows() == [("1", "a", None)]
    stored = world.sql("SELECT error, page FROM resume_quarantine")
    assert stored == [("the key field isbn is empty", None)] * 3


@pytest.mark.parametrize("bad", [{"price": "dear"}, {"title": "x" * 300}, {"price": 10**30}])
def test_a_row_that_the_table_refuses_is_rejected(
    world: World, bad: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    if world.db.dialect == "sqlite":
        world.sql(BOOK.replace("book", "strict_book"))
        world.sql(
            "CREATE TABLE book (isbn TEXT NOT NULL PRIMARY KEY, title TEXT"
            " CHECK (length(title) <= 50), price INTEGER CHECK (typeof(price) <> 'text'))"
        )
        books = object.__new__(Books)
        books.world = world
        books.writer = ItemWriter(world.db, [ItemTable("book", ["isbn"])])
    else:
        books = Books(world)
    assert books.store(*(row(str(n), title="t") for n in range(9)), row("bad", **bad)) == 9
    assert len(books.rows()) == 9
    ((key, error),) = world.sql("SELECT item_key, error FROM resume_quarantine")
    assert key == "bad"
    assert "xxx" not in error


def test_plain_values_of_every_kind(world: World) -> None:
    books = Books(world)
    books.store(
        row("1", title=datetime(2024, 3, 10, 2, 30, tzinfo=timezone.utc).replace(tzinfo=None)),
        row("2", cents=Decimal("1.50"), title=datetime(2024, 3, 10).date(), price=True),
    )
    (one, two) = books.rows("isbn", "title", "price", "cents")
    assert one[1] == "2024-03-10 02:30:00"
    assert two[1:3] == ("2024-03-10", 1)
    assert Decimal(str(two[3])) == Decimal("1.5")


def test_what_is_not_as_declared_names_table_and_column(world: World) -> None:
    books = Books(world)
    with pytest.raises(ConfigurationError, match="table book has no column rating"):
        books.store(row("1", rating=5))
    with pytest.raises(ConfigurationError, match="the table film, which no ItemTable names"):
        books.store(Row("film", ("1",), {"id": "1"}))
    writer = ItemWriter(world.db, [ItemTable("film", ["id"])])
    with pytest.raises(ConfigurationError, match="table film does not exist"):
        checkpoints.store_rows(world.db, [Row("film", ("1",), {"id": "1"})], writer=writer)
    writer = ItemWriter(world.db, [ItemTable("book", ["isbn"], update=["stars"])])
    with pytest.raises(ConfigurationError, match="table book has no column stars"):
        checkpoints.store_rows(world.db, [row("1", title="a")], writer=writer)


def test_reserved_words_and_odd_names(world: World) -> None:
    names = ["key", "rank", "a b", "price (usd)", "c:d", "größe", "Upper", "n" * 64]
    names += ["x`y"] if world.db.dialect == "mysql" else ["x'y", "x%y"]
    quote = "`" if world.db.dialect == "mysql" else '"'
    quoted = [quote + name.replace(quote, quote * 2) + quote for name in names]
    with world.db.transaction() as conn:
        columns = f"{quoted[0]} VARCHAR(20) NOT NULL PRIMARY KEY, "
        columns += ", ".join(f"{name} VARCHAR(20)" for name in quoted[1:])
        conn.exec_driver_sql(f"CREATE TABLE {quote}order{quote} ({columns})")
    writer = ItemWriter(world.db, [ItemTable("order", ["key"])])
    for text in ("first", "second"):
        rows = [
            Row("order", (str(n),), {"key": str(n), **dict.fromkeys(names[1:], text)})
            for n in range(3)
        ]
        assert checkpoints.store_rows(world.db, rows, writer=writer).written == 3
    with world.db.read() as conn:
        found = conn.exec_driver_sql(f"SELECT * FROM {quote}order{quote}").all()
    assert [tuple(one)[1:] for one in found] == [("second",) * (len(names) - 1)] * 3


def test_rows_of_several_tables_in_one_transaction(world: World) -> None:
    books = Books(world)
    written = books.store(item("a"), row("1", title="x"), item("b"), row("2", title="y"))
    assert written == 4
    assert set(world.items()) == {"a", "b"}
    assert len(books.rows()) == 2


def test_times_of_the_default_table(world: World) -> None:
    writer = ItemWriter(world.db)
    checkpoints.store_rows(world.db, [item("a", n=1)], writer=writer)
    query = "SELECT fetched_at, first_seen_at, updated_at FROM resume_item"
    (first,) = world.sql(query)
    fetched = datetime(2024, 1, 2, 3, 4, 5, 678901)
    later = item("a", n=2)
    later.values["fetched_at"] = fetched
    checkpoints.store_rows(world.db, [later], writer=writer)
    (second,) = world.sql(query)
    assert first[1] == second[1]
    assert second[2] > first[2]
    assert str(second[0]) == "2024-01-02 03:04:05.678901"


def test_a_key_of_one_column_needs_no_brackets() -> None:
    assert ItemTable("book", "isbn").key == ("isbn",)


def test_no_quarantine_without_a_refusal(world: World) -> None:
    checkpoints.store_rows(world.db, [item("a")], writer=ItemWriter(world.db))
    assert quarantine.find(world.db, 1) == []
