"""``scrapy resume relay``: a disk that came back, and what cannot be relayed."""

from __future__ import annotations

from pathlib import Path

import pytest

from scrapy_resume.store import operations
from scrapy_resume.store.leases import ClaimedShard
from scrapy_resume.worker import WorkerSlot
from tests.commands.conftest import Scrapy
from tests.store.journals import Slot
from tests.store.worlds import World, page

NOTHING = {
    "pages": 0, "items": 0, "rejected": 0, "stored": 0, "held": 0, "salvaged": 0, "inserted": 0,
    "dropped": 0, "unread": 0,
}  # fmt: skip


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """One kind of database: the replay itself is tested on both."""
    return sqlite_url


@pytest.fixture
def slot(world: World, tmp_path: Path) -> Slot:
    """A slot on a disk that came back: its shards are those of worker ``w``."""
    (tmp_path / "disk").mkdir()
    return Slot(world, tmp_path / "disk" / "slot-0")


def lost(world: World, slot: Slot) -> tuple[ClaimedShard, ClaimedShard]:
    """A shard that nobody has taken over yet, with 2 pages, and one that somebody has, with 1."""
    ours, lost = world.claim(world.plan(2))
    slot.hold(ours, lost)
    slot.write(page(ours, 1), page(ours, 2), page(lost, 1))
    world.sql(f"UPDATE resume_task_shard SET fencing_token = 7 WHERE id = {lost.id}")
    return ours, lost


@pytest.mark.parametrize("what", ["home", "slot", "file"])
def test_a_disk_that_came_back(resume: Scrapy, world: World, slot: Slot, what: str) -> None:
    ours, _ = lost(world, slot)
    path = {"home": slot.directory.parent, "slot": slot.directory, "file": slot.path}[what]
    outcome = resume("relay", "--journal", str(path))
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out == (
        f"{slot.path}: 2 page(s) with 4 item(s) committed, 1 page(s) salvaged, with 2 new"
        " item(s).\n"
    )
    assert world.shard(ours.id).cur_page == 2
    assert len(world.items()) == 6
    acts = [act for _, act in operations.find(world.db, 1) if act.kind == "salvage"]
    assert [act.actor.startswith("scrapy resume relay by ") for act in acts] == [True]
    again = resume("relay", "--journal", str(path))
    assert again.out == f"{slot.path} holds nothing that is not stored.\n"


def test_what_it_would_do(resume: Scrapy, world: World, slot: Slot) -> None:
    lost(world, slot)
    told = resume("relay", "--journal", str(slot.path), "--dry-run")
    assert "2 page(s) with 4 item(s) committed, 1 page(s) salvaged" in told.out
    assert told.out.endswith("nothing was changed (--dry-run).\n")
    assert resume("relay", "--journal", str(slot.path), "--dry-run", "--json").json == {
        "dry_run": True,
        "journals": [
            NOTHING | {"path": str(slot.path), "refused": None, "pages": 2, "items": 4,
                       "salvaged": 1}
        ],
    }  # fmt: skip
    assert (world.items(), slot.left()) == ({}, 3)


def test_a_slot_in_use_is_refused(resume: Scrapy, world: World, slot: Slot) -> None:
    lost(world, slot)
    living = WorkerSlot.take(slot.directory.parent)
    assert living.directory == slot.directory
    try:
        outcome = resume("relay", "--journal", str(slot.directory))
    finally:
        living.free()
    assert outcome.code == 1
    assert "is not relayed: a process works in its slot, and stores it by itself." in outcome.out
    assert (world.items(), slot.left()) == ({}, 3)


def test_a_journal_of_another_database_is_refused(resume: Scrapy, world: World, slot: Slot) -> None:
    lost(world, slot)
    world.sql("UPDATE resume_meta SET value = 'ffffffffffff' WHERE name = 'database_id'")
    outcome = resume("relay", "--journal", str(slot.directory), "--json")
    assert outcome.code == 1
    (one,) = outcome.json["journals"]
    assert "it is of another database than sqlite:///" in one["refused"]
    assert [path.name for path in slot.directory.glob("journal*")] == ["journal.db"]
    assert world.items() == {}


def test_a_table_that_is_gone_is_named_and_the_journal_stays(
    resume: Scrapy, world: World, slot: Slot
) -> None:
    from scrapy_resume.store.items.table import ItemTable, Row

    slot.declare(ItemTable("book", ["isbn"]))
    (one,) = world.claim(world.plan(1))
    slot.write(page(one, 1, Row("book", ("1",), {"isbn": "1"})))
    outcome = resume("relay", "--journal", str(slot.path))
    assert outcome.code == 1
    assert "the item table book does not exist" in outcome.out
    assert slot.left() == 1


def test_a_journal_of_a_newer_version_is_refused(resume: Scrapy, world: World, slot: Slot) -> None:
    lost(world, slot)
    slot.meta["tables"] = '{"tables": [], "v": 99}'
    slot.write()
    for more in ((), ("--dry-run",)):
        outcome = resume("relay", "--journal", str(slot.path), *more)
        assert (outcome.code, outcome.err) == (1, "")
        assert "is not understood: a newer version wrote it" in outcome.out
    assert slot.left() == 3


def test_what_was_set_aside_is_relayed_too(resume: Scrapy, world: World, slot: Slot) -> None:
    ours, _ = lost(world, slot)
    journal = slot.open()
    journal.set_aside("refused")
    outcome = resume("relay", "--journal", str(slot.directory.parent))
    assert "journal-" in outcome.out and "2 page(s) with 4 item(s) committed" in outcome.out
    assert world.shard(ours.id).cur_page == 2


def test_mistakes_are_one_line(resume: Scrapy, scrapy: Scrapy, world: World, slot: Slot) -> None:
    empty = slot.directory.parent
    outcome = resume("relay", "--journal", str(empty))
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err.startswith(f"scrapy resume: there is no journal at {empty}; ")
    assert resume("relay").code == 2
    lost(world, slot)
    nowhere = f"sqlite:///{empty / 'none.db'}"
    outcome = scrapy("resume", "relay", "--journal", str(slot.path), RESUME_DATABASE_URL=nowhere)
    assert outcome.code == 1 and outcome.err.count("\n") == 1
    assert not (empty / "none.db").exists()
