"""Shards that wait: for a time, or for their spider's code to be mended.

What has waited long enough is made claimable by its flag ``due``, and not by a
condition on the time in the claim, which would read all that still waits.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, select, update
from sqlalchemy.engine import Connection

from scrapy_resume.store.engine import Database
from scrapy_resume.store.turns import in_turns, lock

_AT_ONCE = 500  # shards made due by one transaction
_OF_A_CALL = 10_000


def raise_due(db: Database) -> int:
    """Make claimable up to 10,000 shards that have waited long enough; returns how many."""
    now = db.look(db.now)
    late = late_rule(db, now)
    parts = in_turns(db, "due", late, limit=_OF_A_CALL, part=_AT_ONCE)
    waits = select(db.tables.task_shard.c.id).where(late)
    return sum(_raise(db, waits, part) for part in parts)


def late_rule(db: Database, now: datetime) -> ColumnElement[bool]:
    """Has a shard waited long enough?"""
    shard = db.tables.task_shard
    return and_(shard.c.next_run_at <= now, shard.c.status == "pending", shard.c.due == 0)


def raise_code_holds(db: Database, task_id: int) -> int:
    """Make claimable what waits because the spider's own code failed; returns how many.

    Called when a process starts, since that is when the code was mended.
    """
    shard = db.tables.task_shard
    held = select(shard.c.id).where(
        shard.c.task_id == task_id,
        shard.c.status == "pending",
        shard.c.due == 0,
        shard.c.error_kind == "code",
    )
    total = 0
    while ids := db.look(lambda conn: list(conn.execute(held.limit(_AT_ONCE)).scalars())):
        raised = _raise(db, held, ids)
        total += raised
        if not raised:  # others are at it
            break
    return total


def _raise(db: Database, waits: Select[Any], ids: list[int]) -> int:
    shard = db.tables.task_shard

    def work(conn: Connection) -> int:
        locked = [row.id for row in lock(conn, db, waits, ids)]
        values = {"due": 1, "next_run_at": None, "updated_at": db.now(conn)}
        if locked:
            conn.execute(update(shard).where(shard.c.id.in_(locked)).values(values))
        return len(locked)

    return db.run(work)
