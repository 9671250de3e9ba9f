"""Workers on record: who they are and when they were last heard of."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta

from sqlalchemy import delete, insert, select, update
from sqlalchemy.engine import Connection

from scrapy_resume.store.columns import NAME_LENGTH
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
    job: str | None = None,
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
            "started_at": now, "heartbeat_at": now, "job": job and job[:NAME_LENGTH],
        }  # fmt: skip
        if conn.execute(select(table.c.instance).where(table.c.instance == instance)).first():
            return  # the reply of its COMMIT was lost
        conn.execute(insert(table).values(row))

    db.run(work)


def namesakes(
    db: Database, *, worker: str, known: Collection[str], within: float
) -> list[tuple[str, int]]:
    """Host and pid of instances of *worker* that go on, since they were heard of in the last
    *within* seconds; those *known* to have ended are left out."""
    table = db.tables.worker

    def work(conn: Connection) -> list[tuple[str, int]]:
        lately = table.c.heartbeat_at >= db.now(conn) - timedelta(seconds=within)
        going_on = (table.c.worker == worker, table.c.stopped_at.is_(None), lately)
        query = select(table.c.instance, table.c.host, table.c.pid).where(*going_on)
        rows = conn.execute(query)
        return [(row.host, row.pid) for row in rows if row.instance not in known]

    return db.look(work)


def on_record(db: Database, worker: str) -> bool:
    """Has *worker* ever worked with this database, as far as it remembers?"""
    table = db.tables.worker
    query = select(table.c.instance).where(table.c.worker == worker).limit(1)
    return db.look(lambda conn: conn.execute(query).first() is not None)


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


def _touch(db: Database, instance: str, *, load: int, ended: bool = False) -> None:
    table = db.tables.worker

    def work(conn: Connection) -> None:
        now = db.now(conn)
        times = {"heartbeat_at": now, **({"stopped_at": now} if ended else {})}
        conn.execute(update(table).where(table.c.instance == instance).values(load=load, **times))

    db.run(work)
