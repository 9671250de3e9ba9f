"""A database that lost commits, as by a failover to a copy that was behind.

It shows where a shard's owner knows of more commits than the row. What the owner says next
builds on pages that are gone, and a finish of his would hide them. So the shard is taken from
him, and read again from where the row stands. Requests count as duplicates of committed pages,
some of which are not: as after an operator's act every worker forgets what it knows of them.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import update
from sqlalchemy.engine import Connection, Row

from scrapy_resume.store.engine import Database
from scrapy_resume.store.reclaim import reclaim

REASON = "the database has lost commits of its owner; they are read again"


def take_back(conn: Connection, db: Database, row: Row[Any], now: datetime) -> None:
    """Take the locked shard *row* from its owner, who knows more than it holds."""
    if row.status == "running":
        reclaim(conn, db, [row], REASON, actor=row.worker)
        task = db.tables.task
        values = {"read_again_at": now, "updated_at": now}
        conn.execute(update(task).where(task.c.id == row.task_id).values(values))
