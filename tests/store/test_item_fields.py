"""Fields without a column, columns that come and go, names of every kind."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from scrapy_resume.exceptions import ConfigurationError
from scrapy_resume.store import checkpoints, items
from scrapy_resume.store.items import ItemTable, ItemWriter, Row
from tests.store.shelves import Shelf
from tests.store.test_item_rejects import counted
from tests.store.worlds import World, page

BOOK = "isbn VARCHAR(20) NOT NULL PRIMARY KEY, title VARCHAR(50), price INTEGER"


def plain(count: int = 5) -> list[dict[str, Any]]:
    return [{"isbn": str(n), "title": "t", "price": n} for n in range(count)]


@pytest.mark.parametrize("position", [0, 2, 4])
def test_val_7_an_unknown_field_stops_the_crawl_at_any_position(
    world: World, position: int
) -> None:
    shelf = Shelf(world, BOOK)
    (one,) = world.claim(world.plan(1))
    rows = plain()
    rows[position]["rating"] = 5
    message = "the item table book has no column rating; mend the table or the item, or set"
    with pytest.raises(ConfigurationError, match=message):
        world.commit(page(one, 1, *(shelf.row(**row) for row in rows)), writer=shelf.writer)
    assert shelf.rows() == []
    assert world.shard(one.id).cur_page == 0


@pytest.mark.parametrize("position", [0, 2, 4])
def test_val_7_an_unknown_field_is_ignored_and_counted(
    world: World, position: int, caplog: pytest.LogCaptureFixture
) -> None:
    shelf = Shelf(world, BOOK, options={"on_unknown_field": "ignore"})
    rows = plain()
    rows[position] |= {"rating": 5, "Title": "other"}
    with caplog.at_level(logging.WARNING):
        first = shelf.store(*rows)
        second = shelf.store({"isbn": "9", "rating": 1})
    assert (first.written, first.ignored, second.ignored) == (5, 2, 1)
    assert shelf.rows("isbn, title")[:5] == [(str(n), "t") for n in range(5)]
    assert [record.getMessage() for record in caplog.records] == [
        "the item table book has no column rating; the field is ignored",
        "the item table book has no column Title; its column title is spelt differently; the field"
        " is ignored",
    ]


@pytest.mark.parametrize("position", [0, 2, 4])
def test_val_7_an_item_with_an_unknown_field_is_set_aside(world: World, position: int) -> None:
    shelf = Shelf(world, BOOK, options={"on_unknown_field": "quarantine"})
    rows = plain()
    rows[position]["rating"] = 5
    result = shelf.store(*rows)
    assert (result.written, len(result.rejected), result.ignored) == (4, 1, 0)
    assert shelf.refused() == [(str(position), "UnknownField", "rating", "5")]


def test_a_repeated_transaction_counts_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    shelf = Shelf(world, BOOK, options={"on_unknown_field": "ignore"})
    original, calls = ItemWriter.write, []

    def write(self: ItemWriter, conn: Any, rows: Any, **more: Any) -> Any:
        result = original(self, conn, rows, **more)
        calls.append(result)
        if len(calls) == 1:
            import sqlite3

            raise sqlite3.OperationalError("database is locked")
        return result

    monkeypatch.setattr(ItemWriter, "write", write)
    assert shelf.store({"isbn": "1", "rating": 1}).ignored == 1
    assert len(calls) == 2


@pytest.mark.parametrize("rule", ["stop", "ignore", "quarantine"])
def test_val_7_a_column_added_during_the_run_is_found(world: World, rule: str) -> None:
    shelf = Shelf(world, BOOK, options={"on_unknown_field": rule})
    shelf.store(*plain())
    world.sql("ALTER TABLE book ADD COLUMN rating INTEGER")
    shelf.store({"isbn": "1", "rating": 5})
    assert shelf.rows("isbn, rating")[1] == ("1", 5)
    assert shelf.refused() == []


def test_val_7_a_column_dropped_during_the_run(world: World) -> None:
    writers = {}
    shelf = Shelf(world, BOOK)
    for rule in ("stop", "ignore", "quarantine"):
        writers[rule] = ItemWriter(world.db, [ItemTable("book", "isbn", on_unknown_field=rule)])
        checkpoints.store_rows(world.db, [shelf.row(**one) for one in plain()],
                               writer=writers[rule])  # fmt: skip
    world.sql("ALTER TABLE book DROP COLUMN price")
    late = [shelf.row(isbn="7", title="x", price=1), shelf.row(isbn="8", title="y")]
    result = checkpoints.store_rows(world.db, late, writer=writers["ignore"])
    assert (result.written, result.ignored) == (2, 1)
    result = checkpoints.store_rows(world.db, late, writer=writers["quarantine"])
    assert (result.written, len(result.rejected)) == (1, 1)
    with pytest.raises(ConfigurationError, match="table book has no column price"):
        checkpoints.store_rows(world.db, late, writer=writers["stop"])
    assert shelf.rows("isbn, title")[-2:] == [("7", "x"), ("8", "y")]


def test_a_key_column_dropped_during_the_run(world: World) -> None:
    create = "n INTEGER NOT NULL PRIMARY KEY, isbn VARCHAR(20), title VARCHAR(20)"
    shelf = Shelf(world, create, ("n",), {"newer_by": "title"})
    shelf.store({"n": 1, "isbn": "1", "title": "a"})
    world.sql("ALTER TABLE book DROP COLUMN title")
    with pytest.raises(ConfigurationError, match="the item table book has no column title"):
        shelf.store({"n": 1, "isbn": "1", "title": "a"})


def test_a_table_dropped_during_the_run(world: World) -> None:
    shelf = Shelf(world, BOOK)
    shelf.store(*plain())
    world.sql("DROP TABLE book")
    with pytest.raises(ConfigurationError, match="the item table book does not exist at"):
        shelf.store(*plain())


def test_ignored_fields_are_looked_for_once(world: World) -> None:
    shelf = Shelf(world, BOOK, options={"on_unknown_field": "ignore"})
    shelf.store({"isbn": "1", "rating": 1})
    with counted(world) as sent:
        shelf.store({"isbn": "1", "rating": 1}, {"isbn": "2", "title": "x", "rating": 1})
    looks = [text for text in sent if "information_schema" in text or "pragma" in text]
    assert looks == []


def test_a_missing_field_never_overwrites_with_a_default(world: World) -> None:
    shelf = Shelf(world, "isbn VARCHAR(20) NOT NULL PRIMARY KEY, title VARCHAR(20) NOT NULL"
                         " DEFAULT 'none', price INTEGER DEFAULT 7, note VARCHAR(20)")  # fmt: skip
    shelf.store({"isbn": "1", "title": "a", "price": 1, "note": "n"}, {"isbn": "2"})
    shelf.store({"isbn": "1"}, {"isbn": "2", "price": 3}, {"isbn": "3", "note": "new"})
    shelf.store({"isbn": "1", "note": None})
    assert shelf.rows() == [
        ("1", "a", 1, None), ("2", "none", 3, None), ("3", "none", 7, "new"),
    ]  # fmt: skip


@pytest.mark.parametrize("known", [0, 1, 2])
def test_mixed_fields_keep_what_is_there(world: World, known: int) -> None:
    """Enough of them to go the way that inserts or locks every key first."""
    shelf = Shelf(world, "isbn VARCHAR(20) NOT NULL PRIMARY KEY, title VARCHAR(20) NOT NULL"
                         " DEFAULT 'none', price INTEGER DEFAULT 7, note VARCHAR(20)")  # fmt: skip
    old = {"title": "old", "price": 0, "note": "old"}
    shelf.store(*({"isbn": f"{n:02}", **old} for n in range(60) if n % 2 < known))
    fields = [{"title": "t"}, {"price": 5}, {"note": "n"}, {"title": "u", "note": None}, {}]
    shelf.store(*({"isbn": f"{n:02}", **fields[n % 5]} for n in range(60)))
    new = {"title": "none", "price": 7, "note": None}
    expected = [(old if n % 2 < known else new) | fields[n % 5] for n in range(60)]
    assert shelf.rows("title, price, note") == [tuple(one.values()) for one in expected]


def test_mixed_fields_are_few_statements(mariadb_world: World) -> None:
    shelf = Shelf(mariadb_world, BOOK)
    shelf.store({"isbn": "first"})
    rows = [{"isbn": f"{n:03}", **({"title": "t"} if n % 2 else {"price": n})} for n in range(200)]
    with counted(mariadb_world) as sent:
        assert shelf.store(*rows).written == 200
    assert sum(text.startswith("INSERT INTO book") for text in sent) == 1
    with counted(mariadb_world) as sent:
        assert shelf.store(*rows).written == 200
    assert sum(text.startswith("INSERT INTO book") for text in sent) == 3


def test_mixed_fields_with_bad_rows_among_them(world: World) -> None:
    shelf = Shelf(world, BOOK + ", CHECK (price >= 0)")
    rows = [{"isbn": f"{n:02}", **({"title": "t"} if n % 2 else {"price": 10 - n})}
            for n in range(20)]  # fmt: skip
    for _ in range(2):
        result = shelf.store(*rows)
        assert (result.written, len(result.rejected)) == (16, 4)
    assert len(shelf.rows()) == 16


def test_parents_are_written_before_children(world: World) -> None:
    world.sql("CREATE TABLE writer (name VARCHAR(20) NOT NULL PRIMARY KEY)")
    create = "CREATE TABLE book (isbn VARCHAR(20) NOT NULL PRIMARY KEY, writer VARCHAR(20) NOT NULL"
    world.sql(create + ", FOREIGN KEY (writer) REFERENCES writer (name))")
    writer = ItemWriter(world.db, [ItemTable("book", "isbn"), ItemTable("writer", "name")])
    rows = [Row("book", ("1",), {"isbn": "1", "writer": "w"}), Row("writer", ("w",), {"name": "w"})]
    assert checkpoints.store_rows(world.db, rows, writer=writer).written == 2


def test_a_table_whose_rows_name_each_other(world: World) -> None:
    shelf = Shelf(world, "isbn VARCHAR(20) NOT NULL PRIMARY KEY, parent VARCHAR(20),"
                         " FOREIGN KEY (parent) REFERENCES book (isbn)")  # fmt: skip
    rows = [{"isbn": "9"}, {"isbn": "5", "parent": "9"}, {"isbn": "1", "parent": "5"}]
    assert shelf.store(*rows, {"isbn": "7", "parent": "8"}).written == 3
    assert [row[0] for row in shelf.refused()] == ["7"]


def test_a_generated_column_is_never_written(world: World) -> None:
    create = BOOK + ", twice INTEGER GENERATED ALWAYS AS (price * 2) STORED"
    shelf = Shelf(world, create)
    shelf.store({"isbn": "1", "price": 2})
    assert shelf.rows("isbn, twice") == [("1", 4)]
    message = "the column twice of the item table book is generated, not written"
    with pytest.raises(ConfigurationError, match=message):
        shelf.store({"isbn": "1", "price": 2, "twice": 5})


NAMES = ["rank", "a b", "price (usd)", "c:d", "größe", "Upper", "n" * 64, "100%", "%s", "%%", "a%b",
         "%(x)s", "select", "new", "excluded", "book", "x'y", 'x"y', "[z]", "?", "$1", "key 0",
         "guard", "=price"]  # fmt: skip


@pytest.mark.parametrize("careful", [False, True])
@pytest.mark.parametrize("table", ["order", "a%b", "tab le", "größe"])
def test_val_8_reserved_words_and_odd_names(world: World, table: str, careful: bool) -> None:
    names = [*NAMES, *(["x`y"] if world.db.dialect == "mysql" else [])]
    quote = "`" if world.db.dialect == "mysql" else '"'

    def quoted(name: str) -> str:
        return (quote + name.replace(quote, quote * 2) + quote).replace("%", "%%")

    columns = [f"{quoted('key')} VARCHAR(20) NOT NULL PRIMARY KEY"]
    columns += [f"{quoted(name)} VARCHAR(20)" for name in names]
    columns += ["other INTEGER UNIQUE"] if careful else []
    create = f"CREATE TABLE {quoted(table)} ({', '.join(columns)})"
    select = f"SELECT * FROM {quoted(table)}"
    if world.db.dialect == "sqlite":
        create, select = create.replace("%%", "%"), select.replace("%%", "%")
    with world.db.transaction() as conn:
        conn.exec_driver_sql(create)
    declared = ItemTable(table, ["key"], newer_by="%s")
    checks = {"second_unique_index": "warn"} if careful else {}
    items.require(world.db, [declared], checks)
    writer = ItemWriter(world.db, [declared])
    for text in ("first", "second"):
        rows = [
            Row(table, (str(n),), {"key": str(n), **dict.fromkeys(names, text)}) for n in range(3)
        ]
        assert checkpoints.store_rows(world.db, rows, writer=writer).written == 3
    assert checkpoints.store_rows(world.db, rows[:1], writer=writer).written == 1
    with world.db.read() as conn:
        found = conn.exec_driver_sql(select).all()
    assert [tuple(one)[1 : 1 + len(names)] for one in found] == [("second",) * len(names)] * 3


@pytest.mark.parametrize("size", [1, 2, 8])
@pytest.mark.parametrize(
    ("collation", "keys"),
    [("utf8mb4_general_ci", ["A", "a", "B", "b", "A", "é", "E", "É"]),
     ("utf8mb4_bin", ["a", "a ", "b ", "b", "a", "c"]),
     ("NOCASE", ["A", "a", "B", "b", "A", "c"]),
     ("RTRIM", ["a", "a  ", "b ", "b", "a"])],
)  # fmt: skip
def test_the_last_of_keys_that_the_table_takes_for_one_wins(
    world: World, collation: str, keys: list[str], size: int
) -> None:
    if ("utf8" in collation) is not (world.db.dialect == "mysql"):
        return
    shelf = Shelf(world, f"isbn VARCHAR(20) COLLATE {collation} NOT NULL PRIMARY KEY, n INTEGER")
    items = [{"isbn": key, "n": n} for n, key in enumerate(keys)]
    for at in range(0, len(items), size):
        shelf.store(*items[at : at + size])
    alone = {"utf8mb4_general_ci": [4, 3, 7], "utf8mb4_bin": [4, 3, 5], "NOCASE": [4, 3, 5]}
    assert [row[1] for row in shelf.rows()] == alone.get(collation, [4, 3])


def test_fields_without_end_do_not_fill_the_memory(world: World) -> None:
    shelf = Shelf(world, BOOK, options={"on_unknown_field": "ignore"})
    for n in range(0, 1500, 50):
        shelf.store(*({"isbn": "1", f"field {n + m}": m} for m in range(50)))
    target = shelf.writer._targets["book"]
    assert len(target.absent) < 200
    assert len(target._shapes) <= 1000
    assert len(target._told) <= 100
    world.sql("ALTER TABLE book ADD COLUMN rating INTEGER")
    shelf.store({"isbn": "1", "rating": 5})  # found by the next writer at the latest
    shelf.writer = shelf.another()
    shelf.store({"isbn": "1", "rating": 6})
    assert shelf.rows("rating") == [(6,)]
