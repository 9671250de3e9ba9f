"""Shards that wait: for a time, for their site, or for their spider's code to be mended.

What has waited long enough is made claimable by its flag ``due``, and not by a
condition on the time in the claim, which would read all that still waits.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, func, select, update
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


def raise_parked(db: Database, site: str) -> int:
    """Make claimable what waits because *site* was blocked; returns how many.

    Called when the site is well again, which may be before the time they wait for.
    """
    parked = parked_rule(db, site)
    waits = select(db.tables.task_shard.c.id).where(parked)
    total = 0
    while parts := in_turns(db, "due", parked, limit=_OF_A_CALL, part=_AT_ONCE):
        raised = sum(_raise(db, waits, part) for part in parts)
        total += raised
        if not raised:  # others are at it
            break
    return total


def count_parked(db: Database, site: str) -> int:
    """How many shards :func:`raise_parked` would make claimable."""
    return db.look(lambda conn: parked_count(conn, db, site))


def parked_count(conn: Connection, db: Database, site: str) -> int:
    """As :func:`count_parked`, in the caller's transaction."""
    query = select(func.count()).where(parked_rule(db, site))
    return int(conn.execute(query).scalar() or 0)


def parked_rule(db: Database, site: str) -> ColumnElement[bool]:
    """Does a shard wait because *site* was blocked?"""
    shard = db.tables.task_shard
    waits = and_(shard.c.next_run_at.is_not(None), shard.c.status == "pending", shard.c.due == 0)
    return and_(waits, shard.c.error_kind == "blocked", shard.c.site == site)


def _raise(db: Database, waits: Select[Any], ids: list[int]) -> int:
    shard = db.tables.task_shard

    def work(conn: Connection) -> int:
        locked = [row.id for row in lock(conn, db, waits, ids)]
        values = {"due": 1, "next_run_at": None, "updated_at": db.now(conn)}
        if locked:
            conn.execute(update(shard).where(shard.c.id.in_(locked)).values(values))
        return len(locked)

    return db.run(work)
