"""The first tables, as they were: later changes to the schema are later revisions.

MySQL commits after every DDL statement, so a migration that was killed half-way left
some tables behind; whatever is there already is passed over.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from alembic import op
from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    UniqueConstraint,
    inspect,
)

from scrapy_resume.store.columns import COUNTED, OPTIONS, Exact, LongText, Moment, Serial

revision = "0001"
down_revision = None

_NULL: dict[str, Any] = {"nullable": True}


def upgrade() -> None:
    bind = op.get_bind()
    metadata = MetaData()
    for table in _tables(metadata, op.get_context().opts["prefix"]):
        table.create(bind, checkfirst=True)
        there = {index["name"] for index in inspect(bind).get_indexes(table.name)}
        for index in sorted(table.indexes, key=lambda index: str(index.name)):
            if index.name not in there:
                index.create(bind)


def _exact(name: str, length: int, **more: Any) -> Column[Any]:
    return Column(name, Exact(length), **{"nullable": False, **more})


def _integer(name: str, **more: Any) -> Column[Any]:
    return Column(name, Integer, **{"nullable": False, **more})


def _big(name: str, *more: Any, **options: Any) -> Column[Any]:
    return Column(name, BigInteger, *more, **{"nullable": False, **options})


def _long(name: str, **more: Any) -> Column[Any]:
    return Column(name, LongText, **{"nullable": False, **more})


def _moment(name: str, **more: Any) -> Column[Any]:
    return Column(name, Moment, **{"nullable": False, **more})


def _checks(table: str, **rules: str) -> list[CheckConstraint]:
    return [CheckConstraint(rule, name=f"{table}_{name}") for name, rule in rules.items()]


def _tables(metadata: MetaData, prefix: str) -> Iterator[Table]:
    # fmt: off
    name = f"{prefix}task"
    yield Table(
        name, metadata,
        Column("id", Serial, primary_key=True),
        _exact("name", 190), _exact("spider", 190), _long("args"),
        _integer("run_no"), _exact("run_name", 190, **_NULL), _exact("open_name", 190, **_NULL),
        _integer("priority"), _exact("status", 10), _exact("desired", 10), _exact("reason", 500),
        _exact("verdict", 24, **_NULL), _long("bound", **_NULL), _long("signature", **_NULL),
        _exact("planner", 64, **_NULL), _exact("planner_instance", 64, **_NULL),
        _big("plan_token"), _moment("plan_lease_until", **_NULL),
        _moment("planned_at", **_NULL), _moment("started_at", **_NULL),
        _moment("finished_at", **_NULL), _moment("created_at"), _moment("updated_at"),
        UniqueConstraint("name", "run_no", name=f"{name}_run"),
        UniqueConstraint("name", "run_name", name=f"{name}_named_run"),
        UniqueConstraint("open_name", name=f"{name}_open"),
        *_checks(
            name,
            status="status IN ('planning', 'running', 'paused', 'done', 'failed')",
            desired="desired IN ('run', 'pause', 'cancel')",
            verdicts="verdict IN ('complete', 'complete_with_rejects', 'incomplete', 'blocked',"
            " 'nothing_read')",
            run_no="run_no >= 1",
            reason="reason <> ''",
            over="(finished_at IS NOT NULL) = (status IN ('done', 'failed'))",
            verdict="(verdict IS NOT NULL) = (finished_at IS NOT NULL)",
            open_name="(open_name IS NULL) = (finished_at IS NOT NULL)",
            own_name="open_name IS NULL OR open_name = name",
            unplanned="status <> 'planning' OR planned_at IS NULL",
            planned="status IN ('planning', 'failed') OR planned_at IS NOT NULL",
            planner="(planner IS NULL) = (plan_lease_until IS NULL)"
            " AND (planner IS NULL) = (planner_instance IS NULL)",
            planning="planner IS NULL OR (planned_at IS NULL AND finished_at IS NULL)",
        ),
        **COUNTED,
    )
    name = f"{prefix}task_shard"
    task = ForeignKey(f"{prefix}task.id", name=f"{name}_task", ondelete="CASCADE")
    yield Table(
        name, metadata,
        Column("id", Serial, primary_key=True),
        _big("task_id", task), _integer("shard_no"), _exact("shard_key", 255), _exact("site", 190),
        _integer("lane"), _integer("priority"), _integer("due"), _moment("next_run_at", **_NULL),
        _exact("status", 10), _exact("reason", 500), _exact("error_kind", 10, **_NULL),
        _integer("ordered"), _big("first_page"), _big("last_page", **_NULL), _big("cur_page"),
        _long("cursor", **_NULL), _long("first_cursor", **_NULL), _long("ahead"),
        _long("failed_pages"), _long("digests", **_NULL), _big("page_count"),
        _big("written_count"), _big("dropped_count"), _big("quarantined_count"), _big("version"),
        _big("fencing_token"), _exact("worker", 64, **_NULL), _exact("instance", 64, **_NULL),
        _moment("lease_until", **_NULL), _integer("attempt_count"), _integer("max_attempts"),
        _long("last_error", **_NULL), _long("spec", **_NULL),
        _moment("created_at"), _moment("updated_at"), _moment("checkpoint_at", **_NULL),
        UniqueConstraint("task_id", "shard_no", name=f"{name}_no"),
        UniqueConstraint("task_id", "shard_key", name=f"{name}_key"),
        Index(f"{name}_claim", "task_id", "status", "due", "site", "lane", "priority", "id"),
        Index(f"{name}_due", "status", "due", "next_run_at"),
        Index(f"{name}_lease", "status", "lease_until"),
        *_checks(
            name,
            status="status IN ('pending', 'running', 'paused', 'done', 'failed')",
            reason="reason <> ''",
            owner="(status = 'running') = (worker IS NOT NULL)"
            " AND (status = 'running') = (instance IS NOT NULL)"
            " AND (status = 'running') = (lease_until IS NOT NULL)",
            due="due IN (0, 1) AND (due = 0 OR status = 'pending')",
            backoff="next_run_at IS NULL OR (status = 'pending' AND due = 0)",
            waiting="status <> 'pending' OR due = 1 OR next_run_at IS NOT NULL"
            " OR COALESCE(error_kind, '') = 'code'",
            token="fencing_token >= 0 AND (status <> 'running' OR fencing_token >= 1)",
            pages="last_page IS NULL OR last_page >= first_page - 1",
            cur_page="cur_page >= first_page - 1 AND (last_page IS NULL OR cur_page <= last_page)",
            done="status <> 'done' OR (failed_pages = '' AND ahead = '')",
            counts="page_count >= 0 AND written_count >= 0 AND dropped_count >= 0"
            " AND quarantined_count >= 0 AND version >= 0",
            attempts="attempt_count >= 0 AND max_attempts >= 1 AND attempt_count <= max_attempts",
            tries_left="status <> 'pending' OR attempt_count < max_attempts",
            ordered="ordered IN (0, 1)",
            error_kind="error_kind IN ('retryable', 'permanent', 'blocked', 'code')",
        ),
        **COUNTED,
    )
    yield Table(
        f"{prefix}item", metadata,
        _exact("source", 190, primary_key=True), _exact("item_key", 512, primary_key=True),
        _long("payload"), _big("task_id", **_NULL), _integer("shard_no", **_NULL),
        _big("page", **_NULL), _moment("fetched_at"), _moment("first_seen_at"),
        _moment("updated_at"), **OPTIONS,
    )
    yield Table(
        f"{prefix}manifest", metadata,
        _big("shard_id", primary_key=True, autoincrement=False),
        _big("page", primary_key=True, autoincrement=False),
        _long("item_keys"), _integer("item_count"), _moment("committed_at"), **OPTIONS,
    )
    name = f"{prefix}quarantine"
    yield Table(
        name, metadata,
        Column("id", Serial, primary_key=True),
        _big("task_id", **_NULL), _big("shard_id", **_NULL), _integer("shard_no", **_NULL),
        _big("page", **_NULL), _exact("kind", 10), _long("url", **_NULL),
        _long("item_key", **_NULL), _exact("error_class", 190), _long("error"),
        _integer("attempts"), _moment("created_at"), _moment("resolved_at", **_NULL),
        _exact("resolution", 500, **_NULL),
        Index(f"{name}_page", "task_id", "shard_no", "page"),
        *_checks(
            name,
            kind="kind IN ('page', 'request', 'item', 'row')",
            resolved="(resolved_at IS NULL) = (resolution IS NULL)",
        ),
        **COUNTED,
    )
    name = f"{prefix}operation"
    yield Table(
        name, metadata,
        Column("id", Serial, primary_key=True),
        _exact("kind", 32), _big("task_id", **_NULL), _integer("shard_no", **_NULL),
        _exact("actor", 190), _exact("reason", 500), _long("before", **_NULL),
        _long("after", **_NULL), _moment("at"),
        Index(f"{name}_task", "task_id", "at"),
        *_checks(name, reason="reason <> ''"),
        **COUNTED,
    )
    name = f"{prefix}worker"
    yield Table(
        name, metadata,
        _exact("instance", 64, primary_key=True), _exact("worker", 64), _exact("host", 255),
        _integer("pid"), _exact("version", 32), _integer("protocol"), _integer("capacity"),
        _integer("load"), _moment("started_at"), _moment("heartbeat_at"),
        _moment("stopped_at", **_NULL), Index(f"{name}_worker", "worker"), **OPTIONS,
    )
    name = f"{prefix}site_health"
    yield Table(
        name, metadata,
        _exact("site", 190, primary_key=True), _exact("state", 10), _exact("reason", 500),
        _moment("until", **_NULL), _exact("set_by", 190, **_NULL), _long("counters", **_NULL),
        _moment("updated_at"),
        *_checks(name, state="state IN ('healthy', 'suspect', 'blocked', 'paused')"),
        **OPTIONS,
    )
    name = f"{prefix}outbox"
    yield Table(
        name, metadata,
        _exact("sink", 64, primary_key=True), _exact("source", 190, primary_key=True),
        _exact("item_key", 512, primary_key=True), _big("seq"), _long("payload", **_NULL),
        _integer("attempts"), _moment("next_attempt_at", **_NULL),
        _moment("delivered_at", **_NULL), _long("last_error", **_NULL),
        Index(f"{name}_next", "delivered_at", "next_attempt_at"), **OPTIONS,
    )
    # fmt: on
