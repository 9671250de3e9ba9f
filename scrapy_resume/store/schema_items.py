"""Tables of what was stored, what was refused and what is to be delivered."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Index, Integer, MetaData, Table

from scrapy_resume.store.columns import (
    COUNTED,
    KEY_LENGTH,
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


def item(metadata: MetaData, prefix: str) -> Table:
    """The default item table: one row for each key of a source."""
    return Table(
        f"{prefix}item",
        metadata,
        Column("source", Exact(NAME_LENGTH), primary_key=True),
        Column("item_key", Exact(KEY_LENGTH), primary_key=True),
        Column("payload", LongText, nullable=False),
        Column("task_id", BigInteger),
        Column("shard_no", Integer),
        Column("page", BigInteger),
        *times("fetched_at", "first_seen_at", "updated_at"),
        **OPTIONS,
    )


def manifest(metadata: MetaData, prefix: str) -> Table:
    """Which item keys each page stored; for a later release."""
    return Table(
        f"{prefix}manifest",
        metadata,
        Column("shard_id", BigInteger, primary_key=True, autoincrement=False),
        Column("page", BigInteger, primary_key=True, autoincrement=False),
        Column("item_keys", LongText, nullable=False),
        Column("item_count", Integer, nullable=False),
        *times("committed_at"),
        **OPTIONS,
    )


def quarantine(metadata: MetaData, prefix: str) -> Table:
    """What was set aside; ``resolved_at`` and ``resolution`` are for a later release."""
    name = f"{prefix}quarantine"
    return Table(
        name,
        metadata,
        Column("id", Serial, primary_key=True),
        Column("task_id", BigInteger),
        Column("shard_id", BigInteger),
        Column("shard_no", Integer),
        Column("page", BigInteger),
        Column("kind", Exact(10), nullable=False),
        Column("url", LongText),
        Column("item_key", LongText),
        Column("error_class", Exact(NAME_LENGTH), nullable=False),
        Column("error", LongText, nullable=False),
        Column("attempts", Integer, nullable=False),
        *times("created_at"),
        Column("resolved_at", Moment),
        Column("resolution", Exact(REASON_LENGTH)),
        Column("column_name", Exact(NAME_LENGTH)),  # of the value that was refused
        Column("value", LongText),  # that value, shortened, without secrets
        Column("item_table", Exact(NAME_LENGTH)),  # the table it was for
        Index(f"{name}_page", "task_id", "shard_no", "page"),
        *checks(
            name,
            kind=one_of("kind", "page", "request", "item", "row"),
            resolved="(resolved_at IS NULL) = (resolution IS NULL)",
        ),
        **COUNTED,
    )


def outbox(metadata: MetaData, prefix: str) -> Table:
    """What is to be delivered to other sinks; for a later release."""
    name = f"{prefix}outbox"
    return Table(
        name,
        metadata,
        Column("sink", Exact(64), primary_key=True),
        Column("source", Exact(NAME_LENGTH), primary_key=True),
        Column("item_key", Exact(KEY_LENGTH), primary_key=True),
        Column("seq", BigInteger, nullable=False),
        Column("payload", LongText),
        Column("attempts", Integer, nullable=False),
        Column("next_attempt_at", Moment),
        Column("delivered_at", Moment),
        Column("last_error", LongText),
        Index(f"{name}_next", "delivered_at", "next_attempt_at"),
        **OPTIONS,
    )
