"""The product's tables, with the states a row may be in and the ways between them.

:mod:`.transitions` lists every single way. A task (one run of it is one row):

    planning -> running -> done      every shard is done
                        -> failed    every shard is final, at least one of them failed
    planning | running | paused -> failed    superseded by a newer run, or cancelled
    running <-> paused               the operator's wish, once no shard runs
    done | failed -> running         an operator's retry, restart, backfill or requeue
    any but planning -> planning     an operator's reset

A shard:

    pending -> running               claim: attempt_count + 1, fencing_token + 1
    running -> pending               released, backed off (due = 0 until next_run_at, or with
                                     error_kind "code" until a process starts), reclaimed
    running -> done | failed         the owner's finish; failed also when the attempts are used up
    pending | running -> paused -> pending          the operator's wish
    pending | running | paused -> failed            cancelled, or superseded with its run

``done`` and ``failed`` are left only by an operator's act with its own row in
``operation``. What these pictures do not allow, the CHECKs below refuse.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from sqlalchemy import (
    BigInteger,
    Column,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    UniqueConstraint,
)

from scrapy_resume.exceptions import ConfigurationError
from scrapy_resume.store import schema_items, schema_workers
from scrapy_resume.store.columns import (
    COUNTED,
    NAME_LENGTH,
    REASON_LENGTH,
    SHARD_KEY_LENGTH,
    Exact,
    LongText,
    Moment,
    Serial,
    checks,
    one_of,
    times,
)


@dataclass(frozen=True)
class Tables:
    """The tables under one prefix."""

    metadata: MetaData
    task: Table
    task_shard: Table
    item: Table
    manifest: Table
    quarantine: Table
    operation: Table
    worker: Table
    site_health: Table
    outbox: Table
    meta: Table


def build(prefix: str) -> Tables:
    """Describe the tables; raises ConfigurationError for a prefix that names none."""
    if not re.fullmatch(r"[A-Za-z0-9_]{0,24}", prefix):
        raise ConfigurationError(
            f"RESUME_TABLE_PREFIX is {prefix!r}; allowed are up to 24 letters, digits and '_'"
        )
    metadata = MetaData()
    return Tables(
        metadata=metadata,
        task=_task(metadata, prefix),
        task_shard=_task_shard(metadata, prefix),
        item=schema_items.item(metadata, prefix),
        manifest=schema_items.manifest(metadata, prefix),
        quarantine=schema_items.quarantine(metadata, prefix),
        operation=schema_workers.operation(metadata, prefix),
        worker=schema_workers.worker(metadata, prefix),
        site_health=schema_workers.site_health(metadata, prefix),
        outbox=schema_items.outbox(metadata, prefix),
        meta=schema_workers.meta(metadata, prefix),
    )


def _task(metadata: MetaData, prefix: str) -> Table:
    name = f"{prefix}task"
    return Table(
        name,
        metadata,
        Column("id", Serial, primary_key=True),
        Column("name", Exact(NAME_LENGTH), nullable=False),
        Column("spider", Exact(NAME_LENGTH), nullable=False),
        Column("args", LongText, nullable=False),
        Column("run_no", Integer, nullable=False),
        Column("run_name", Exact(NAME_LENGTH)),
        Column("open_name", Exact(NAME_LENGTH)),  # the name while unfinished, else NULL
        Column("priority", Integer, nullable=False),
        Column("status", Exact(10), nullable=False),
        Column("desired", Exact(10), nullable=False),
        Column("reason", Exact(REASON_LENGTH), nullable=False),
        Column("verdict", Exact(24)),
        Column("bound", LongText),
        Column("signature", LongText),
        Column("planner", Exact(64)),
        Column("planner_instance", Exact(64)),
        Column("plan_token", BigInteger, nullable=False),
        Column("plan_lease_until", Moment),
        Column("planned_at", Moment),
        Column("started_at", Moment),
        Column("finished_at", Moment),
        *times("created_at", "updated_at"),
        Column("read_again_at", Moment),  # when pages of it were last put back
        UniqueConstraint("name", "run_no", name=f"{name}_run"),
        UniqueConstraint("name", "run_name", name=f"{name}_named_run"),
        UniqueConstraint("open_name", name=f"{name}_open"),  # one unfinished run per task
        *checks(
            name,
            status=one_of("status", "planning", "running", "paused", "done", "failed"),
            desired=one_of("desired", "run", "pause", "cancel"),
            verdicts=one_of(
                "verdict",
                "complete",
                "complete_with_rejects",
                "incomplete",
                "blocked",
                "nothing_read",
            ),
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


def _task_shard(metadata: MetaData, prefix: str) -> Table:
    name = f"{prefix}task_shard"
    return Table(
        name,
        metadata,
        Column("id", Serial, primary_key=True),
        Column(
            "task_id",
            BigInteger,
            ForeignKey(f"{prefix}task.id", name=f"{name}_task", ondelete="CASCADE"),
            nullable=False,
        ),
        Column("shard_no", Integer, nullable=False),
        Column("shard_key", Exact(SHARD_KEY_LENGTH), nullable=False),
        Column("site", Exact(NAME_LENGTH), nullable=False),
        Column("lane", Integer, nullable=False),  # 0 fresh, 1 resumed
        Column("priority", Integer, nullable=False),
        Column("due", Integer, nullable=False),  # 1: may be claimed now
        Column("next_run_at", Moment),
        Column("status", Exact(10), nullable=False),
        Column("reason", Exact(REASON_LENGTH), nullable=False),
        Column("error_kind", Exact(10)),
        Column("ordered", Integer, nullable=False),  # 1: a chain, pages one after the other
        Column("first_page", BigInteger, nullable=False),
        Column("last_page", BigInteger),
        Column("cur_page", BigInteger, nullable=False),
        Column("cursor", LongText),
        Column("first_cursor", LongText),  # the cursor of first_page
        Column("ahead", LongText, nullable=False),
        Column("failed_pages", LongText, nullable=False),
        Column("digests", LongText),
        Column("page_count", BigInteger, nullable=False),
        Column("written_count", BigInteger, nullable=False),
        Column("dropped_count", BigInteger, nullable=False),
        Column("quarantined_count", BigInteger, nullable=False),
        Column("version", BigInteger, nullable=False),
        Column("fencing_token", BigInteger, nullable=False),
        Column("worker", Exact(64)),
        Column("instance", Exact(64)),
        Column("lease_until", Moment),
        Column("attempt_count", Integer, nullable=False),
        Column("max_attempts", Integer, nullable=False),
        Column("last_error", LongText),
        Column("spec", LongText),
        *times("created_at", "updated_at"),
        Column("checkpoint_at", Moment),
        Column("planned_last_page", BigInteger),  # last_page may be one found by reading
        UniqueConstraint("task_id", "shard_no", name=f"{name}_no"),
        UniqueConstraint("task_id", "shard_key", name=f"{name}_key"),
        # The claim finds the most urgent lane and priority, and each site of them, by one dive,
        # and locks the shards of one in the order of their ids, without a sort.
        Index(f"{name}_claim", "task_id", "status", "due", "lane", "priority", "site", "id"),
        # What waits for a time has it, and what is running has a lease, as the CHECKs say.
        # So the status need not stand here too, which would move the entries at each change.
        Index(f"{name}_due", "next_run_at", "task_id"),
        Index(f"{name}_lease", "lease_until", "task_id", "site"),
        *checks(
            name,
            status=one_of("status", "pending", "running", "paused", "done", "failed"),
            reason="reason <> ''",
            owner="(status = 'running') = (worker IS NOT NULL)"
            " AND (status = 'running') = (instance IS NOT NULL)"
            " AND (status = 'running') = (lease_until IS NOT NULL)",
            due="due IN (0, 1) AND (due = 0 OR status = 'pending')",
            backoff="next_run_at IS NULL OR (status = 'pending' AND due = 0)",
            # What waits has a time, or waits for its code to be mended.
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
            error_kind=one_of("error_kind", "retryable", "permanent", "blocked", "code"),
        ),
        **COUNTED,
    )
