"""The commit: what it writes, what it refuses, and what it leaves alone."""

from __future__ import annotations

from scrapy_resume.page import Shard
from scrapy_resume.store import operations, setbacks, tasks
from scrapy_resume.store.checkpoints import Finish, Release
from tests.store.worlds import World, failure, item, page


def test_a_run_from_plan_to_verdict(world: World) -> None:
    task = world.plan(3)
    claimed = world.claim(task)
    assert [one.shard.key for one in claimed] == ["s1", "s2", "s3"]
    for one in claimed:
        result = world.commit(page(one, 1), page(one, 2))
        assert result.written == 4
        assert result.positions[one.id].cur_page == 2
    assert len(world.items()) == 12
    done = [Finish(one.id, one.fencing_token, "done", "all read") for one in claimed]
    assert world.commit(*done).statuses == {one.id: "done" for one in claimed}
    over = tasks.finish_run(world.db, task.id)
    assert (over.status, over.verdict) == ("done", "complete")


def test_a_group_of_pages_of_several_shards(world: World) -> None:
    one, two = world.claim(world.plan(2))
    result = world.commit(page(two, 1), page(one, 1), page(one, 3), failure(two, 2))
    assert not result.fenced
    assert (world.shard(one.id).cur_page, world.shard(one.id).ahead) == (1, "3")
    row = world.shard(two.id)
    assert (row.cur_page, row.failed_pages, row.error_kind) == (1, "2", "retryable")
    assert "503" in row.last_error


def test_a_stale_token_changes_nothing_and_the_others_go_on(world: World) -> None:
    task = world.plan(2)
    one, two = world.claim(task)
    world.sql("UPDATE resume_task_shard SET fencing_token = fencing_token + 1 WHERE id = :id",
              id=one.id)  # fmt: skip
    before = world.shard(one.id)
    finish = Finish(one.id, one.fencing_token, "done", "all read")
    result = world.commit(page(one, 1), page(two, 1), finish)
    assert result.fenced == {one.id}
    assert world.shard(one.id) == before
    assert world.shard(two.id).cur_page == 1
    assert set(world.items()) == {"s2-1-1", "s2-1-2"}


def test_a_release_gives_the_attempt_back(world: World) -> None:
    task = world.plan(1)
    (one,) = world.claim(task)
    world.commit(Release(one.id, one.fencing_token, "stopped"))
    row = world.shard(one.id)
    assert (row.status, row.due, row.attempt_count, row.lane) == ("pending", 1, 0, 0)
    (again,) = world.claim(task)
    assert again.fencing_token == one.fencing_token + 1
    assert again.resumed


def test_last_in_page_order_wins(world: World) -> None:
    one, two = world.claim(world.plan(2))
    world.commit(
        page(two, 1, item("k", price=5), item("k", price=7)), page(one, 1, item("k", price=9))
    )
    assert world.items() == {"k": {"key": "k", "price": 9}}
    assert world.shard(two.id).written_count == 1


def test_a_database_that_lost_commits_is_not_built_upon(world: World) -> None:
    """A failover to a copy that is behind: what its owner says next builds on what is gone."""
    task = world.plan([Shard("bounded", 1, 4), Shard("open"), Shard("back"), Shard("held")])
    claimed = world.claim(task)
    world.commit(*(page(one, 1) for one in claimed))
    world.commit(*(page(one, number) for one in claimed for number in (2, 3)))
    world.sql("UPDATE resume_task_shard SET version = 1, cur_page = 1, page_count = 1")
    bounded, open_ended, given_back, held = claimed
    ids = {one.id: (one.id, one.fencing_token) for one in claimed}
    for records in (
        [page(bounded, 4)],
        [Finish(*ids[open_ended.id], "done", "all read")],
        [page(given_back, 4), Release(*ids[given_back.id], "stopped")],
        [failure(held, 4)],
    ):
        for _ in range(2):  # what comes later of the same owner changes nothing
            assert world.commit(*records).fenced == {records[0].shard_id}
    for one in claimed:
        row = world.shard(one.id)
        assert (row.status, row.cur_page, row.fencing_token) == ("pending", 1, 2)
    told = [act for _, act in operations.find(world.db, task.id)]
    assert [act.reason for act in told] == [setbacks.REASON] * 4
    again = world.claim(task)
    assert {one.position.cur_page for one in again} == {1}
    assert all(one.read_again_at is not None for one in again)  # nothing counts as read before
