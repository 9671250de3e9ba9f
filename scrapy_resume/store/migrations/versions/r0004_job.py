"""Which scheduled job a start of a worker is.

As in the first revision, whatever a killed migration has done already is passed over.
"""

from __future__ import annotations

from alembic import op
from sqlalchemy import Column, inspect

from scrapy_resume.store.columns import Exact

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    table = op.get_context().opts["prefix"] + "worker"
    there = {column["name"] for column in inspect(op.get_bind()).get_columns(table)}
    if "job" not in there:
        op.add_column(table, Column("job", Exact(190)))
