"""Who works on a run: every instance says so when it begins, before it holds a shard."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Select, func, select, update
from sqlalchemy.engine import Connection

from scrapy_resume.store.engine import Database
from scrapy_resume.store.runs import existing


@dataclass(frozen=True, slots=True)
class Presence:
    """An instance that works on a run, as far as others can tell.

    *until* is when others may stop to believe it: the end of its last lease, or of the
    time that one heartbeat is good for.
    """

    worker: str
    host: str
    pid: int | None
    since: datetime
    until: datetime
    shards: int

    def __str__(self) -> str:
        where = f"worker {self.worker[:8]} ({self.host}, pid {self.pid})"
        held = f"holds {self.shards} of its shards" if self.shards else "holds no shard yet"
        return f"{where} since {_utc(self.since)}, which {held}, until {_utc(self.until)} or longer"


def attend(
    db: Database, task_id: int, *, instance: str, lease: float, alone: bool
) -> list[Presence]:
    """Record that *instance* works on a run; returns who else does.

    With *alone* it is recorded only if nobody else does. Of those who ask at the same
    moment one is first, since the run's row is locked.
    """
    worker = db.tables.worker

    def work(conn: Connection) -> list[Presence]:
        existing(conn, db, task_id, lock=True)
        others = _others(conn, db, task_id, instance, lease)
        if not (alone and others):
            mine = worker.c.instance == instance
            conn.execute(update(worker).where(mine).values(task_id=task_id))
        return others

    return db.run(work)


def ended(db: Database, *, worker: str) -> None:
    """Record that every instance of *worker* has ended; for who knows, by its slot."""
    table = db.tables.worker

    def work(conn: Connection) -> None:
        going_on = (table.c.worker == worker, table.c.stopped_at.is_(None))
        if conn.execute(select(table.c.instance).where(*going_on).limit(1)).first():
            conn.execute(update(table).where(*going_on).values(stopped_at=db.now(conn)))

    db.run(work)


def _others(
    conn: Connection, db: Database, task_id: int, instance: str, lease: float
) -> list[Presence]:
    worker, now = db.tables.worker, db.now(conn)
    holders = {row.instance: row for row in conn.execute(_holders(db, task_id, instance, now))}
    rows = conn.execute(
        select(worker).where(
            worker.c.task_id == task_id,
            worker.c.stopped_at.is_(None),
            worker.c.instance != instance,
        )
    )
    present = []
    for row in rows:
        holder = holders.pop(row.instance, None)
        until = row.heartbeat_at + timedelta(seconds=lease)
        if holder is not None or until >= now:
            present.append(_presence(row, holder, until))
    present += [
        Presence(one.worker, "host unknown", None, one.since, one.until, one.shards)
        for one in holders.values()
    ]
    return sorted(present, key=lambda one: one.since)


def _holders(db: Database, task_id: int, instance: str, now: datetime) -> Select[Any]:
    shard = db.tables.task_shard
    return (
        select(
            shard.c.instance,
            shard.c.worker,
            func.max(shard.c.lease_until).label("until"),
            func.min(shard.c.updated_at).label("since"),
            func.count().label("shards"),
        )
        .where(
            shard.c.task_id == task_id,
            shard.c.status == "running",
            shard.c.instance != instance,
            shard.c.lease_until >= now,
        )
        .group_by(shard.c.instance, shard.c.worker)
    )


def _presence(row: Any, holder: Any, until: datetime) -> Presence:
    if holder is not None:
        until = max(until, holder.until)
    shards = 0 if holder is None else holder.shards
    return Presence(row.worker, row.host, row.pid, row.started_at, until, shards)


def _utc(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"
