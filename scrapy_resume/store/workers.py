"""Workers on record: who they are and when they were last heard of."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from sqlalchemy import delete, insert, select, update
from sqlalchemy.engine import Connection

from scrapy_resume.store.engine import Database

_KEPT = timedelta(days=30)  # rows of instances that were not heard of since


def register(
    db: Database,
    *,
    worker: str,
    instance: str,
    host: str,
    pid: int,
    version: str,
    protocol: int,
    capacity: int,
) -> None:
    """Record a new *instance* of *worker*; its earlier ones have ended."""
    table = db.tables.worker

    def work(conn: Connection) -> None:
        now = db.now(conn)
        ended = (table.c.worker == worker, table.c.instance != instance)
        conn.execute(
            update(table).where(*ended, table.c.stopped_at.is_(None)).values(stopped_at=now)
        )
        row = {
            "instance": instance, "worker": worker, "host": host[:255], "pid": pid,
            "version": version[:32], "protocol": protocol, "capacity": capacity, "load": 0,
            "started_at": now, "heartbeat_at": now,
        }  # fmt: skip
        if conn.execute(select(table.c.instance).where(table.c.instance == instance)).first():
            return  # the reply of its COMMIT was lost
        conn.execute(insert(table).values(row))

    db.run(work)


def beat(db: Database, *, instance: str, load: int) -> None:
    """Record that *instance* lives and holds *load* shards."""
    _touch(db, instance, load=load)


def stopped(db: Database, *, instance: str) -> None:
    """Record that *instance* has ended."""
    _touch(db, instance, load=0, ended=True)


def prune(db: Database, limit: int = 500) -> int:
    """Delete up to *limit* rows of instances silent for 30 days; returns how many."""
    table = db.tables.worker

    def work(conn: Connection) -> int:
        old = table.c.heartbeat_at < db.now(conn) - _KEPT
        query = select(table.c.instance).where(old).order_by(table.c.heartbeat_at)
        ids = sorted(conn.execute(query.limit(limit)).scalars())
        if ids:
            conn.execute(delete(table).where(table.c.instance.in_(ids)))
        return len(ids)

    return db.run(work)


def live(db: Database) -> list[dict[str, Any]]:
    """The instances that have not ended, as rows."""
    table = db.tables.worker
    query = select(table).where(table.c.stopped_at.is_(None)).order_by(table.c.started_at)
    return db.look(lambda conn: [dict(row) for row in conn.execute(query).mappings()])


def _touch(db: Database, instance: str, *, load: int, ended: bool = False) -> None:
    table = db.tables.worker

    def work(conn: Connection) -> None:
        now = db.now(conn)
        times = {"heartbeat_at": now, **({"stopped_at": now} if ended else {})}
        conn.execute(update(table).where(table.c.instance == instance).values(load=load, **times))

    db.run(work)
