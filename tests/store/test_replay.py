"""The replay of a dead worker's journal: everything, in order, once, and in little memory."""

from __future__ import annotations

import math
import shutil
import tracemalloc
from pathlib import Path

import pytest

from scrapy_resume import journalreplay
from scrapy_resume.exceptions import StoreUnavailable
from scrapy_resume.journal import Journal
from scrapy_resume.journalreplay import Replayed
from scrapy_resume.page import Shard
from scrapy_resume.store import leases, meta, repeats, tasks
from scrapy_resume.store.items.table import ItemTable, Row
from scrapy_resume.store.records import Finish, Release
from tests.proxy import Proxy
from tests.store.journals import BOTH, Slot, database_url, died
from tests.store.worlds import World, failure, item, page

__all__ = ["database_url"]  # a fixture

BOOK = ItemTable("book", ["isbn"])


def stands(world: World, shard_id: int) -> dict[str, object]:
    """The row of a shard without when it was last touched."""
    return {**world.shard(shard_id)._mapping, "updated_at": None}


@BOTH
def test_everything_that_was_said_comes_in_order(world: World, slot: Slot) -> None:
    one, two, three = died(world, slot, 3)
    slot.write(
        page(one, 1), page(two, 2), failure(two, 3), page(one, 2), page(three, 1),
        Release(three.id, three.fencing_token, "stopped"), page(two, 1),
    )  # fmt: skip
    assert slot.replay() == Replayed(pages=5, items=10)
    assert (world.shard(one.id).cur_page, world.shard(one.id).status) == (2, "running")
    assert (world.shard(two.id).cur_page, world.shard(two.id).failed_pages) == (2, "3")
    assert (world.shard(three.id).cur_page, world.shard(three.id).status) == (1, "pending")
    assert len(world.items()) == 10
    assert slot.left() == 0
    stood = {number: base.position.cur_page for number, base in slot.bases().items()}
    assert stood == {one.id: 2, two.id: 2}
    assert slot.notes() == []


def test_a_finish_comes_after_its_pages(world: World, slot: Slot) -> None:
    task = world.plan([Shard("s1", 1, 30)])
    (one,) = world.claim(task)
    slot.hold(one)
    done = Finish(one.id, one.fencing_token, "done", "all read")
    slot.write(*(page(one, number) for number in range(1, 31)), done)
    assert slot.replay().pages == 30
    assert (world.shard(one.id).status, world.shard(one.id).cur_page) == ("done", 30)
    assert tasks.finish_run(world.db, task.id).verdict == "complete"


def test_what_is_stored_already_changes_nothing(world: World, slot: Slot) -> None:
    one, two = died(world, slot, 2)
    release = Release(two.id, two.fencing_token, "stopped")
    slot.write(page(one, 1), page(one, 2), page(two, 1), release)
    shutil.copytree(slot.directory, slot.directory.with_name("copy"))
    slot.replay()
    world.sql("DELETE FROM resume_item WHERE item_key = 's1-1-1'")
    before = (world.items(), stands(world, one.id), stands(world, two.id))
    again = Slot(world, slot.directory.with_name("copy"))
    assert again.replay() == Replayed(stored=3)
    assert (world.items(), stands(world, one.id), stands(world, two.id)) == before
    assert again.left() == 0


def test_the_next_owner_reads_nothing_that_was_journalled(world: World, slot: Slot) -> None:
    task = world.plan(1)
    (one,) = world.claim(task)
    slot.hold(one)
    slot.write(page(one, 1), page(one, 2), page(one, 5))
    slot.replay()
    leases.reclaim_worker(world.db, worker="w", instance="w2")
    (again,) = world.claim(task, instance="w2")
    assert list(again.position.missing(7)) == [3, 4, 6, 7]


def shelf(world: World) -> None:
    exact = "COLLATE utf8mb4_nopad_bin" if world.db.dialect == "mysql" else ""
    world.sql(
        f"CREATE TABLE book (isbn VARCHAR(20) {exact} NOT NULL PRIMARY KEY, title VARCHAR(10))"
        + " CHARACTER SET utf8mb4" * bool(exact)
    )


def books(*titles: str) -> list[Row]:
    return [Row("book", (title,), {"isbn": title[:20], "title": title}) for title in titles]


def test_rows_that_are_refused_go_to_quarantine(world: World, slot: Slot) -> None:
    shelf(world)
    slot.declare(BOOK)
    (one,) = died(world, slot)
    slot.write(page(one, 1, *books("good", "x" * 15)), page(one, 2, *books("fine")))
    assert slot.replay() == Replayed(pages=2, items=2, rejected=1)
    assert sorted(world.sql("SELECT isbn FROM book")) == [("fine",), ("good",)]
    ((kind, number),) = world.sql("SELECT kind, page FROM resume_quarantine")
    assert (kind, number) == ("row", 1)
    assert world.shard(one.id).cur_page == 2


@BOTH
@pytest.mark.parametrize("told", ["hold", ""])
def test_or_hold_their_page_which_is_read_again(world: World, slot: Slot, told: str) -> None:
    shelf(world)
    slot.declare(BOOK)
    slot.meta["on_failed_record"] = told
    task = world.plan([Shard("s1", 1, 25)])
    (one,) = world.claim(task)
    slot.hold(one)
    bad = page(one, 2, *books("good", "x" * 15))
    slot.write(page(one, 1), bad, *(page(one, number) for number in range(3, 26)),
               Finish(one.id, one.fencing_token, "done", "all read"))  # fmt: skip
    assert slot.replay() == Replayed(pages=24, items=48, held=1)
    row = world.shard(one.id)
    assert (row.status, row.cur_page, row.ahead, row.failed_pages) == ("running", 1, "3-25", "2")
    assert world.sql("SELECT * FROM book") == []
    leases.reclaim_worker(world.db, worker="w", instance="w2")
    (again,) = world.claim(task)
    assert list(again.position.missing(25)) == [2]


def test_a_held_page_at_the_end_keeps_a_list_unfinished(world: World, slot: Slot) -> None:
    """Nothing behind it tells that it is missing, and the finish comes in a later group."""
    shelf(world)
    slot.declare(BOOK)
    slot.meta["on_failed_record"] = "hold"
    (one,) = world.claim(world.plan([Shard("s1", 1, None)]))
    slot.write(*(page(one, number) for number in range(1, 20)), page(one, 20, *books("x" * 15)),
               Finish(one.id, one.fencing_token, "done", "the list ended"))  # fmt: skip
    assert slot.replay() == Replayed(pages=19, items=38, held=1)
    assert (world.shard(one.id).status, world.shard(one.id).failed_pages) == ("running", "20")


def test_a_finish_alone_is_not_believed(world: World, slot: Slot) -> None:
    (one,) = world.claim(world.plan([Shard("s1", 1, 4)]))
    slot.write(page(one, 1), Finish(one.id, one.fencing_token, "done", "all read"))
    assert slot.replay() == Replayed(pages=1, items=2)
    assert world.shard(one.id).status == "running"


def test_a_journal_of_another_database_is_left_alone(
    world: World, slot: Slot, tmp_path: Path
) -> None:
    (one,) = died(world, slot)
    slot.write(page(one, 1))
    ours = meta.database_id(world.db)
    world.sql("UPDATE resume_meta SET value = 'ffffffffffff' WHERE name = 'database_id'")
    assert slot.replay() == Replayed()
    assert world.items() == {}
    assert [path.name for path in slot.directory.iterdir()] == ["journal.db"]
    # A process of that other database finds it in the way; when ours come back they find it.
    slot.open().close()
    assert len(list(slot.directory.glob("journal-*-foreign.db"))) == 1
    slot.path.unlink()
    world.sql("DELETE FROM resume_meta WHERE name = 'database_id'")
    world.sql("INSERT INTO resume_meta (name, value) VALUES ('database_id', :id)", id=ours)
    assert slot.replay() == Replayed(pages=1, items=2)
    assert [path.name for path in slot.directory.glob("journal*")] == []


def test_a_table_that_is_gone_does_not_keep_the_slot_from_working(
    world: World, slot: Slot, caplog: pytest.LogCaptureFixture
) -> None:
    slot.declare(BOOK)
    (one,) = died(world, slot)
    slot.write(page(one, 1), page(one, 2, *books("a")))
    assert slot.replay() == Replayed()
    assert "the item table book does not exist" in caplog.text
    (aside,) = slot.directory.glob("journal-*-refused.db")
    assert not slot.path.exists()
    ((actor, reason),) = world.sql(
        "SELECT actor, reason FROM resume_operation WHERE kind = 'journal_refused'"
    )
    assert actor == "a test" and "2 pages of a journal" in reason
    assert slot.replay() == Replayed()
    shelf(world)  # mended: it can be replayed by hand
    again = Slot(world, slot.directory.with_name("slot-7"))
    again.directory.mkdir()
    aside.rename(again.path)
    assert again.replay() == Replayed(pages=2, items=3)


def test_a_record_of_a_newer_version_is_kept_aside(world: World, slot: Slot) -> None:
    one, two = died(world, slot, 2)
    journal = slot.open()
    journal.append([(one.id, one.fencing_token, "page", 1, b'{"version": 999999}')])
    journal.close()
    slot.write(page(one, 2), page(two, 1))
    assert slot.replay() == Replayed(pages=1, items=2, unread=2)
    assert (world.shard(one.id).cur_page, world.shard(one.id).ahead) == (0, "")
    assert len(list(slot.directory.glob("journal-*-refused.db"))) == 1


def test_without_a_journal_nothing_happens(world: World, slot: Slot) -> None:
    slot.directory.mkdir()
    assert slot.replay() == Replayed()
    assert list(slot.directory.iterdir()) == []


def test_few_records_are_in_memory_at_a_time(
    world: World, slot: Slot, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, lost = died(world, slot, 2)
    world.sql(f"UPDATE resume_task_shard SET last_page = NULL, fencing_token = id - {ours.id} + 1")
    slot.write(*(page(shard, number, item(f"{shard.id}-{number}"))
                 for number in range(1, 121) for shard in (ours, lost)))  # fmt: skip
    counts: list[int] = []
    for name in ("entries", "read"):
        real = getattr(Journal, name)
        monkeypatch.setattr(
            Journal, name, lambda *args, real=real: [counts.append(len(f := real(*args))), f][1]
        )
    assert slot.replay() == Replayed(pages=120, items=120, salvaged=120, inserted=120)
    assert max(counts) <= 50
    assert len(slot.notes()) == 3  # one for each 50 pages


@pytest.mark.stress
def test_thousands_of_pages_do_not_fill_the_memory(world: World, slot: Slot) -> None:
    ours, lost = died(world, slot, 2)
    world.sql(f"UPDATE resume_task_shard SET last_page = NULL, fencing_token = id - {ours.id} + 1")
    text = "x" * 20_000
    for at in range(1, 2001, 100):
        slot.write(*(page(shard, number, item(f"{shard.id}-{number}", text=text))
                     for number in range(at, at + 100) for shard in (ours, lost)))  # fmt: skip
    tracemalloc.start()
    try:
        done = slot.replay()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert done == Replayed(pages=2000, items=2000, salvaged=2000, inserted=2000)
    assert peak < 8_000_000, f"{peak} bytes for {4000 * len(text)} in the journal"


def test_a_crawl_that_ends_does_not_wait_for_all_of_it(world: World, slot: Slot) -> None:
    (one,) = died(world, slot)
    slot.write(*(page(one, number) for number in range(1, 41)))
    world.db.deadline = 0.0
    with pytest.raises(StoreUnavailable, match="ends before"):
        slot.replay()
    world.db.deadline = math.inf
    assert slot.replay() == Replayed(pages=20, items=40)


def test_leases_are_renewed_while_a_journal_is_replayed(world: World, slot: Slot) -> None:
    (one,) = died(world, slot)
    slot.write(page(one, 1))
    world.sql("UPDATE resume_task_shard SET lease_until = created_at")
    assert leases.expired_holders(world.db) == {"w1"}
    slot.replay(holders=["w1"], lease=60.0)
    assert leases.expired_holders(world.db) == set()


def test_a_database_that_goes_away_leaves_the_rest_in_the_journal(
    relayed: World,
    mariadb_world: World,
    proxy: Proxy,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slot = Slot(mariadb_world, tmp_path / "slot-0")
    one, two = died(mariadb_world, slot, 2)
    mariadb_world.sql("UPDATE resume_task_shard SET fencing_token = 7 WHERE id = :id", id=two.id)
    slot.write(*(page(shard, number) for number in range(1, 41) for shard in (one, two)))
    again = journalreplay.steps(relayed.db, slot.directory, actor="a test")
    next(again)
    monkeypatch.setattr(repeats, "AWAY_FOR", 0.1)
    proxy.leave()
    with pytest.raises(StoreUnavailable):
        list(again)
    assert slot.left() == 80
    assert slot.replay() == Replayed(pages=30, items=60, stored=10, salvaged=40, inserted=80)
    assert slot.left() == 0
