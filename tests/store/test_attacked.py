"""Records that come late, out of order or from a claim that is over, and leases that ended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any, cast

import pytest
from sqlalchemy import update
from twisted.internet.defer import Deferred

from scrapy_resume.committer import Committer, GroupLimits, Outcome
from scrapy_resume.exceptions import RunRefused
from scrapy_resume.outage import Outage
from scrapy_resume.page import ErrorKind
from scrapy_resume.store import attendance, checkpoints, leases, quarantine, tasks
from scrapy_resume.store.checkpoints import Finish, PageRecord, Record, Release
from scrapy_resume.store.items import ItemWriter
from scrapy_resume.store.items.table import Row
from scrapy_resume.store.leases import ClaimedShard
from scrapy_resume.store.quarantine import QuarantineRecord
from scrapy_resume.threads import StoreThread
from tests.store.worlds import World, item, page

# Chains


def test_a_chain_does_not_pass_over_a_page_that_an_earlier_group_refused(world: World) -> None:
    """The pages behind it were queued already and come with the next group."""
    (one,) = world.claim(world.plan(1, ordered=True))
    world.commit(page(one, 1, cursor='"p2"'))
    refused = world.commit(page(one, 2, _poison(), cursor='"p3"'), hold_records=True)
    assert [number for _, number, _ in refused.held] == [2]
    later = world.commit(
        page(one, 3, cursor='"p4"'), page(one, 4, cursor='"p5"'), hold_records=True
    )
    assert [(number, why.error_class, why.kind) for _, number, why in later.held] == [
        (3, "NotInOrder", ErrorKind.RETRYABLE), (4, "NotInOrder", ErrorKind.RETRYABLE)
    ]  # fmt: skip
    row = world.shard(one.id)
    assert (row.cur_page, row.ahead, row.cursor, row.page_count) == (1, "", '"p2"', 1)
    assert set(world.items()) == {"s1-1-1", "s1-1-2"}


def test_the_last_page_of_a_chain_does_not_end_it_over_a_hole(world: World) -> None:
    """It has no cursor: that it belongs to a chain must be said."""
    (one,) = world.claim(world.plan(1, ordered=True))
    world.commit(page(one, 1, cursor='"p2"'))
    last = page(one, 3, ordered=True, ends=True)
    result = world.commit(last, Finish(one.id, one.fencing_token, "done", "no next page"))
    assert [number for _, number, _ in result.held] == [3]
    assert result.statuses == {}
    row = world.shard(one.id)
    assert (row.status, row.cur_page, row.ahead, row.last_page) == ("running", 1, "", 100)


def test_a_chain_that_was_held_goes_on_at_the_same_page_and_cursor(world: World) -> None:
    task = world.plan(1, ordered=True)
    (one,) = world.claim(task)
    world.commit(page(one, 1, cursor='"p2"'))
    world.commit(page(one, 3, cursor='"p4"'))
    world.commit(Release(one.id, one.fencing_token, "page 2 held"))
    (again,) = world.claim(task)
    assert (again.position.cur_page, again.position.cursor) == (1, '"p2"')
    world.commit(page(again, 2, cursor='"p3"'), page(again, 3, cursor='"p4"'))
    row = world.shard(one.id)
    assert (row.cur_page, row.cursor, row.page_count) == (3, '"p4"', 3)


# What a process leaves


def test_an_instance_that_ends_gives_back_what_it_holds_with_the_attempts(world: World) -> None:
    task = world.plan(3)
    one, two = world.claim(task, 2)
    (other,) = world.claim(task, 1, instance="w2")
    world.commit(page(one, 1))
    assert leases.release_instance(world.db, instance="w1") == [one.id, two.id]
    for claim in (one, two):
        row = world.shard(claim.id)
        assert (row.status, row.due, row.attempt_count) == ("pending", 1, 0)
        assert (row.worker, row.instance, row.lease_until) == (None, None, None)
        assert row.reason == "released: its process ended"
    assert world.commit(page(two, 1)).fenced == {two.id}, "what it may still send is void"
    assert world.shard(other.id).status == "running"
    assert leases.release_instance(world.db, instance="w1") == []
    assert [claim.id for claim in world.claim(task, instance="w3")] == [one.id, two.id]


def test_a_stop_during_a_claim_is_no_death(world: World) -> None:
    """However often: the shard is not given up, and not suspected of killing its process."""
    task = world.plan(1, max_attempts=2)
    for number in range(1, 5):
        (one,) = world.claim(task, instance=f"w{number}")
        assert (one.attempt_count, one.suspect) == (1, False)
        leases.release_instance(world.db, instance=f"w{number}")
    assert world.shard(one.id).status == "pending"


# Leases that ended


def test_a_run_whose_leases_ended_can_be_superseded(world: World) -> None:
    task = world.plan(2)
    (one,) = world.claim(task, 1)
    with pytest.raises(RunRefused, match="worked on by w until"):
        world.open("new")
    _end_leases(world)
    assert world.open("new").run_no == 2
    rows = world.sql("SELECT status, reason, worker, lease_until FROM resume_task_shard")
    assert rows == [("failed", "superseded by run 2", None, None)] * 2
    assert world.commit(page(one, 1)).fenced == {one.id}, "its owner may come back"
    assert world.items() == {}


def test_a_lease_that_ended_is_no_reason_not_to_join(world: World) -> None:
    task = world.plan(2)
    world.claim(task, 1)

    def others(instance: str) -> int:
        found = attendance.attend(world.db, task.id, instance=instance, lease=15, alone=True)
        return len(found)

    assert (others("other"), others("w1")) == (1, 0)
    _end_leases(world)
    assert others("other") == 0


# A record of an earlier claim in the group of a later one


@pytest.mark.parametrize("late", ["finish", "page"])
def test_a_record_of_an_earlier_claim_is_told_that_it_is_void(world: World, late: str) -> None:
    task = world.plan(1)
    (old,) = world.claim(task)
    leases.release_instance(world.db, instance="w1")
    (new,) = world.claim(task)
    record = {
        "finish": Finish(old.id, old.fencing_token, "done", "read"), "page": page(old, 2),
    }[late]  # fmt: skip
    told = _committed_together(world, page(new, 3), record, page(new, 1))
    assert told == ["fenced", "committed"]
    assert world.shard(new.id).status == "running"


class _Thread:
    """A store thread that makes its calls when it is told to."""

    def __init__(self) -> None:
        self.calls: list[tuple[Deferred[Any], Callable[[], Any]]] = []

    def call(self, func: Callable[..., Any], *args: Any) -> Deferred[Any]:
        done: Deferred[Any] = Deferred()
        self.calls.append((done, lambda: func(*args)))
        return done

    def work(self) -> None:
        while self.calls:
            done, call = self.calls.pop(0)
            done.callback(call())


def _committed_together(world: World, first: Record, *records: Record) -> list[str]:
    """What a committer says became of *records*, one group that waited for *first*."""
    thread = _Thread()
    committer = Committer(
        cast("StoreThread", thread),
        lambda group, positions: checkpoints.commit(world.db, group, positions),
        GroupLimits(pages=100, items=1000, delay=0),
        pressing=lambda pages: False,
        inc_stat=lambda *_: None,
        on_failure=lambda error: None,
        patience=0,
        outage=Outage(0),
    )
    committer.positions.update(world.positions)
    outcomes = [committer.submit(record) for record in (first, *records)]
    thread.work()
    return [cast("Outcome", outcome.result).status for outcome in outcomes[1:]]


# What counts in the verdict


@pytest.mark.parametrize(("read", "verdict"), [(0, "nothing_read"), (1, "complete_with_rejects")])
def test_pages_set_aside_were_not_read(world: World, read: int, verdict: str) -> None:
    task = world.plan(1)
    (one,) = world.claim(task)
    aside = [_set_aside(task.id, one, number) for number in range(read + 1, 4)]
    pages = [page(one, number) for number in range(1, read + 1)]
    world.commit(*pages, *aside, Finish(one.id, one.fencing_token, "done", "read"))
    over = tasks.finish_run(world.db, task.id)
    assert over.verdict == verdict
    assert "every page" not in over.reason


def test_what_failed_outside_of_every_page_counts(world: World) -> None:
    task = world.plan(1)
    quarantine.set_aside(world.db, [_loose(task.id)])
    (one,) = world.claim(task)
    world.commit(page(one, 1), Finish(one.id, one.fencing_token, "done", "read"))
    assert tasks.finish_run(world.db, task.id).verdict == "complete_with_rejects"


def test_a_row_refused_outside_of_every_page_counts_for_its_run(world: World) -> None:
    task = world.plan(1)
    rows = [item("good"), _poison()]
    stored = checkpoints.store_rows(world.db, rows, writer=ItemWriter(world.db), task_id=task.id)
    assert stored.written == 1
    (aside,) = quarantine.find(world.db, task.id)
    assert (aside["kind"], aside["item_key"], aside["page"]) == ("row", "bad", None)
    (one,) = world.claim(task)
    world.commit(page(one, 1), Finish(one.id, one.fencing_token, "done", "read"))
    assert tasks.finish_run(world.db, task.id).verdict == "complete_with_rejects"


def _poison() -> Row:
    """A row that every database refuses: its payload is missing."""
    row = item("bad")
    row.values["payload"] = None
    return row


def _loose(task_id: int) -> QuarantineRecord:
    return QuarantineRecord(task_id, None, None, None, "item", None, None, "KeyError", "no key")


def _set_aside(task_id: int, shard: ClaimedShard, number: int) -> PageRecord:
    """A failed page that completes its place with nothing but its record."""
    why = replace(
        _loose(task_id), shard_id=shard.id, shard_no=shard.shard_no, page=number, kind="page"
    )
    return PageRecord(shard.id, shard.fencing_token, number, (), (why,))


def _end_leases(world: World) -> None:
    shard = world.db.tables.task_shard
    running = update(shard).where(shard.c.status == "running")
    with world.db.transaction() as conn:
        conn.execute(running.values(lease_until=datetime(2000, 1, 1)))
