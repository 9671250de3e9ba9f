"""Illegal rows cannot be stored, whoever writes them."""

from __future__ import annotations

import pytest
from sqlalchemy import exc

from tests.store.worlds import World

SHARD = [
    "status = 'held'",
    "status = 'running'",
    "status = 'running', worker = 'w', instance = 'i', due = 0",
    "worker = 'w'",
    "lease_until = '2030-01-01'",
    "instance = 'i'",
    "status = 'failed', due = 0, reason = ''",
    "reason = ''",
    "due = 2",
    "due = 0",
    "due = 0, error_kind = 'blocked'",
    "next_run_at = '2030-01-01'",
    "status = 'paused'",
    "status = 'done', due = 0, failed_pages = '3'",
    "status = 'done', due = 0, ahead = '3'",
    "cur_page = -1",
    "cur_page = 101",
    "last_page = -1",
    "fencing_token = -1",
    "version = -1",
    "page_count = -1",
    "written_count = -1",
    "attempt_count = 11",
    "attempt_count = 10",
    "attempt_count = -1",
    "max_attempts = 0",
    "ordered = 2",
    "error_kind = 'strange'",
    "shard_no = 2",
    "shard_key = 's2'",
    "task_id = 4711",
]

TASK = [
    "status = 'open'",
    "desired = 'stop'",
    "reason = ''",
    "run_no = 0",
    "status = 'done'",
    "status = 'done', finished_at = '2030-01-01'",
    "finished_at = '2030-01-01'",
    "verdict = 'complete'",
    "status = 'failed', verdict = 'splendid', finished_at = '2030-01-01', open_name = NULL",
    "status = 'failed', verdict = 'incomplete', finished_at = '2030-01-01'",
    "open_name = NULL",
    "open_name = 'other'",
    "status = 'planning'",
    "planned_at = NULL",
    "planner = 'p'",
    "planner = 'p', planner_instance = 'i', plan_lease_until = '2030-01-01'",
]


@pytest.fixture
def planned(world: World) -> World:
    world.plan(2)
    return world


@pytest.mark.parametrize("change", SHARD)
def test_an_illegal_shard_is_refused(planned: World, change: str) -> None:
    with pytest.raises(exc.DBAPIError):
        planned.sql(f"UPDATE resume_task_shard SET {change} WHERE shard_no = 1")


@pytest.mark.parametrize("change", TASK)
def test_an_illegal_task_is_refused(planned: World, change: str) -> None:
    with pytest.raises(exc.DBAPIError):
        planned.sql(f"UPDATE resume_task SET {change}")


@pytest.mark.parametrize(
    "change",
    [
        "status = 'failed', due = 0, reason = 'gave up'",
        "status = 'done', due = 0",
        "status = 'paused', due = 0",
        "due = 0, next_run_at = '2030-01-01'",
        "due = 0, error_kind = 'code'",
        "status = 'running', due = 0, worker = 'w', instance = 'i', lease_until = '2030-01-01',"
        " fencing_token = 1, attempt_count = 10",
    ],
)
def test_a_legal_shard_is_stored(planned: World, change: str) -> None:
    planned.sql(f"UPDATE resume_task_shard SET {change} WHERE shard_no = 1")


def test_one_unfinished_run_per_task(planned: World) -> None:
    with pytest.raises(exc.IntegrityError):
        planned.sql(
            "INSERT INTO resume_task (name, spider, args, run_no, open_name, priority, status,"
            " desired, reason, plan_token, created_at, updated_at) VALUES ('books', 'books', '{}',"
            " 2, 'books', 0, 'planning', 'run', 'opened', 0, '2030-01-01', '2030-01-01')"
        )


def test_keys_are_compared_exactly(world: World) -> None:
    insert = (
        "INSERT INTO resume_item (source, item_key, payload, fetched_at, first_seen_at, updated_at)"
        " VALUES ('s', :key, '{}', '2030-01-01', '2030-01-01', '2030-01-01')"
    )
    keys = ["a", "A", "a ", " a", "á", "a\u0301", "😎", ""]
    for key in keys:
        world.sql(insert, key=key)
    with pytest.raises(exc.IntegrityError):
        world.sql(insert, key="A")
    assert sorted(row[0] for row in world.sql("SELECT item_key FROM resume_item")) == sorted(keys)
