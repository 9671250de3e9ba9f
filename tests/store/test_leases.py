"""Leases: renewed, lost, reclaimed, reaped; waits that end; and what an outlook says."""

from __future__ import annotations

import pytest

from scrapy_resume.page import Shard
from scrapy_resume.store import leases, operations, tasks
from scrapy_resume.store.checkpoints import Finish, Release
from scrapy_resume.store.leases import Outlook
from tests.store.worlds import LEASE, World, failure, page


def renew(world: World, task: tasks.Task, held: dict[int, int], instance: str = "w1",
          lease: float = LEASE) -> leases.Renewal:  # fmt: skip
    return leases.renew(world.db, instance=instance, shards=held, lease=lease, task_id=task.id)


def test_renew_extends_what_is_ours_and_names_what_is_not(world: World) -> None:
    task = world.plan(4)
    claimed = world.claim(task)
    held = {one.id: one.fencing_token for one in claimed}
    before = world.shard(claimed[0].id).lease_until
    assert renew(world, task, held, lease=60).lost == frozenset()
    assert (world.shard(claimed[0].id).lease_until - before).total_seconds() > 40
    one, two, three, _ = claimed
    world.commit(Release(one.id, one.fencing_token, "given back"))
    world.sql("UPDATE resume_task_shard SET fencing_token = 9 WHERE id = :id", id=two.id)
    world.sql("UPDATE resume_task_shard SET instance = 'other' WHERE id = :id", id=three.id)
    renewal = renew(world, task, held | {4711: 1})
    assert renewal.lost == {one.id, two.id, three.id, 4711}
    assert renewal.desired == "run"


def test_renew_tells_what_the_operator_wants(world: World) -> None:
    task = world.plan(1)
    world.sql("UPDATE resume_task SET desired = 'pause'")
    assert renew(world, task, {}).desired == "pause"
    assert world.claim(task) == [], "a paused run gives nothing out"


def test_an_expired_lease_that_nobody_took_is_still_ours(world: World) -> None:
    task = world.plan(1)
    (one,) = world.claim(task, lease=0)
    assert renew(world, task, {one.id: one.fencing_token}).lost == frozenset()
    assert leases.reap(world.db, actor="reaper") == []
    assert not world.commit(page(one, 1)).fenced


def test_reap_takes_expired_shards_back_and_fences_their_owner(world: World) -> None:
    task = world.plan(3)
    one, two = world.claim(task, 2, lease=0)
    (three,) = world.claim(task, 1, instance="w2")
    assert leases.reap(world.db, actor="reaper") == [one.id, two.id]
    row = world.shard(one.id)
    assert (row.status, row.due, row.lane, row.fencing_token) == ("pending", 1, 1, 2)
    assert (row.worker, row.instance, row.lease_until) == (None, None, None)
    assert (row.reason, row.attempt_count) == ("its lease ran out", 1)
    assert world.commit(page(one, 1), page(three, 1)).fenced == {one.id}
    acts = [act for _, act in operations.find(world.db, task.id)]
    assert {(act.kind, act.actor, act.shard_no) for act in acts} == {
        ("reclaim", "reaper", 1), ("reclaim", "reaper", 2)
    }  # fmt: skip
    assert acts[0].before == "running by w/w1, token 1"
    assert acts[0].after == "pending, token 2"


def test_after_a_takeover_the_old_owner_changes_nothing(world: World) -> None:
    task = world.plan(1)
    (old,) = world.claim(task, lease=0)
    start = dict(world.positions)
    leases.reap(world.db, actor="reaper")
    (new,) = world.claim(task, worker="v", instance="v1")
    row = world.shard(new.id)
    late = World(world.db, start)
    for records in (
        [page(old, 1)], [failure(old, 1)], [Finish(old.id, old.fencing_token, "done", "read")],
        [Release(old.id, old.fencing_token, "stop")], [page(old, 1), failure(old, 2)],
    ):  # fmt: skip
        assert late.commit(*records).fenced == {old.id}
    assert world.shard(new.id) == row
    assert world.items() == {}
    world.commit(page(new, 1))
    assert late.commit(page(old, 2)).fenced == {old.id}


def test_the_next_instance_of_a_worker_reclaims_at_once(world: World) -> None:
    task = world.plan(3)
    one, two = world.claim(task, 2)
    (other,) = world.claim(task, 1, worker="v", instance="v1")
    assert leases.reclaim_worker(world.db, worker="w", instance="w2") == [one.id, two.id]
    assert leases.reclaim_worker(world.db, worker="w", instance="w2") == []
    assert world.shard(other.id).status == "running"
    again = world.claim(task, instance="w2")
    assert [(item.id, item.resumed, item.fencing_token) for item in again] == [
        (one.id, True, 3), (two.id, True, 3)
    ]  # fmt: skip
    assert leases.reclaim_worker(world.db, worker="w", instance="w2") == []


def test_a_shard_that_kills_its_process_fails_in_the_end(world: World) -> None:
    task = world.plan(1, max_attempts=3)
    for attempt in range(1, 4):
        (one,) = world.claim(task, instance=f"w{attempt}")
        assert one.attempt_count == attempt
        leases.reclaim_worker(world.db, worker="w", instance=f"w{attempt + 1}")
    row = world.shard(one.id)
    assert (row.status, row.attempt_count) == ("failed", 3)
    assert row.reason.startswith("gave up after 3 attempts: its process died")
    assert tasks.finish_run(world.db, task.id).verdict == "nothing_read"


def test_progress_gives_all_attempts_back(world: World) -> None:
    task = world.plan(1, max_attempts=2)
    for number in range(1, 6):
        (one,) = world.claim(task, instance=f"w{number}")
        world.commit(page(one, number))
        leases.reclaim_worker(world.db, worker="w", instance=f"w{number + 1}")
    assert world.shard(one.id).status == "pending"


def test_a_release_that_spent_its_attempts_fails(world: World) -> None:
    task = world.plan(1, max_attempts=2)
    for _ in range(2):
        (one,) = world.claim(task)
        result = world.commit(
            failure(one, 1),
            Release(one.id, one.fencing_token, "page 1: 503", "retryable", None, True, "503"),
        )
    assert result.statuses == {one.id: "failed"}
    row = world.shard(one.id)
    assert (row.reason, row.last_error) == ("gave up after 2 attempts: page 1: 503", "503")
    assert (row.failed_pages, row.error_kind) == ("1", "retryable")


def test_a_backed_off_shard_is_due_after_its_time(world: World) -> None:
    task = world.plan(2)
    one, two = world.claim(task)
    world.commit(
        Release(one.id, one.fencing_token, "503", "retryable", 3600.0, True),
        Release(two.id, two.fencing_token, "503", "retryable", 0.0, True),
    )
    assert world.claim(task) == []
    outlook = leases.outlook(world.db, task.id)
    assert (outlook.pending, outlook.due, outlook.next_due) == (2, 0, 0.0)
    assert leases.raise_due(world.db) == 1
    assert [again.id for again in world.claim(task)] == [two.id]
    assert world.shard(one.id).next_run_at is not None
    next_due = leases.outlook(world.db, task.id).next_due
    assert next_due is not None and 3500 < next_due <= 3600


def test_what_waits_for_mended_code_is_due_at_a_start(world: World) -> None:
    task = world.plan(3)
    one, two, three = world.claim(task)
    world.commit(
        Release(one.id, one.fencing_token, "KeyError", "code", None, True),
        Release(two.id, two.fencing_token, "KeyError", "code", 3600.0, True),
        Release(three.id, three.fencing_token, "503", "retryable", 3600.0, True),
    )
    assert leases.raise_due(world.db) == 0
    assert world.claim(task) == []
    assert leases.outlook(world.db, task.id).next_due is not None
    assert leases.raise_code_holds(world.db, task.id) == 2
    assert {again.id for again in world.claim(task)} == {one.id, two.id}
    assert world.shard(one.id).error_kind is None


@pytest.mark.parametrize(("wish", "status"), [("pause", "paused"), ("cancel", "failed")])
@pytest.mark.parametrize("alive", [True, False])
def test_the_operators_wish_is_written_by_the_owner_or_the_reaper(
    world: World, wish: str, status: str, alive: bool
) -> None:
    task = world.plan(1)
    (one,) = world.claim(task, lease=0)
    world.sql("UPDATE resume_task SET desired = :wish, reason = 'they asked us to'", wish=wish)
    if alive:
        world.commit(page(one, 1), Release(one.id, one.fencing_token, "drained"))
    else:
        leases.reap(world.db, actor="reaper")
    row = world.shard(one.id)
    assert (row.status, row.reason, row.due) == (status, "they asked us to", 0)


def test_an_outlook_counts_what_others_hold(world: World) -> None:
    task = world.plan([Shard(f"s{n}") for n in range(6)])
    mine = world.claim(task, 2)
    world.claim(task, 1, worker="v", instance="v1", lease=30)
    world.commit(Finish(mine[0].id, mine[0].fencing_token, "done", "read"))
    outlook = leases.outlook(world.db, task.id, instance="w1")
    assert outlook == Outlook(pending=3, running=2, due=3, leased_elsewhere=1)
    assert leases.outlook(world.db, task.id).leased_elsewhere == 2


def test_renew_and_reap_do_not_deadlock(world: World, database_url: str) -> None:
    from tests.store.parallel import in_threads

    task = world.plan(200)
    held = {one.id: one.fencing_token for one in world.claim(task, 200)}

    def renewing(other: World) -> None:
        for _ in range(30):
            renew(other, task, held)

    def reaping(other: World) -> None:
        for _ in range(30):
            leases.reap(other.db, actor="reaper")

    in_threads(database_url, [renewing, reaping, renewing])
    assert leases.reap(world.db, actor="reaper") == []
