"""The acts of an operator: what each changes, refuses and leaves on record."""

from __future__ import annotations

from typing import Any

import pytest

from scrapy_resume.exceptions import ActRefused, ConfigurationError
from scrapy_resume.page import Shard
from scrapy_resume.store import acts, health, leases, operations, quarantine, tasks, wishes
from scrapy_resume.store.checkpoints import Finish, Release
from scrapy_resume.store.leases import ClaimedShard
from scrapy_resume.store.quarantine import QuarantineRecord
from scrapy_resume.store.runs import Task
from scrapy_resume.testing import check
from scrapy_resume.watermark import PageRanges
from tests.store.worlds import World, failure, page

WHO: dict[str, Any] = {"actor": "alice@desk", "reason": "they asked us to"}
BY = "by alice@desk: they asked us to"


def run(world: World, task: Task) -> Task:
    return tasks.find_tasks(world.db, task.id)[0]


def statuses(world: World, task: Task) -> list[str]:
    rows = world.sql(
        "SELECT status FROM resume_task_shard WHERE task_id = :task ORDER BY shard_no", task=task.id
    )
    return [row.status for row in rows]


def kinds(world: World, task: Task) -> list[str]:
    return [act.kind for _, act in operations.find(world.db, task.id)][::-1]


def well(world: World) -> None:
    """Nothing that is promised of the tables is broken."""
    assert check(world.db.engine.url) == []  # type: ignore[arg-type]


def aside(one: ClaimedShard, number: int, kind: str = "request") -> QuarantineRecord:
    return QuarantineRecord(
        one.task_id, one.id, one.shard_no, number, kind, "http://x", None, "HttpError", "404"
    )


def finished(world: World, last: int = 4, shards: int = 1, **options: Any) -> Task:
    """A run whose shards, each of *last* pages, were read to the end."""
    task = world.plan([Shard(f"s{n}", 1, last) for n in range(1, shards + 1)], **options)
    for one in world.claim(task):
        for number in range(1, last + 1):
            world.commit(page(one, number))
        world.commit(Finish(one.id, one.fencing_token, "done", "read"))
    return tasks.finish_run(world.db, task.id)


def failed(world: World) -> Task:
    """A run of three shards, one done, one failed at page 2, one that waits for its next try."""
    task = world.plan([Shard(f"s{n}", 1, 2) for n in (1, 2, 3)])
    done, gone, waits = world.claim(task)
    world.commit(page(done, 1), page(done, 2), Finish(done.id, done.fencing_token, "done", "read"))
    world.commit(
        page(gone, 1), failure(gone, 2), Finish(gone.id, gone.fencing_token, "failed", "gave up")
    )
    world.commit(
        failure(waits, 1),
        Release(waits.id, waits.fencing_token, "HttpError", "retryable", 900.0, True),
    )
    return run(world, task)


# pause and unpause


def test_a_pause_stops_what_waits_at_once_and_what_runs_by_its_owner(world: World) -> None:
    task = world.plan(3)
    (one,) = world.claim(task, 1)
    result = acts.pause(world.db, task.id, **WHO)
    assert result.counts == {"shards": 2, "running": 1} and result.task_ids == (task.id,)
    assert statuses(world, task) == ["running", "paused", "paused"]
    assert world.shard(one.id + 1).reason == f"paused {BY}"
    assert world.claim(task) == []
    assert (run(world, task).desired, run(world, task).status) == ("pause", "running")
    renewed = leases.renew(
        world.db, instance="w1", shards={one.id: one.fencing_token}, lease=15, task_id=task.id
    )
    assert renewed.desired == "pause"
    world.commit(page(one, 1), Release(one.id, one.fencing_token, "drained"))
    row = world.shard(one.id)
    assert (row.status, row.reason, row.cur_page) == ("paused", f"paused {BY}", 1)
    assert row.attempt_count == 0
    assert [one.id for one in wishes.carry_out(world.db)] == [task.id]
    assert run(world, task).status == "paused"
    assert wishes.carry_out(world.db) == []
    assert kinds(world, task) == ["pause"]
    well(world)


def test_an_unpaused_run_goes_on_where_it_was(world: World) -> None:
    task = world.plan(3)
    (one,) = world.claim(task, 1)
    world.commit(page(one, 1))
    acts.pause(world.db, task.id, **WHO)
    world.commit(Release(one.id, one.fencing_token, "drained"))
    wishes.carry_out(world.db)
    result = acts.unpause(world.db, task.id, **WHO)
    assert result.counts == {"shards": 3}
    assert run(world, task).status == "running"
    claimed = {shard.id: shard for shard in world.claim(task)}
    assert len(claimed) == 3
    assert claimed[one.id].position.cur_page == 1 and claimed[one.id].fencing_token == 2
    assert kinds(world, task) == ["pause", "unpause"]
    well(world)


def test_a_pause_of_a_dead_owner_is_written_by_the_reaper(world: World) -> None:
    task = world.plan(1)
    (one,) = world.claim(task, lease=0)
    acts.pause(world.db, task.id, **WHO)
    leases.reap(world.db, actor="reaper")
    assert world.shard(one.id).status == "paused"
    wishes.carry_out(world.db)
    assert run(world, task).status == "paused"
    well(world)


def test_a_shard_given_back_in_the_moment_of_a_pause_is_found_by_the_next_round(
    world: World,
) -> None:
    task = world.plan(2)
    acts.pause(world.db, task.id, **WHO)
    world.sql("UPDATE resume_task_shard SET status = 'pending', due = 1 WHERE shard_no = 1")
    wishes.carry_out(world.db)
    assert statuses(world, task) == ["paused", "paused"]


def test_a_pause_while_the_run_is_planned_holds_once_it_is(world: World) -> None:
    task = world.open()
    token = tasks.claim_planning(world.db, task.id, worker="p", instance="p1", lease=15)
    assert token is not None
    acts.pause(world.db, task.id, **WHO)
    tasks.store_plan(world.db, task.id, token, [Shard("a", 1, 2)], default_site="site")
    assert run(world, task).reason == f"paused {BY}"
    wishes.carry_out(world.db)
    assert statuses(world, task) == ["paused"]
    assert run(world, task).status == "paused"


# cancel


def test_a_cancelled_run_is_over_once_its_owners_have_given_up(world: World) -> None:
    task = world.plan(3)
    (one,) = world.claim(task, 1)
    acts.cancel(world.db, task.id, **WHO)
    assert statuses(world, task) == ["running", "failed", "failed"]
    world.commit(page(one, 1), Release(one.id, one.fencing_token, "drained"))
    assert world.shard(one.id).reason == f"cancelled {BY}"
    over = wishes.follow(world.db, task.id)
    assert (over.status, over.verdict) == ("failed", "incomplete")
    assert kinds(world, task) == ["cancel"]
    well(world)


def test_a_cancelled_run_that_nobody_works_on_is_over_at_once(world: World) -> None:
    task = world.plan(2)
    result = acts.cancel(world.db, task.id, **WHO)
    assert "Run 1 of books is over." in result.sentences
    assert run(world, task).verdict == "nothing_read"
    assert world.open().run_no == 2


def test_a_cancel_ends_a_plan_under_way(world: World) -> None:
    task = world.open()
    token = tasks.claim_planning(world.db, task.id, worker="p", instance="p1", lease=15)
    acts.cancel(world.db, task.id, **WHO)
    assert run(world, task).finished_at is not None
    with pytest.raises(Exception, match="no longer ours"):
        tasks.finish_plan(world.db, task.id, token or 0, 0)


def test_a_paused_run_can_be_cancelled(world: World) -> None:
    task = world.plan(2)
    acts.pause(world.db, task.id, **WHO)
    wishes.carry_out(world.db)
    acts.cancel(world.db, task.id, **WHO)
    assert run(world, task).status == "failed"
    assert statuses(world, task) == ["failed", "failed"]


# retry


def test_a_retry_takes_what_failed_and_what_waits(world: World) -> None:
    task = failed(world)
    result = acts.retry(world.db, task.id, **WHO)
    assert result.counts == {"shards": 1, "waiting": 1}
    assert statuses(world, task) == ["done", "pending", "pending"]
    gone, waits = world.claim(task)
    assert (gone.shard_no, gone.position.cur_page, gone.attempt_count) == (2, 1, 1)
    assert waits.attempt_count == 1
    assert kinds(world, task) == ["retry"]
    well(world)


def test_a_retry_reopens_a_run_that_is_over(world: World) -> None:
    task = world.plan([Shard("a", 1, 1)])
    (one,) = world.claim(task)
    world.commit(failure(one, 1), Finish(one.id, one.fencing_token, "failed", "gave up"))
    assert tasks.finish_run(world.db, task.id).verdict == "nothing_read"
    acts.retry(world.db, task.id, **WHO)
    again = world.open()
    assert (again.id, again.verdict, again.finished_at) == (task.id, None, None)
    (one,) = world.claim(again)
    world.commit(page(one, 1), Finish(one.id, one.fencing_token, "done", "read"))
    assert tasks.finish_run(world.db, task.id).verdict == "complete"
    well(world)


def test_a_retry_of_some_shards_or_pages_leaves_the_others(world: World) -> None:
    task = failed(world)
    with pytest.raises(ActRefused, match="no failed or waiting shard among 1"):
        acts.retry(world.db, task.id, shards=[1], **WHO)
    acts.retry(world.db, task.id, pages=PageRanges.parse("2"), **WHO)
    assert statuses(world, task)[1] == "pending"
    assert world.shard(3).due == 0
    with pytest.raises(ActRefused, match="no failed or set aside page among 7-9"):
        acts.retry(world.db, task.id, pages=PageRanges.parse("7-9"), **WHO)


def test_a_retry_of_a_page_reads_one_that_was_set_aside(world: World) -> None:
    task = world.plan([Shard("a", 1, 3)])
    (one,) = world.claim(task)
    world.commit(page(one, 1), page(one, 2, quarantine=(aside(one, 2, "page"),)), page(one, 3))
    world.commit(Finish(one.id, one.fencing_token, "done", "read"))
    assert tasks.finish_run(world.db, task.id).verdict == "complete_with_rejects"
    acts.retry(world.db, task.id, pages=PageRanges.parse("2"), **WHO)
    (one,) = world.claim(task)
    assert list(one.position.missing(3)) == [2]
    world.commit(page(one, 2), Finish(one.id, one.fencing_token, "done", "read"))
    assert tasks.finish_run(world.db, task.id).verdict == "complete"
    well(world)


def test_a_retry_in_a_paused_run_waits_for_the_unpause(world: World) -> None:
    task = failed(world)
    acts.pause(world.db, task.id, **WHO)
    result = acts.retry(world.db, task.id, **WHO)
    assert result.sentences[-1] == "The run stays paused; unpause it to have them tried."
    assert statuses(world, task) == ["done", "paused", "paused"]


# restart and reset


def test_a_restart_reads_every_page_again_and_keeps_the_items(world: World) -> None:
    task = finished(world, shards=2)
    items = world.items()
    result = acts.restart(world.db, task.id, **WHO)
    assert result.counts == {"shards": 2, "pages": 8}
    assert world.items() == items
    claimed = world.claim(world.open())
    assert [one.position.cur_page for one in claimed] == [0, 0]
    assert [one.fencing_token for one in claimed] == [3, 3]
    assert all(one.read_again_at is not None for one in claimed)
    well(world)
    for one in claimed:
        for number in range(1, 5):
            world.commit(page(one, number))
        world.commit(Finish(one.id, one.fencing_token, "done", "read"))
    assert tasks.finish_run(world.db, task.id).verdict == "complete"
    well(world)


def test_a_restart_forgets_the_end_that_reading_found(world: World) -> None:
    task = world.plan([Shard("chain", 1, cursor={"url": "a"}, ordered=True)])
    (one,) = world.claim(task)
    world.commit(page(one, 1, cursor='{"url":"b"}', digests="[1]"))
    world.commit(page(one, 2, ends=True, ordered=True))
    world.commit(Finish(one.id, one.fencing_token, "done", "read"))
    assert world.shard(one.id).last_page == 2
    tasks.finish_run(world.db, task.id)
    acts.restart(world.db, task.id, **WHO)
    (one,) = world.claim(task)
    assert one.shard.last_page is None
    assert (one.position.cur_page, one.position.cursor) == (0, '{"url":"a"}')
    assert one.position.digests is None


def test_a_stale_owner_writes_nothing_after_a_restart(world: World) -> None:
    task = world.plan(1)
    (stale,) = world.claim(task, lease=0)
    acts.restart(world.db, task.id, **WHO)
    assert world.commit(page(stale, 1)).fenced == {stale.id}
    assert world.shard(stale.id).cur_page == 0


@pytest.mark.parametrize("act", [acts.restart, acts.reset])
def test_a_shard_that_is_being_read_is_left_alone(world: World, act: Any) -> None:
    task = world.plan(1)
    world.claim(task)
    with pytest.raises(ActRefused, match="shard 1 of run 1 of books is being read by worker w; p"):
        act(world.db, task.id, **WHO)
    assert kinds(world, task) == []


def test_a_reset_run_is_planned_anew(world: World) -> None:
    task = world.plan([Shard("a", 1, 2)])
    (one,) = world.claim(task)
    world.commit(page(one, 1, quarantine=(aside(one, 1),)), page(one, 2))
    world.commit(Finish(one.id, one.fencing_token, "done", "read"))
    tasks.finish_run(world.db, task.id)
    items = world.items()
    result = acts.reset(world.db, task.id, **WHO)
    assert result.counts == {"shards": 1, "pages": 2, "records": 1}
    found = run(world, task)
    assert (found.status, found.planned_at, found.verdict) == ("planning", None, None)
    assert world.items() == items and quarantine.find(world.db, task.id) == []
    again = world.plan([Shard("a", 1, 1), Shard("b", 1, 1)])
    assert again.id == task.id
    claimed = world.claim(again)
    assert [shard.shard.key for shard in claimed] == ["a", "b"]
    assert claimed[0].read_again_at is not None
    assert one.id not in {shard.id for shard in claimed}
    assert kinds(world, task) == ["reset"]


# backfill


def test_a_backfill_reads_a_range_again_in_the_low_lane(world: World) -> None:
    task = world.plan([Shard("1-10", 1, 10), Shard("11-20", 11, 20), Shard("21-30", 21, 30)])
    for one in world.claim(task):
        for number in range(one.shard.first_page, (one.shard.last_page or 0) + 1):
            world.commit(page(one, number))
        world.commit(Finish(one.id, one.fencing_token, "done", "read"))
    tasks.finish_run(world.db, task.id)
    result = acts.backfill(world.db, task.id, PageRanges.parse("8-12"), **WHO)
    assert result.counts == {"shards": 2, "pages": 5}
    assert statuses(world, task) == ["pending", "pending", "done"]
    assert [row.lane for row in (world.shard(1), world.shard(2))] == [1, 1]
    claimed = world.claim(task)
    missing = [
        number for one in claimed for number in one.position.missing(one.shard.last_page or 0)
    ]
    assert missing == [8, 9, 10, 11, 12]
    assert (world.shard(2).cur_page, world.shard(2).ahead) == (10, "13-20")
    well(world)


def test_pages_that_no_shard_has_become_a_shard_of_a_plain_list(world: World) -> None:
    task = finished(world)
    result = acts.backfill(world.db, task.id, PageRanges.parse("4-7"), **WHO)
    assert result.counts == {"shards": 2, "pages": 4}
    old, new = world.claim(task)
    assert (new.shard.first_page, new.shard.last_page, new.shard_no) == (5, 7, 2)
    assert list(old.position.missing(4)) == [4]
    assert world.shard(new.id).lane == 1
    well(world)


def test_other_runs_have_no_more_pages_than_they_planned(world: World) -> None:
    task = world.plan([Shard("a", 1, 4, spec={"list": "a"}), Shard("b", 1, 4, spec={"list": "b"})])
    with pytest.raises(ActRefused, match="no shard of run 1 of books has a page among 5-7"):
        acts.backfill(world.db, task.id, PageRanges.parse("5-7"), **WHO)
    with pytest.raises(ActRefused, match="waiting to be read already"):
        acts.backfill(world.db, task.id, PageRanges.parse("2"), **WHO)


def test_a_backfill_of_a_list_with_no_end_reads_just_these_pages(world: World) -> None:
    task = world.plan([Shard("1-", 1)])
    (one,) = world.claim(task)
    for number in (1, 2, 3):
        world.commit(page(one, number, digests=f"[{number}]"))
    world.commit(Finish(one.id, one.fencing_token, "done", "the list ended at page 3"))
    tasks.finish_run(world.db, task.id)
    acts.backfill(world.db, task.id, PageRanges.parse("3"), **WHO)
    (one,) = world.claim(task)
    assert (one.shard.last_page, one.position.cur_page) == (3, 2)
    world.commit(page(one, 3), Finish(one.id, one.fencing_token, "done", "read"))
    acts.restart(world.db, tasks.finish_run(world.db, task.id).id, **WHO)
    assert world.shard(one.id).last_page is None


# quarantine


def test_a_requeue_reads_the_page_again_and_the_run_can_be_complete(world: World) -> None:
    task = world.plan([Shard("a", 1, 3)])
    (one,) = world.claim(task)
    world.commit(page(one, 1), page(one, 3))
    world.commit(page(one, 2, quarantine=(aside(one, 2), aside(one, 2, "item"))))
    world.commit(Finish(one.id, one.fencing_token, "done", "read"))
    assert tasks.finish_run(world.db, task.id).verdict == "complete_with_rejects"
    records = quarantine.find(world.db, task.id, resolved=False)
    result = acts.requeue(world.db, [records[0]["id"]], **WHO)
    assert result.counts == {"shards": 1, "pages": 1, "records": 2}
    assert "1 more record(s) of the same pages are closed with them." in result.sentences
    found = quarantine.find(world.db, task.id, resolved=True)
    assert [row["resolution"] for row in found] == ["requeued", "requeued"]
    (one,) = world.claim(task)
    assert list(one.position.missing(3)) == [2] and one.position.quarantined_count == 0
    well(world)
    world.commit(page(one, 2), Finish(one.id, one.fencing_token, "done", "read"))
    assert tasks.finish_run(world.db, task.id).verdict == "complete"
    assert kinds(world, task) == ["requeue"]
    with pytest.raises(ActRefused, match="closed already: requeued"):
        acts.requeue(world.db, [records[0]["id"]], **WHO)
    well(world)


def test_a_page_that_was_set_aside_and_is_read_after_all_counts_as_read(world: World) -> None:
    task = world.plan([Shard("a", 1, 1)])
    (one,) = world.claim(task)
    world.commit(page(one, 1, quarantine=(aside(one, 1, "page"),)))
    world.commit(Finish(one.id, one.fencing_token, "done", "read"))
    assert tasks.finish_run(world.db, task.id).verdict == "nothing_read"
    acts.requeue(world.db, [1], **WHO)
    (one,) = world.claim(task)
    world.commit(page(one, 1), Finish(one.id, one.fencing_token, "done", "read"))
    assert tasks.finish_run(world.db, task.id).verdict == "complete"


def test_a_requeued_chain_is_read_from_its_first_page(world: World) -> None:
    task = world.plan([Shard("chain", 1, cursor={"url": "a"}, ordered=True)])
    (one,) = world.claim(task)
    world.commit(page(one, 1, cursor='{"url":"b"}'))
    world.commit(page(one, 2, ordered=True, ends=True, quarantine=(aside(one, 2),)))
    world.commit(Finish(one.id, one.fencing_token, "done", "read"))
    tasks.finish_run(world.db, task.id)
    result = acts.requeue(world.db, [1], **WHO)
    assert result.counts == {"shards": 1, "pages": 2, "records": 1}
    (one,) = world.claim(task)
    assert (one.position.cur_page, one.position.cursor) == (0, '{"url":"a"}')
    well(world)


def test_a_resolved_record_is_closed_and_stays_a_reject(world: World) -> None:
    task = world.plan([Shard("a", 1, 1)])
    (one,) = world.claim(task)
    world.commit(page(one, 1, quarantine=(aside(one, 1),)))
    world.commit(Finish(one.id, one.fencing_token, "done", "read"))
    acts.resolve(world.db, [1], "entered by hand", **WHO)
    row = quarantine.one(world.db, 1)
    assert row is not None and row["resolution"] == "entered by hand"
    assert tasks.finish_run(world.db, task.id).verdict == "complete_with_rejects"
    assert kinds(world, task) == ["resolve"]
    for words in ("", "requeued"):
        with pytest.raises(ActRefused, match="in words of your own"):
            acts.resolve(world.db, [1], words, **WHO)
    acts.restart(world.db, task.id, **WHO)
    well(world)


def test_a_record_of_no_page_cannot_be_read_again(world: World) -> None:
    task = world.plan(1)
    quarantine.set_aside(
        world.db,
        [QuarantineRecord(task.id, None, None, None, "item", None, None, "ValueError", "no")],
    )
    with pytest.raises(ActRefused, match="belongs to no page"):
        acts.requeue(world.db, [1], **WHO)
    with pytest.raises(ActRefused, match="no record 7 in quarantine"):
        acts.requeue(world.db, [7], **WHO)


# what they have in common

EVERY = {
    "pause": lambda db, task, **given: acts.pause(db, task, **given),
    "unpause": lambda db, task, **given: acts.unpause(db, task, **given),
    "cancel": lambda db, task, **given: acts.cancel(db, task, **given),
    "retry": lambda db, task, **given: acts.retry(db, task, **given),
    "restart": lambda db, task, **given: acts.restart(db, task, **given),
    "reset": lambda db, task, **given: acts.reset(db, task, **given),
    "backfill": lambda db, task, **given: acts.backfill(db, task, PageRanges.parse("1"), **given),
    "requeue": lambda db, task, **given: acts.requeue(db, [1], **given),
    "resolve": lambda db, task, **given: acts.resolve(db, [1], "by hand", **given),
}


def ready_for(world: World, kind: str) -> Task:
    """A run in which the act *kind* can be done."""
    if kind in ("pause", "unpause", "cancel"):
        task = world.plan(2)
        if kind == "unpause":
            acts.pause(world.db, task.id, **WHO)
        return task
    task = world.plan([Shard("a", 1, 2), Shard("b", 1, 2)])
    one, two = world.claim(task)
    world.commit(page(one, 1, quarantine=(aside(one, 1),)), page(one, 2))
    world.commit(Finish(one.id, one.fencing_token, "done", "read"))
    world.commit(failure(two, 1), Finish(two.id, two.fencing_token, "failed", "gave up"))
    return tasks.finish_run(world.db, task.id)


def everything(world: World) -> dict[str, list[Any]]:
    return {name: world.sql(f"SELECT * FROM {name}") for name in world.db.tables.metadata.tables}


@pytest.mark.parametrize("kind", list(EVERY))
def test_a_dry_run_says_what_would_change_and_changes_nothing(world: World, kind: str) -> None:
    task = ready_for(world, kind)
    before = everything(world)
    said = EVERY[kind](world.db, task.id, dry_run=True, **WHO)
    assert everything(world) == before
    done = EVERY[kind](world.db, task.id, **WHO)
    assert (said.counts, said.sentences) == (done.counts, done.sentences)
    assert (said.dry_run, done.dry_run) == (True, False)
    assert done.sentences and all(text.endswith(".") for text in done.sentences)
    acted = [act for _, act in operations.find(world.db, task.id) if act.kind == kind]
    assert acted and {(act.actor, act.reason) for act in acted} == {(WHO["actor"], WHO["reason"])}
    assert all(act.before and act.after for act in acted)


@pytest.mark.parametrize("kind", list(EVERY))
def test_no_act_without_a_reason_and_none_on_a_run_there_is_not(world: World, kind: str) -> None:
    task = ready_for(world, kind)
    with pytest.raises(ActRefused, match=f"{kind} needs a reason"):
        EVERY[kind](world.db, task.id, actor="alice", reason=" ")
    if kind not in ("requeue", "resolve"):
        with pytest.raises(ConfigurationError, match="there is no task 4711"):
            EVERY[kind](world.db, 4711, **WHO)


@pytest.mark.parametrize("kind", list(EVERY))
def test_an_act_whose_commit_had_no_reply_is_done_once(
    world: World, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = ready_for(world, kind)
    lost: list[int] = []
    run_it = world.db.run

    def no_reply(work: Any, **options: Any) -> Any:
        first = run_it(work, **options)
        lost.append(1)
        return run_it(work, **options) if first is not None else None

    monkeypatch.setattr(world.db, "run", no_reply)
    result = EVERY[kind](world.db, task.id, **WHO)
    assert lost and result.sentences
    acted = [at for at, act in operations.find(world.db, task.id) if act.kind == kind]
    assert len(set(acted)) == 1


@pytest.mark.parametrize(
    ("kind", "state", "says"),
    [
        ("pause", "over", "run 1 of books is over"),
        ("pause", "paused", "is paused already"),
        ("pause", "cancelling", "is being cancelled"),
        ("unpause", "running", "is not paused"),
        ("unpause", "over", "is over"),
        ("cancel", "over", "is over"),
        ("cancel", "cancelling", "is being cancelled already"),
        ("retry", "running", "no failed or waiting shard"),
        ("restart", "cancelling", "is being cancelled; wait"),
        ("restart", "planning", "is being planned"),
        ("reset", "planning", "has no plan yet"),
        ("backfill", "planning", "is being planned"),
        ("restart", "superseded", "run 2 of books .* is unfinished"),
        ("reset", "superseded", "run 2 of books .* is unfinished"),
        ("retry", "superseded", "run 2 of books .* is unfinished"),
    ],
)
def test_what_cannot_be_done_is_refused_in_one_sentence(
    world: World, kind: str, state: str, says: str
) -> None:
    task = world.open() if state == "planning" else world.plan(2)
    if state == "over":
        acts.cancel(world.db, task.id, **WHO)
    elif state == "paused":
        acts.pause(world.db, task.id, **WHO)
    elif state == "cancelling":
        world.claim(task, 1)
        acts.cancel(world.db, task.id, **WHO)
    elif state == "superseded":
        world.open("new")
    before = everything(world)
    with pytest.raises(ActRefused, match=says) as refusal:
        EVERY[kind](world.db, task.id, **WHO)
    assert "\n" not in str(refusal.value)
    assert everything(world) == before


def test_a_reason_may_be_long_and_hold_what_no_database_takes(world: World) -> None:
    who = {"actor": "al\udcffice", "reason": "they asked us to \ud800 " * 200}
    task = world.plan(1)
    acts.pause(world.db, task.id, **who)
    assert run(world, task).reason.startswith("paused by al?ice: they asked us to ? they")
    health.pause_site(world.db, "site", **who)
    (site,) = health.sites(world.db)
    assert (site.set_by, len(site.reason)) == ("al?ice", 500)


@pytest.mark.parametrize("which", ["9" * 19, "9" * 5000])
def test_no_run_has_a_number_that_no_database_holds(world: World, which: str) -> None:
    world.plan(1)
    assert tasks.find_tasks(world.db, which) == []
