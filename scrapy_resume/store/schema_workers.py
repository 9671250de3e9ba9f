"""Tables of who works, what was decided by no owner, which sites are well, and of the tables."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Index, Integer, MetaData, Table

from scrapy_resume.store.columns import (
    COUNTED,
    NAME_LENGTH,
    OPTIONS,
    REASON_LENGTH,
    Exact,
    LongText,
    Moment,
    Serial,
    checks,
    one_of,
    times,
)


def operation(metadata: MetaData, prefix: str) -> Table:
    """Acts that no owner of a shard did."""
    name = f"{prefix}operation"
    return Table(
        name,
        metadata,
        Column("id", Serial, primary_key=True),
        Column("kind", Exact(32), nullable=False),
        Column("task_id", BigInteger),
        Column("shard_no", Integer),
        Column("actor", Exact(NAME_LENGTH), nullable=False),
        Column("reason", Exact(REASON_LENGTH), nullable=False),
        Column("before", LongText),
        Column("after", LongText),
        *times("at"),
        Index(f"{name}_task", "task_id", "at"),
        *checks(name, reason="reason <> ''"),
        **COUNTED,
    )


def worker(metadata: MetaData, prefix: str) -> Table:
    """One row for each start of a worker."""
    name = f"{prefix}worker"
    return Table(
        name,
        metadata,
        Column("instance", Exact(64), primary_key=True),
        Column("worker", Exact(64), nullable=False),
        Column("host", Exact(255), nullable=False),
        Column("pid", Integer, nullable=False),
        Column("version", Exact(32), nullable=False),
        Column("protocol", Integer, nullable=False),
        Column("capacity", Integer, nullable=False),
        Column("load", Integer, nullable=False),
        *times("started_at", "heartbeat_at"),
        Column("stopped_at", Moment),
        Column("task_id", BigInteger),  # the run it works on
        Column("job", Exact(NAME_LENGTH)),  # who started it calls it so
        Index(f"{name}_worker", "worker"),
        Index(f"{name}_task", "task_id", "stopped_at"),
        Index(f"{name}_heartbeat", "heartbeat_at"),
        **OPTIONS,
    )


def site_health(metadata: MetaData, prefix: str) -> Table:
    """How well each site is. Claims under a cap lock the rows of sites, and make missing ones."""
    name = f"{prefix}site_health"
    return Table(
        name,
        metadata,
        Column("site", Exact(NAME_LENGTH), primary_key=True),
        Column("state", Exact(10), nullable=False),
        Column("reason", Exact(REASON_LENGTH), nullable=False),
        Column("until", Moment),
        Column("set_by", Exact(NAME_LENGTH)),
        Column("counters", LongText),  # the sliding window, JSON
        *times("updated_at"),
        Column("wait_ms", BigInteger),  # how long it was parked last
        Column("probe_instance", Exact(64)),  # who may try it, alone
        Column("probe_until", Moment),  # until when, unless renewed
        Index(f"{name}_state", "state", "until"),
        *checks(name, state=one_of("state", "healthy", "suspect", "blocked", "paused")),
        **OPTIONS,
    )


def meta(metadata: MetaData, prefix: str) -> Table:
    """Facts about the tables themselves, by name."""
    return Table(
        f"{prefix}meta",
        metadata,
        Column("name", Exact(64), primary_key=True),
        Column("value", LongText, nullable=False),
        **OPTIONS,
    )
