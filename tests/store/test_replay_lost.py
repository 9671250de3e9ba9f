"""Journals whose shards are others' by now, and databases that are older than the journal."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from scrapy_resume import recordreplay
from scrapy_resume.journalreplay import Replayed
from scrapy_resume.page import Shard
from scrapy_resume.store import acts, leases, tasks
from scrapy_resume.store.records import Finish, Release
from scrapy_resume.store.standings import standings
from scrapy_resume.watermark import PageRanges
from tests.store.journals import BOTH, Slot, database_url, died
from tests.store.worlds import World, item, page

__all__ = ["database_url"]  # a fixture

ACT = {"actor": "an operator", "reason": "told so"}


@BOTH
def test_pages_of_a_shard_that_was_taken_over_are_salvaged(world: World, slot: Slot) -> None:
    one, two = died(world, slot, 2)
    leases.reclaim_worker(world.db, worker="w", instance="elsewhere")
    world.sql("UPDATE resume_task_shard SET fencing_token = 1, status = 'running', worker = 'w',"
              " instance = 'w1', lease_until = created_at, due = 0 WHERE id = 2")  # fmt: skip
    slot.write(page(one, 1), page(two, 1), page(one, 2, item("new")),
               Finish(one.id, one.fencing_token, "done", "all read"))  # fmt: skip
    before = world.shard(one.id)
    assert slot.replay() == Replayed(pages=1, items=2, salvaged=2, inserted=3)
    assert world.shard(one.id) == before
    assert set(world.items()) == {"s1-1-1", "s1-1-2", "new", "s2-1-1", "s2-1-2"}
    (note,) = slot.notes()
    assert (note.reason, note.shard_no) == ("its shard is pending now", 1)
    assert slot.left() == 0


def test_large_pages_are_settled_in_small_portions(
    world: World, slot: Slot, monkeypatch: pytest.MonkeyPatch
) -> None:
    (one,) = died(world, slot)
    leases.reclaim_worker(world.db, worker="w", instance="elsewhere")
    slot.write(*(page(one, number) for number in (1, 2, 3)))
    monkeypatch.setattr(recordreplay, "_LOST_BYTES", 1)
    assert slot.replay() == Replayed(salvaged=3, inserted=6)
    assert len(slot.notes()) == 3


def test_the_new_owners_items_and_pages_stand(world: World, slot: Slot) -> None:
    task = world.plan(1)
    (one,) = world.claim(task)
    slot.hold(one)
    leases.reclaim_worker(world.db, worker="w", instance="elsewhere")
    (new,) = world.claim(task, worker="v", instance="v1")
    world.commit(page(new, 1, item("s1-1-1", price=9)), page(new, 2, item("s1-3-1", price=9)))
    slot.write(page(one, 1), page(one, 3))
    assert slot.replay() == Replayed(stored=1, salvaged=1, inserted=1)
    assert world.items()["s1-1-1"]["price"] == world.items()["s1-3-1"]["price"] == 9
    assert set(world.items()) == {"s1-1-1", "s1-3-1", "s1-3-2"}
    assert world.commit(page(new, 3)).positions[new.id].cur_page == 3


def test_a_token_of_the_same_worker_that_is_over(world: World, slot: Slot) -> None:
    """A released shard, claimed again by the same process: its first records are old."""
    task = world.plan(1)
    (first,) = world.claim(task)
    slot.hold(first)
    slot.write(page(first, 1), Release(first.id, first.fencing_token, "held"))
    world.commit(page(first, 1), Release(first.id, first.fencing_token, "held"))
    (second,) = world.claim(task)
    slot.hold(second)
    slot.write(page(first, 2), page(second, 2), page(second, 3))
    assert slot.replay() == Replayed(pages=2, items=4, stored=1)
    assert world.shard(second.id).cur_page == 3


def test_records_of_a_cancelled_run_are_salvaged(world: World, slot: Slot) -> None:
    (one,) = died(world, slot)
    acts.cancel(world.db, 1, **ACT)
    leases.reclaim_worker(world.db, worker="w", instance="elsewhere")
    assert tasks.finish_run(world.db, 1).finished_at is not None
    slot.write(page(one, 1), Finish(one.id, one.fencing_token, "done", "all read"))
    before = world.shard(one.id)
    assert slot.replay() == Replayed(salvaged=1, inserted=2)
    assert world.shard(one.id) == before and before.reason.startswith("cancelled")
    assert slot.notes()[0].reason == "its shard is failed now"


@pytest.mark.parametrize("act", ["restart", "reset", "backfill"])
@pytest.mark.parametrize("based", [True, False], ids=["base", "no base"])
def test_an_operators_fresh_start_is_not_undone(
    world: World, slot: Slot, act: str, based: bool
) -> None:
    (one,) = world.claim(world.plan(1))
    if based:
        slot.hold(one)
    world.commit(page(one, 1))
    slot.write(page(one, 2), page(one, 3))
    leases.reclaim_worker(world.db, worker="w", instance="elsewhere")
    if act == "backfill":
        acts.backfill(world.db, 1, PageRanges.parse("1"), **ACT)
    else:
        getattr(acts, act)(world.db, 1, **ACT)
    before, shards = world.items(), world.sql("SELECT * FROM resume_task_shard")
    assert slot.replay() == Replayed(dropped=2)
    assert (world.items(), world.sql("SELECT * FROM resume_task_shard")) == (before, shards)
    found = world.sql("SELECT task_id, reason, after FROM resume_operation WHERE kind = 'salvage'")
    ((task_id, reason, after),) = found
    assert task_id == (None if act == "reset" and not based else 1)
    assert ("no more" if act == "reset" else "put back") in reason
    assert after == "dropped"
    assert slot.left() == 0


def test_what_was_read_after_an_operators_act_is_salvaged(world: World, slot: Slot) -> None:
    task = world.plan(1)
    (one,) = world.claim(task)
    world.commit(page(one, 1), Release(one.id, one.fencing_token, "stopped"))
    acts.restart(world.db, task.id, **ACT)
    (again,) = world.claim(task)
    slot.hold(again)
    slot.write(page(again, 2))
    leases.reclaim_worker(world.db, worker="w", instance="elsewhere")
    assert slot.replay() == Replayed(salvaged=1, inserted=2)


@BOTH
def test_a_page_of_a_chain_that_is_not_next_is_left_out(world: World, slot: Slot) -> None:
    (one,) = world.claim(world.plan(1, ordered=True))
    slot.hold(one)
    following = [page(one, number, cursor=f'"{number}"') for number in (1, 3, 4)]
    slot.write(*following, Finish(one.id, one.fencing_token, "done", "no next page"))
    assert slot.replay() == Replayed(pages=1, items=2, salvaged=2, inserted=4)
    row = world.shard(one.id)
    assert (row.cur_page, row.cursor, row.status) == (1, '"1"', "running")
    assert slot.notes()[0].reason == "the page before it is not stored"


def test_a_shard_that_is_taken_over_in_between(
    world: World, slot: Slot, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = died(world, slot, 2)
    slot.write(page(one, 1), page(two, 1))

    def and_then(*args: Any) -> Any:
        found = standings(*args)
        world.sql(f"UPDATE resume_task_shard SET fencing_token = 7 WHERE id = {one.id}")
        return found

    monkeypatch.setattr(recordreplay, "standings", and_then)
    assert slot.replay() == Replayed(pages=1, items=2, salvaged=1, inserted=2)
    assert (world.shard(one.id).cur_page, world.shard(two.id).cur_page) == (0, 1)


@BOTH
def test_a_database_that_is_older_than_the_journal_is_caught_up(world: World, slot: Slot) -> None:
    """It lacks pages 1 to 4, which were committed and forgotten; the journal has the rest."""
    task = world.plan([Shard("s1", 1, 8), Shard("s2", 1, None)])
    one, two = world.claim(task)
    older = world.sql("SELECT * FROM resume_task_shard ORDER BY id")
    for number in range(1, 5):
        world.commit(page(one, number), page(two, number))
    committed = [replace(each, position=world.positions[each.id]) for each in (one, two)]
    slot.hold(*committed)
    _restore(world, older)
    slot.write(*(page(one, number) for number in range(5, 9)),
               Finish(one.id, one.fencing_token, "done", "all read"),
               Finish(two.id, two.fencing_token, "done", "the list ended"))  # fmt: skip
    assert slot.replay() == Replayed(pages=4, items=8)
    rows = world.shard(one.id), world.shard(two.id)
    assert [row.status for row in rows] == ["running", "running"]
    assert (rows[0].cur_page, rows[0].ahead, rows[1].cur_page) == (0, "5-8", 0)
    leases.reclaim_worker(world.db, worker="w", instance="w2")
    first, second = world.claim(task)
    assert list(first.position.missing(8)) == [1, 2, 3, 4]
    for number in range(1, 5):
        world.commit(page(first, number), page(second, number))
    ends = [Finish(one.id, one.fencing_token, "done", "read") for one in (first, second)]
    assert set(world.commit(*ends).statuses.values()) == {"done"}
    assert len(world.items()) == 8 * 2 + 4 * 2


def test_a_claim_that_the_database_does_not_know_is_salvaged(world: World, slot: Slot) -> None:
    task = world.plan(1)
    older = world.sql("SELECT * FROM resume_task_shard")
    (one,) = world.claim(task)
    slot.hold(one)
    slot.write(page(one, 1))
    _restore(world, older)
    assert slot.replay() == Replayed(salvaged=1, inserted=2)
    assert slot.notes()[0].reason == "the database is older than the journal"


def test_an_id_that_was_given_a_second_time_gets_no_strange_pages(world: World, slot: Slot) -> None:
    """After a restore the same id and token may be another list's."""
    (one,) = died(world, slot)
    slot.write(page(one, 1))
    world.sql("UPDATE resume_task_shard SET shard_key = 'another list'")
    before = world.shard(one.id)
    assert slot.replay() == Replayed(dropped=1)
    assert (world.shard(one.id), world.items()) == (before, {})


def test_or_another_workers(world: World, slot: Slot) -> None:
    (one,) = world.claim(world.plan(1), worker="another", instance="another1")
    slot.write(page(one, 1))
    before = world.shard(one.id)
    assert slot.replay() == Replayed(salvaged=1, inserted=2)
    assert world.shard(one.id) == before


def _restore(world: World, rows: list[object]) -> None:
    """The shards' rows as they were, and no items."""
    world.sql("DELETE FROM resume_item")
    for row in rows:
        values = row._asdict()  # type: ignore[attr-defined]
        sets = ", ".join(f"{world.db.engine.dialect.identifier_preparer.quote(name)} = :{name}"
                         for name in values if name != "id")  # fmt: skip
        world.sql(f"UPDATE resume_task_shard SET {sets} WHERE id = :id", **values)
