"""How MariaDB serves the queries of claims and housekeeping: by which index, without a sort.

A sort in a locking read locks every candidate, and others silently see an empty queue.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
from sqlalchemy import Select
from sqlalchemy.dialects import mysql

from scrapy_resume.intake import Intake
from scrapy_resume.page import Shard
from scrapy_resume.store import backlog, claimindex, migrate, reaping, sites, turns, waits
from scrapy_resume.store.engine import Database
from scrapy_resume.store.outlook import outlook_query
from scrapy_resume.store.turns import turns_query
from tests.services import MariaDB
from tests.store.worlds import World

WHERE = {"task": 2, "lane": 0, "priority": 1, "site": "site1", "after_site": "site1", "behind": 0,
         "wanted": 8, "low": -5, "high": 5}  # fmt: skip


@pytest.fixture(scope="module")
def filled(mariadb: MariaDB) -> Iterator[World]:
    """Three runs of 3,000 shards each, the first of them over."""
    mariadb.execute("CREATE DATABASE query_plans")
    database = Database.connect(mariadb.url("query_plans"))
    migrate.ensure_schema(database)
    world = World(database)
    for name in ("a", "b", "c"):
        world.plan(
            [Shard(f"s{n}", priority=n % 3, site=f"site{n % 7}") for n in range(3000)], name=name
        )
    world.sql("UPDATE resume_task_shard SET status = 'done', due = 0 WHERE task_id = 1")
    world.sql("ANALYZE TABLE resume_task_shard")
    yield world
    database.close()
    mariadb.execute("DROP DATABASE query_plans")


def explain(world: World, query: Select[Any], **values: Any) -> list[dict[str, Any]]:
    with world.db.transaction() as conn:
        text = str(
            query.params(**values).compile(
                dialect=conn.dialect, compile_kwargs={"literal_binds": True}
            )
        )
        rows = conn.exec_driver_sql("EXPLAIN " + text.replace("%", "%%")).mappings()
        return [{**row, "Extra": row["Extra"] or ""} for row in rows]


def assert_served(plan: list[dict[str, Any]], index: str) -> None:
    (step,) = plan
    assert step["key"] == index
    assert "filesort" not in step["Extra"] and "temporary" not in step["Extra"]
    assert step["type"] in ("range", "ref")


@pytest.mark.parametrize(
    "query",
    [
        claimindex.priority_query, claimindex.site_query, claimindex.claim_query,
        lambda db: claimindex.claim_query(db, suspects=True),
    ],
)  # fmt: skip
def test_a_claim_is_served_by_its_index(filled: World, query: Any) -> None:
    assert_served(explain(filled, query(filled.db), **WHERE), "resume_task_shard_claim")


@pytest.mark.parametrize("count", [2, 100, claimindex.IN_LIST])
@pytest.mark.parametrize(
    "query",
    [
        claimindex.hint_query, claimindex.urgency_query,
        lambda db: claimindex.hint_query(db, suspects=True),
    ],
)  # fmt: skip
def test_what_the_queue_names_is_found_by_primary_key(
    filled: World, query: Any, count: int
) -> None:
    ids = list(range(3001, 3001 + count))
    (step,) = explain(filled, query(filled.db), task=2, ids=ids)
    assert (step["key"], step["type"]) == ("PRIMARY", "range")
    assert "filesort" not in step["Extra"]


def test_the_backlog_is_read_along_the_primary_key(filled: World) -> None:
    query = backlog.waiting_query(filled.db)
    assert_served(explain(filled, query, task=2, after=3000, last=6000, limit=1000), "PRIMARY")


def test_the_run_is_locked_by_primary_key(filled: World) -> None:
    (step,) = explain(filled, claimindex.ready_query(filled.db), task=2)
    assert (step["key"], step["type"]) == ("PRIMARY", "const")


def test_housekeeping_chooses_by_its_indexes_and_locks_by_primary_key(filled: World) -> None:
    db = filled.db
    now = db.look(db.now)
    for index, rule in (("lease", reaping.expired_rule(db, now, ["x"], 5.0, ["y"])),
                        ("due", waits.late_rule(db, now))):  # fmt: skip
        plan = explain(filled, turns_query(db, index, rule))
        assert {step["key"] for step in plan} == {None, f"resume_task_shard_{index}"}
    seen: list[list[dict[str, Any]]] = []

    class Watch:
        def execute(self, query: Select[Any]) -> list[Any]:
            seen.append(explain(filled, query))
            return []

    shards = waits.select(db.tables.task_shard.c.id).where(waits.late_rule(db, now))
    turns.lock(Watch(), db, shards, list(range(3001, 3101)))  # type: ignore[arg-type]
    assert_served(seen[0], "PRIMARY")


def test_an_outlook_reads_indexes_and_no_table(filled: World) -> None:
    intake = Intake.parse("fresh", "0-1", ["site1", "site2"])
    plan = explain(filled, outlook_query(filled.db, 2, "w", intake, ["site3"], ["site4"]))
    used = {step["key"] for step in plan if step["key"]}
    assert used == {f"resume_task_shard_{name}" for name in ("claim", "due")}
    assert not [step for step in plan if "filesort" in step["Extra"]]
    counts = [step for step in plan if step["key"] == "resume_task_shard_claim"]
    with_rows = [step for step in counts if "Using index condition" in step["Extra"]]
    assert len(with_rows) == 1, "only what others hold is looked up, for its instance"


def test_the_full_sites_are_counted_from_an_index(filled: World) -> None:
    (step,) = explain(filled, sites._running(filled.db))
    assert step["key"] == "resume_task_shard_lease" and "Using index" in step["Extra"]


def test_the_queries_text_for_mysql() -> None:
    db = Database.connect("mysql+pymysql://u@h/d")
    dialect = mysql.dialect()
    now = datetime(2026, 1, 1)
    intake = Intake.parse("fresh", "0-1,5", ["a"])
    for query in (
        outlook_query(db, 1, "w", intake, ["x"], ["y"]), sites._running(db),
        turns_query(db, "due", waits.late_rule(db, now)),
        turns_query(db, "lease", reaping.expired_rule(db, now)),
    ):  # fmt: skip
        text = str(query.compile(dialect=dialect))
        assert "FORCE INDEX (resume_task_shard_" in text
        assert "FOR UPDATE" not in text and " USING " not in text
    hinted = str(claimindex.hint_query(db).compile(dialect=dialect))
    assert "FORCE INDEX (PRIMARY)" in hinted and hinted.endswith("FOR UPDATE SKIP LOCKED")
    ready = str(claimindex.ready_query(db).compile(dialect=dialect))
    assert ready.endswith("LOCK IN SHARE MODE"), "MySQL 8.4 and 9 know it too"


def test_sqlite_is_served_alike(sqlite_url: str) -> None:
    db = Database.connect(sqlite_url)
    migrate.ensure_schema(db)
    now = db.look(db.now)
    outlook = outlook_query(db, 2, "w", Intake(), [], [])
    for query, index in (
        (claimindex.priority_query(db), "resume_task_shard_claim"),
        (claimindex.site_query(db), "resume_task_shard_claim"),
        (claimindex.claim_query(db), "resume_task_shard_claim"),
        (claimindex.hint_query(db), "INTEGER PRIMARY KEY"),
        (claimindex.urgency_query(db), "INTEGER PRIMARY KEY"),
        (backlog.waiting_query(db), "INTEGER PRIMARY KEY"),
        (turns_query(db, "lease", reaping.expired_rule(db, now)), "resume_task_shard_lease"),
        (turns_query(db, "due", waits.late_rule(db, now)), "resume_task_shard_due"),
        (outlook, "resume_task_shard_due (next_run_at>?)"),
    ):
        steps = sqlite_plan(db, query)
        assert any(index in step for step in steps)
        assert not any(step.startswith("SCAN resume_") for step in steps)
        if "turn" not in str(query):
            assert not any("TEMP B-TREE" in step for step in steps)


def sqlite_plan(db: Database, query: Select[Any]) -> list[str]:
    values = WHERE | {"ids": [1, 2], "after": 1, "last": 9, "limit": 5}
    with db.transaction() as conn:
        text = str(
            query.params(**values).compile(
                dialect=conn.dialect, compile_kwargs={"literal_binds": True}
            )
        )
        return [row[3] for row in conn.exec_driver_sql("EXPLAIN QUERY PLAN " + text)]
