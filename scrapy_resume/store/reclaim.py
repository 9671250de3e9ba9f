"""How shards come back from an instance that died or ends.

A reclaim raises the fencing token, so whatever the former owner still sends is
refused, and leaves a row in ``operation``. Shards that used up their attempts fail
instead, since a page that kills the process must stop being retried too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Select, select, update
from sqlalchemy.engine import Connection, Row

from scrapy_resume import faults
from scrapy_resume.intake import RESUMED
from scrapy_resume.store import transitions
from scrapy_resume.store.claims import in_lists
from scrapy_resume.store.columns import DIED
from scrapy_resume.store.engine import Database
from scrapy_resume.store.operations import Operation, record
from scrapy_resume.store.turns import lock


def reclaim_worker(db: Database, *, worker: str, instance: str) -> list[int]:
    """Take back every shard of earlier instances of *worker*; returns their ids.

    For the holder of the worker's slot, who knows that they are dead.
    """
    shard = db.tables.task_shard
    query = shards_with_owners(db).where(
        shard.c.status == "running", shard.c.worker == worker, shard.c.instance != instance
    )

    def work(conn: Connection) -> list[int]:
        rows = _locked(conn, db, query)
        reclaim(conn, db, rows, DIED, actor=worker)
        return sorted(row.id for row in rows)

    return db.run(work)


def release_instance(
    db: Database, *, instance: str, reason: str = "released: its process ended"
) -> list[int]:
    """Give back all that *instance* has on record, with the attempts; returns the ids."""
    shard = db.tables.task_shard
    query = shards_with_owners(db).where(shard.c.status == "running", shard.c.instance == instance)

    def work(conn: Connection) -> list[int]:
        rows = _locked(conn, db, query, wait=True)
        now = db.now(conn)
        ids = sorted(row.id for row in rows)
        give_back(conn, db, ids, ("release", "pending", reason), now)
        for part in in_lists(row.id for row in rows if row.attempt_count > 0):
            spent = {"attempt_count": shard.c.attempt_count - 1}
            conn.execute(update(shard).where(shard.c.id.in_(part)).values(spent))
        return ids

    return db.run(work)


def shards_with_owners(db: Database) -> Select[Any]:
    """What :func:`reclaim` needs to know of a shard."""
    shard = db.tables.task_shard
    names = ("id", "task_id", "shard_no", "worker", "instance", "fencing_token",
             "attempt_count", "max_attempts")  # fmt: skip
    return select(*(shard.c[name] for name in names))


def reclaim(
    conn: Connection, db: Database, rows: Sequence[Row[Any]], reason: str, *, actor: str
) -> list[int]:
    """Take the locked shards *rows* from their owners; returns the ids that wait again."""
    faults.point("reap.selected")
    if not rows:
        return []
    now = db.now(conn)
    wishes = _wishes(conn, db, {row.task_id for row in rows})
    groups: dict[tuple[str, str], list[Row[Any]]] = {}
    for row in rows:
        groups.setdefault(_outcome(row, wishes[row.task_id], reason), []).append(row)
    for (status, why), members in sorted(groups.items()):
        give_back(conn, db, [row.id for row in members], ("reclaim", status, why), now)
    record(conn, db, [_operation(row, wishes, reason, actor) for row in rows], at=now)
    faults.point("reap.before")
    return [
        row.id
        for (status, _), members in sorted(groups.items())
        if status == "pending"
        for row in members
    ]


def give_back(
    conn: Connection, db: Database, ids: list[int], move: tuple[str, str, str], now: datetime
) -> None:
    """Take the locked shards *ids* from their owner by *move* (its name, the state it leads to
    and the reason), with a new token."""
    shard = db.tables.task_shard
    values = transitions.shard_values(*move) | {
        "lane": RESUMED,
        "fencing_token": shard.c.fencing_token + 1,
        "updated_at": now,
    }
    for part in in_lists(ids):
        conn.execute(update(shard).where(shard.c.id.in_(part)).values(values))


def _locked(
    conn: Connection, db: Database, query: Select[Any], *, wait: bool = False
) -> list[Row[Any]]:
    ids = conn.execute(query.with_only_columns(db.tables.task_shard.c.id)).scalars()
    return [row for part in in_lists(ids) for row in lock(conn, db, query, part, wait=wait)]


def _wishes(conn: Connection, db: Database, task_ids: Iterable[int]) -> dict[int, Row[Any]]:
    task = db.tables.task
    query: Select[Any] = select(task.c.id, task.c.desired, task.c.reason)
    rows = conn.execute(query.where(task.c.id.in_(sorted(task_ids))))
    return {row.id: row for row in rows}


def _outcome(row: Row[Any], wish: Row[Any], reason: str) -> tuple[str, str]:
    if wish.desired == "cancel":
        return "failed", wish.reason
    if row.attempt_count >= row.max_attempts:
        return "failed", f"gave up after {row.attempt_count} attempts: {reason}"
    return ("paused", wish.reason) if wish.desired == "pause" else ("pending", reason)


def _operation(row: Row[Any], wishes: dict[int, Row[Any]], reason: str, actor: str) -> Operation:
    status, _ = _outcome(row, wishes[row.task_id], reason)
    before = f"running by {row.worker}/{row.instance}, token {row.fencing_token}"
    after = f"{status}, token {row.fencing_token + 1}"
    return Operation("reclaim", actor, reason, row.task_id, row.shard_no, before, after)
