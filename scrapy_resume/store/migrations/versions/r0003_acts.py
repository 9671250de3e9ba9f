"""An operator's acts: when pages were put back, and the last page that was planned.

As in the first revision, whatever a killed migration has done already is passed over.
"""

from __future__ import annotations

from typing import Any

from alembic import op
from sqlalchemy import BigInteger, Column, inspect

from scrapy_resume.store.columns import Moment

revision = "0003"
down_revision = "0002"

_COLUMNS = (
    ("task", "read_again_at", Moment),
    ("task_shard", "planned_last_page", BigInteger),
)


def upgrade() -> None:
    prefix = op.get_context().opts["prefix"]
    for table, name, kind in _COLUMNS:
        _add_column(prefix + table, name, kind)
    # Of what is there already the plan is not known better.
    op.execute(
        f"UPDATE {prefix}task_shard SET planned_last_page = last_page"
        " WHERE planned_last_page IS NULL AND last_page IS NOT NULL"
    )


def _add_column(table: str, name: str, kind: Any) -> None:
    there = {column["name"] for column in inspect(op.get_bind()).get_columns(table)}
    if name not in there:
        op.add_column(table, Column(name, kind))
