"""Tables whose other unique indexes, or ids, an upsert could strike: only the key decides."""

from __future__ import annotations

from typing import Any

import pytest

from tests.store.shelves import Shelf
from tests.store.worlds import World

TWO = "isbn VARCHAR(20) NOT NULL PRIMARY KEY, slug VARCHAR(20) NOT NULL UNIQUE, price INTEGER"
OTHER_FIRST = "slug VARCHAR(20) NOT NULL PRIMARY KEY, isbn VARCHAR(20) NOT NULL UNIQUE,"
OTHER_FIRST += " price INTEGER"


@pytest.mark.parametrize("create", [TWO, OTHER_FIRST], ids=["second", "first"])
@pytest.mark.parametrize("together", [True, False])
def test_key_4_a_second_unique_index_catches_no_upsert(
    world: World, create: str, together: bool
) -> None:
    shelf = Shelf(world, create)
    shelf.store({"isbn": "S1", "slug": "p", "price": 1}, {"isbn": "S2", "slug": "q", "price": 2})
    rows = [("S3", "p", 3), ("S1", "q", 4), ("S2", "q", 5), ("S4", "r", 6)]
    items = [dict(zip(("isbn", "slug", "price"), row, strict=True)) for row in rows]
    for part in [items] if together else [[one] for one in items]:
        shelf.store(*part)
    assert shelf.rows("isbn, slug, price") == [("S1", "p", 1), ("S2", "q", 5), ("S4", "r", 6)]
    assert shelf.refused() == [
        ("S3", "OtherUniqueIndex", "slug", "p"), ("S1", "OtherUniqueIndex", "slug", "q"),
    ]  # fmt: skip


@pytest.mark.parametrize("create", [TWO, OTHER_FIRST], ids=["second", "first"])
def test_sql_2_a_renamed_slug(world: World, create: str) -> None:
    shelf = Shelf(world, create)
    shelf.store({"isbn": "1", "slug": "a"})
    shelf.store({"isbn": "1", "slug": "b"})
    assert shelf.rows("isbn, slug") == [("1", "b")]
    shelf.store({"isbn": "2", "slug": "a"}, {"isbn": "3", "slug": "b"})
    assert shelf.rows("isbn, slug") == [("1", "b"), ("2", "a")]
    (error,) = world.sql("SELECT error FROM resume_quarantine")
    assert error == ("another row has the same (slug), which the table allows once",)


@pytest.mark.parametrize("size", [1, 2, 7])
def test_rows_that_depend_on_each_other_go_in_the_order_of_their_pages(
    world: World, size: int
) -> None:
    shelf = Shelf(world, TWO)
    items: list[dict[str, Any]] = [
        {"isbn": "9", "slug": "a"}, {"isbn": "1", "slug": "a"}, {"isbn": "9", "slug": "b"},
        {"isbn": "1", "slug": "a"}, {"isbn": "1", "slug": "c", "price": 7},
        {"isbn": "5", "slug": "a"}, {"isbn": "5", "price": 3, "slug": "b"},
    ]  # fmt: skip
    for at in range(0, len(items), size):
        shelf.store(*items[at : at + size])
    assert shelf.rows("isbn, slug, price") == [("1", "c", 7), ("5", "a", None), ("9", "b", None)]
    assert [row[0] for row in shelf.refused()] == ["1", "5"]


@pytest.mark.parametrize("update", ["all", ["price"], None])
def test_what_an_update_may_change(world: World, update: Any) -> None:
    shelf = Shelf(world, TWO, options={"update": update})
    shelf.store({"isbn": "1", "slug": "a", "price": 1})
    shelf.store({"isbn": "1", "slug": "b", "price": 2}, {"isbn": "2", "slug": "c", "price": 2})
    expected = {"all": ("1", "b", 2), None: ("1", "a", 1)}.get(
        update and str(update), ("1", "a", 2)
    )
    assert shelf.rows("isbn, slug, price") == [expected, ("2", "c", 2)]
    assert shelf.refused() == []


def test_only_a_newer_row_changes_one_that_is_there(world: World) -> None:
    shelf = Shelf(world, TWO, options={"newer_by": "price"})
    shelf.store({"isbn": "1", "slug": "a", "price": 5})
    shelf.store({"isbn": "1", "slug": "b", "price": 4}, {"isbn": "1", "slug": "c"})
    shelf.store({"isbn": "1", "slug": "d", "price": None})
    assert shelf.rows("isbn, slug, price") == [("1", "a", 5)]
    shelf.store({"isbn": "1", "slug": "e", "price": 5})
    assert shelf.rows("isbn, slug, price") == [("1", "e", 5)]


def test_composite_keys_and_equal_fields_in_few_statements(
    mariadb_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.store.test_statements import Sent

    create = "shop INTEGER NOT NULL, isbn VARCHAR(20) NOT NULL, slug VARCHAR(20) NOT NULL UNIQUE,"
    create += " PRIMARY KEY (shop, isbn)"
    shelf = Shelf(mariadb_world, create, ("shop", "isbn"))
    items = [{"shop": n % 3, "isbn": str(n), "slug": f"s{n}"} for n in range(300)]
    sent = Sent(monkeypatch)
    assert shelf.store(*items).written == 300
    assert (sent.count("SELECT book.shop"), sent.count("INSERT INTO book")) == (1, 1)
    assert sent.count("UPDATE") == 0
    assert shelf.store(*items[:5]).written == 5
    assert sent.count("UPDATE book") == 5


def test_the_locking_look_uses_the_index(mariadb_world: World) -> None:
    create = "shop INTEGER NOT NULL, isbn VARCHAR(20) NOT NULL, slug VARCHAR(20) NOT NULL UNIQUE,"
    create += " PRIMARY KEY (shop, isbn)"
    shelf = Shelf(mariadb_world, create, ("shop", "isbn"))
    shelf.store(*({"shop": n % 3, "isbn": str(n), "slug": f"s{n}"} for n in range(3000)))
    keys = [(n % 3, str(n)) for n in range(100)]
    statements = shelf.writer._targets["book"].statements
    with mariadb_world.db.transaction() as conn:
        compiled = statements.locked(keys).compile(conn, compile_kwargs={"literal_binds": False})
        text = str(compiled)
        assert "FOR UPDATE" in text
        conn.exec_driver_sql("ANALYZE TABLE book").all()
        conn.exec_driver_sql("FLUSH STATUS")
        assert len(conn.execute(statements.locked(keys)).all()) == 100
        read = conn.exec_driver_sql("SHOW STATUS LIKE 'Handler_read%%'").all()
    assert sum(int(count) for _, count in read) < 400, read


def test_key_8_a_prefix_index_merges_no_keys(mariadb_world: World) -> None:
    shelf = Shelf(mariadb_world, "isbn VARCHAR(90) NOT NULL, price INTEGER, UNIQUE (isbn(10))")
    shelf.store({"isbn": "0123456789a", "price": 1})
    shelf.store({"isbn": "0123456789b", "price": 2}, {"isbn": "0123456789a", "price": 3})
    assert shelf.rows("isbn, price") == [("0123456789a", 3)]
    assert shelf.refused() == [("0123456789b", "OtherUniqueIndex", "isbn", "0123456789b")]


@pytest.mark.parametrize("kind", ["TINYINT", "TINYINT UNSIGNED"])
def test_ids_that_run_out_overwrite_nothing(mariadb_world: World, kind: str) -> None:
    create = (
        f"id {kind} PRIMARY KEY AUTO_INCREMENT, isbn VARCHAR(20) NOT NULL UNIQUE, price INTEGER"
    )
    shelf = Shelf(mariadb_world, create)
    last = 127 if kind == "TINYINT" else 255
    for _ in range(3):  # an upsert would use up as many ids every time
        shelf.store(*({"isbn": f"{n:03}", "price": n} for n in range(last - 1)))
    assert shelf.refused() == []
    before = shelf.rows("isbn, price")
    shelf.store({"isbn": "new", "price": -1}, {"isbn": "newer", "price": -2})
    shelf.store({"isbn": "newest", "price": -3}, {"isbn": "000", "price": 9})
    rows = shelf.rows("isbn, price")
    assert [row for row in rows if row in before] == before[1:]
    assert ("000", 9) in rows  # MariaDB gives the very last id to nobody
    assert len(rows) in (last - 1, last)
    classes = {(error, column) for _, error, column, _ in shelf.refused()}
    assert classes == {("IdsUsedUp", "id")}


def test_an_id_with_room_takes_the_fast_way(
    mariadb_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = "id INTEGER PRIMARY KEY AUTO_INCREMENT, isbn VARCHAR(20) NOT NULL UNIQUE"
    shelf = Shelf(mariadb_world, create)
    shelf.store({"isbn": "1"})
    assert not shelf.writer._targets["book"].careful
    mariadb_world.sql("ALTER TABLE book AUTO_INCREMENT = 2000000000")
    shelf.writer = shelf.another()
    shelf.store({"isbn": "1"})
    assert shelf.writer._targets["book"].careful


def test_a_key_that_somebody_else_inserts_meanwhile(mariadb_world: World) -> None:
    shelf = Shelf(mariadb_world, TWO)
    shelf.store({"isbn": "1", "slug": "a"})
    from scrapy_resume.store.items.sending import Sender

    known = Sender.known
    looks = []

    def blind(self: Sender, part: Any) -> Any:
        looks.append(part)
        return set() if len(looks) == 1 else known(self, part)

    Sender.known = blind  # type: ignore[method-assign]
    try:
        shelf.store({"isbn": "1", "slug": "b", "price": 2}, {"isbn": "2", "slug": "c"})
    finally:
        Sender.known = known  # type: ignore[method-assign]
    assert shelf.rows("isbn, slug, price") == [("1", "b", 2), ("2", "c", None)]
    assert shelf.refused() == []


@pytest.mark.parametrize("update", ["all", ["slug"], None])
def test_a_check_looks_at_rows_that_change_nothing(world: World, update: Any) -> None:
    shelf = Shelf(world, TWO + ", CHECK (price >= 0)", options={"update": update})
    shelf.store({"isbn": "1", "slug": "a", "price": 1})
    for _ in range(2):
        shelf.store({"isbn": "1", "slug": "a", "price": -1}, {"isbn": "2", "slug": "b"})
    assert shelf.rows("isbn, slug, price") == [("1", "a", 1), ("2", "b", None)]
    assert [row[:2] for row in shelf.refused()] == [("1", "Check")] * 2
