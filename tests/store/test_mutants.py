"""Tests of the tests: with a safeguard taken out, one of them must notice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import event, exc

from scrapy_resume.store.claimindex import claim_query
from tests.store import test_claims, test_commit, test_leases, test_pages
from tests.store.worlds import World

pytestmark = pytest.mark.mutant


def without(world: World, condition: str) -> None:
    """Have every fence pass *condition* by, as if it were not there."""

    @event.listens_for(world.db.engine, "before_cursor_execute", retval=True)
    def mutate(conn: Any, cursor: Any, statement: str, parameters: Any, *more: Any) -> Any:
        if statement.startswith("UPDATE resume_task_shard SET "):
            mark = "?" if "?" in statement else "%s"
            clause = f"resume_task_shard.{condition} = {mark}"
            statement = statement.replace(f" AND {clause}", f" AND (1 = 1 OR {clause})")
        return statement, parameters


@pytest.mark.parametrize(
    ("condition", "test"),
    [
        ("fencing_token", test_commit.test_a_stale_token_changes_nothing_and_the_others_go_on),
        ("fencing_token", test_leases.test_after_a_takeover_the_old_owner_changes_nothing),
        ("status", test_pages.test_after_its_ending_a_shard_takes_no_page),
        ("version", test_pages.test_an_old_position_is_replaced_by_the_rows_own),
        ("version", test_pages.test_replaying_a_committed_page_changes_nothing),
    ],
)
def test_a_fence_without_one_of_its_conditions_is_noticed(
    world: World, condition: str, test: Callable[[World], None]
) -> None:
    without(world, condition)
    with pytest.raises(AssertionError):
        test(world)


def test_a_claim_that_keeps_the_token_is_noticed(world: World) -> None:
    @event.listens_for(world.db.engine, "before_cursor_execute", retval=True)
    def mutate(conn: Any, cursor: Any, statement: str, parameters: Any, *more: Any) -> Any:
        mark = "fencing_token=(resume_task_shard.fencing_token + "
        return statement.replace(mark, mark + "1 - "), parameters

    with pytest.raises((AssertionError, exc.DBAPIError)):  # the table itself refuses it
        test_claims.test_every_claim_raises_the_token(world)


def test_a_claim_with_a_sort_is_noticed(world: World) -> None:
    if world.db.dialect == "sqlite":
        return
    world.plan(500)
    shard = world.db.tables.task_shard
    query = claim_query(world.db).order_by(None).order_by(shard.c.attempt_count, shard.c.id)
    query = query.params(**test_claims.wanted(1, 5))
    with world.db.transaction() as conn:
        text = str(query.compile(dialect=conn.dialect, compile_kwargs={"literal_binds": True}))
        plan = conn.exec_driver_sql("EXPLAIN " + text).mappings().one()
    assert "filesort" in plan["Extra"]
