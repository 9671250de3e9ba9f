"""Many workers: facts about the tables, what a worker works on, and indexes by task.

As in the first revision, whatever a killed migration has done already is passed over.
"""

from __future__ import annotations

from typing import Any

from alembic import op
from sqlalchemy import BigInteger, Column, MetaData, Table, inspect

from scrapy_resume.store.columns import OPTIONS, Exact, LongText

revision = "0002"
down_revision = "0001"

_COLUMNS = (
    ("worker", "task_id", BigInteger),
    ("quarantine", "column_name", Exact(190)),
    ("quarantine", "value", LongText),
    ("quarantine", "item_table", Exact(190)),
)
_INDEXES = (
    ("task_shard", "claim", ["task_id", "status", "due", "lane", "priority", "site", "id"]),
    ("task_shard", "due", ["next_run_at", "task_id"]),
    ("task_shard", "lease", ["lease_until", "task_id", "site"]),
    ("worker", "task", ["task_id", "stopped_at"]),
    ("worker", "heartbeat", ["heartbeat_at"]),
    ("site_health", "state", ["state", "until"]),
)


def upgrade() -> None:
    prefix = op.get_context().opts["prefix"]
    _meta(prefix).create(op.get_bind(), checkfirst=True)
    for table, name, kind in _COLUMNS:
        _add_column(prefix + table, name, kind)
    for table, name, columns in _INDEXES:
        _put_index(prefix + table, name, columns)


def _meta(prefix: str) -> Table:
    return Table(
        f"{prefix}meta", MetaData(),
        Column("name", Exact(64), primary_key=True), Column("value", LongText, nullable=False),
        **OPTIONS,
    )  # fmt: skip


def _add_column(table: str, name: str, kind: Any) -> None:
    there = {column["name"] for column in inspect(op.get_bind()).get_columns(table)}
    if name not in there:
        op.add_column(table, Column(name, kind))


def _put_index(table: str, name: str, columns: list[str]) -> None:
    index = f"{table}_{name}"
    there = {one["name"]: one["column_names"] for one in inspect(op.get_bind()).get_indexes(table)}
    if there.get(index) == columns:
        return
    if index in there and op.get_bind().dialect.name != "sqlite":
        # In one step, since workers that go on name it in their queries.
        names = ", ".join(f"`{column}`" for column in columns)
        op.execute(f"ALTER TABLE `{table}` DROP INDEX `{index}`, ADD INDEX `{index}` ({names})")
        return
    if index in there:
        op.drop_index(index, table)
    op.create_index(index, table, columns)
