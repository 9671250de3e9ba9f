"""The circuits of sites: how long one is parked, and who may try it.

As in the first revision, whatever a killed migration has done already is passed over.
"""

from __future__ import annotations

from typing import Any

from alembic import op
from sqlalchemy import BigInteger, Column, inspect

from scrapy_resume.store.columns import Exact, Moment

revision = "0005"
down_revision = "0004"

_COLUMNS: tuple[tuple[str, Any], ...] = (
    ("wait_ms", BigInteger),
    ("probe_instance", Exact(64)),
    ("probe_until", Moment),
)


def upgrade() -> None:
    table = op.get_context().opts["prefix"] + "site_health"
    there = {column["name"] for column in inspect(op.get_bind()).get_columns(table)}
    for name, kind in _COLUMNS:
        if name not in there:
            op.add_column(table, Column(name, kind))
