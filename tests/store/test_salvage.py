"""Salvage: rows of lost pages are inserted where their key is absent, and nothing else happens."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scrapy_resume import faults
from scrapy_resume.exceptions import ConfigurationError, InjectedFault
from scrapy_resume.store import operations
from scrapy_resume.store.items.table import ItemTable, Row, default_row, digest_key
from scrapy_resume.store.leases import ClaimedShard, reclaim_worker
from scrapy_resume.store.quarantine import QuarantineRecord
from scrapy_resume.store.records import PageRecord
from scrapy_resume.store.salvage import Loss, Salvaged, drop, salvage
from scrapy_resume.store.standings import standings
from tests.store.worlds import World, item, page

BOOK = ItemTable("book", ["isbn"])


def taken_over(world: World) -> tuple[ClaimedShard, ClaimedShard]:
    """A shard as its former owner knows it, and as its new one does."""
    task = world.plan(1)
    (old,) = world.claim(task, worker="w", instance="first")
    reclaim_worker(world.db, worker="w", instance="second")
    (new,) = world.claim(task, worker="v", instance="other")
    return old, new


def save(world: World, *pages: PageRecord, tables: tuple[ItemTable, ...] = ()) -> Salvaged:
    first = pages[0]
    loss = Loss("taken over", first.shard_id, first.fencing_token, 1, 1)
    return salvage(world.db, pages, loss, tables=tables, actor="a test")


def notes(world: World) -> list[operations.Operation]:
    return [one for _, one in operations.find(world.db, 1) if one.kind == "salvage"]


def book(world: World) -> None:
    exact = "COLLATE utf8mb4_nopad_bin" if world.db.dialect == "mysql" else ""
    world.sql(
        f"CREATE TABLE book (isbn VARCHAR(20) {exact} NOT NULL PRIMARY KEY, title VARCHAR(10),"
        " price INTEGER, seen DATETIME)" + " CHARACTER SET utf8mb4" * bool(exact)
    )


def test_absent_rows_are_inserted_and_present_ones_stay(world: World) -> None:
    old, new = taken_over(world)
    world.commit(page(new, 1, item("a", price=9)))
    before = world.shard(new.id)
    done = save(world, page(old, 1, item("a", price=1), item("b", price=2)), page(old, 7))
    assert done == Salvaged(inserted=3, present=1)
    assert world.items()["a"]["price"] == 9
    assert set(world.items()) == {"a", "b", "s1-7-1", "s1-7-2"}
    assert world.shard(new.id) == before
    (note,) = notes(world)
    assert (note.actor, note.reason, note.task_id, note.shard_no) == ("a test", "taken over", 1, 1)
    assert note.before == f"token {old.fencing_token} of shard 1: pages 1,7 with 4 items"
    assert note.after == "3 items inserted, 1 were there"


def test_repeating_it_changes_nothing(world: World) -> None:
    old, new = taken_over(world)
    pages = [page(old, 1), page(old, 2)]
    save(world, *pages)
    world.commit(page(new, 1, item("s1-1-1", price=5)))
    before = world.items(), world.shard(new.id)
    assert save(world, *pages) == Salvaged(present=4)
    assert (world.items(), world.shard(new.id)) == before
    assert len(notes(world)) == 1


def test_a_death_in_between_leaves_nothing(world: World) -> None:
    old, _ = taken_over(world)
    faults.arm("salvage.before:1:raise")
    try:
        with pytest.raises(InjectedFault):
            save(world, page(old, 1))
    finally:
        faults.arm(None)
    assert (world.items(), notes(world)) == ({}, [])
    assert save(world, page(old, 1)).inserted == 2


def test_of_several_readings_the_last_one_counts(world: World) -> None:
    old, _ = taken_over(world)
    book(world)
    rows = [
        Row("book", ("1",), {"isbn": "1", "title": "old", "price": 3}),
        Row("book", ("1",), {"isbn": "1", "title": "new"}),
    ]
    done = save(world, page(old, 1, item("k", n=1), rows[0]), page(old, 2, item("k", n=2), rows[1]),
                tables=(BOOK,))  # fmt: skip
    assert done == Salvaged(inserted=2)
    assert world.items()["k"] == {"key": "k", "n": 2}
    assert world.sql("SELECT title, price FROM book") == [("new", 3)]


@pytest.mark.parametrize(
    "table",
    [
        BOOK,
        ItemTable("book", ["isbn"], update=["price"]),
        ItemTable("book", ["isbn"], update=None),
        ItemTable("book", ["isbn"], newer_by="seen"),
    ],
    ids=["all", "listed", "none", "newer"],
)
def test_a_table_of_the_user_keeps_its_rows(world: World, table: ItemTable) -> None:
    old, _ = taken_over(world)
    book(world)
    world.sql("INSERT INTO book (isbn, title, price) VALUES ('2', 'there', 1)")
    rows = [
        Row("book", (key,), {"isbn": key, "title": "late", "price": 7, "seen": "2030-01-01"})
        for key in ("3", "2", "1")
    ]
    assert save(world, page(old, 1, *rows), tables=(table,)) == Salvaged(inserted=2, present=1)
    found = world.sql("SELECT isbn, title, price FROM book ORDER BY isbn")
    assert found == [("1", "late", 7), ("2", "there", 1), ("3", "late", 7)]


def test_refused_rows_are_left_out_and_counted(world: World) -> None:
    old, _ = taken_over(world)
    book(world)
    rows = [
        Row("book", ("1",), {"isbn": "1", "title": "x" * 300}),
        Row("book", ("2",), {"isbn": "2", "colour": "no such field"}),
        Row("book", ("3",), {"isbn": "3", "title": "good"}),
    ]
    done = save(world, page(old, 1, *rows), tables=(BOOK,))
    assert done == Salvaged(inserted=1, refused=2)
    assert world.sql("SELECT isbn FROM book") == [("3",)]
    assert world.sql("SELECT * FROM resume_quarantine") == []


def test_items_without_a_declared_key_are_left_out_and_it_is_said(world: World) -> None:
    old, _ = taken_over(world)
    keyless = default_row("books", digest_key('{"price": 1}'), '{"price": 1}')
    assert save(world, page(old, 1, keyless, item("a"))) == Salvaged(inserted=1, keyless=1)
    assert set(world.items()) == {"a"}
    (note,) = notes(world)
    assert note.after is not None and "1 left out, which have no declared key" in note.after


def test_what_was_set_aside_is_not_written_again(world: World) -> None:
    old, _ = taken_over(world)
    aside = QuarantineRecord(1, old.id, 1, 1, "item", None, "k", "ValueError", "bad")
    save(world, page(old, 1, item("a"), quarantine=(aside,)))
    assert world.sql("SELECT * FROM resume_quarantine") == []


def test_a_table_that_is_gone_is_said_by_name(world: World) -> None:
    old, _ = taken_over(world)
    row = Row("book", ("1",), {"isbn": "1"})
    with pytest.raises(ConfigurationError, match="the item table book does not exist"):
        save(world, page(old, 1, item("a"), row), tables=(BOOK,))
    assert (world.items(), notes(world)) == ({}, [])


def test_dropped_pages_are_on_record(world: World) -> None:
    old, _ = taken_over(world)
    loss = Loss("put back", old.id, old.fencing_token, 1, 1)
    drop(world.db, [page(old, 3), page(old, 4)], loss, actor="a test")
    drop(world.db, [page(old, 3), page(old, 4)], loss, actor="a test")
    (note,) = notes(world)
    assert (note.reason, note.after) == ("put back", "dropped")
    drop(world.db, [page(old, 3)], replace(loss, task_id=None, shard_no=None), actor="a test")
    assert world.sql("SELECT COUNT(*) FROM resume_operation WHERE task_id IS NULL") == [(1,)]
    assert world.items() == {}


def test_who_holds_a_shard_now(world: World) -> None:
    old, new = taken_over(world)
    found = standings(world.db, [old.id, 99])
    assert list(found) == [old.id]
    now = found[old.id]
    assert (now.task_id, now.shard_no, now.shard_key) == (1, 1, "s1")
    assert not now.is_held(old.fencing_token, "w")
    assert now.is_held(new.fencing_token, "v") and now.is_held(new.fencing_token, None)
    assert not now.is_held(new.fencing_token, "w")
