"""How shards come back: from a dead instance, after a wait, and after a mended error.

A reclaim raises the fencing token, so whatever the former owner still sends is
refused, and leaves a row in ``operation``. Shards that used up their attempts fail
instead, since a page that kills the process must stop being retried too.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from sqlalchemy import Select, select, update
from sqlalchemy.engine import Connection, Row

from scrapy_resume import faults
from scrapy_resume.store.claims import in_lists
from scrapy_resume.store.columns import DIED, LAPSED
from scrapy_resume.store.engine import Database
from scrapy_resume.store.operations import Operation, record

_REAPED = 100  # shards taken back by one transaction
_RAISED = 1000  # backed-off shards made due by one transaction
RESUMED_LANE = 1


def reclaim_worker(db: Database, *, worker: str, instance: str) -> list[int]:
    """Take back every shard of earlier instances of *worker*; returns their ids.

    For the holder of the worker's slot, who knows that they are dead.
    """
    shard = db.tables.task_shard
    query = _with_task(db).where(
        shard.c.status == "running", shard.c.worker == worker, shard.c.instance != instance
    )
    return db.run(lambda conn: _reclaim(conn, db, query, DIED, actor=worker))


def release_instance(db: Database, *, instance: str) -> list[int]:
    """Give back what *instance*, which ends, still holds, with the attempts; returns the ids."""
    shard = db.tables.task_shard
    query = _with_task(db).where(shard.c.status == "running", shard.c.instance == instance)

    def work(conn: Connection) -> list[int]:
        rows = conn.execute(query.with_for_update()).all()
        now = db.now(conn)
        ids = sorted(row.id for row in rows)
        give_back(conn, db, ids, "pending", "released: its process ended", now)
        for part in in_lists(row.id for row in rows if row.attempt_count > 0):
            spent = {"attempt_count": shard.c.attempt_count - 1}
            conn.execute(update(shard).where(shard.c.id.in_(part)).values(spent))
        return ids

    return db.run(work)


def reap(db: Database, *, actor: str) -> list[int]:
    """Take back up to 100 shards whose lease has run out; returns their ids."""
    shard = db.tables.task_shard

    def work(conn: Connection) -> list[int]:
        expired = (
            _with_task(db)
            .where(shard.c.status == "running", shard.c.lease_until < db.now(conn))
            .order_by(shard.c.lease_until)
            .limit(_REAPED)
        )
        return _reclaim(conn, db, expired, LAPSED, actor=actor)

    return db.run(work)


def raise_due(db: Database) -> int:
    """Make claimable what has waited long enough; returns how many shards."""
    shard = db.tables.task_shard

    def work(conn: Connection) -> int:
        waited = (shard.c.status == "pending", shard.c.due == 0)
        late = shard.c.next_run_at <= db.now(conn)
        query = select(shard.c.id).where(*waited, late).order_by(shard.c.next_run_at)
        return _make_due(conn, db, query.limit(_RAISED))

    return db.run(work)


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
    return db.run(lambda conn: _make_due(conn, db, held))


def _with_task(db: Database) -> Select[Any]:
    shard = db.tables.task_shard
    return select(
        shard.c.id,
        shard.c.task_id,
        shard.c.shard_no,
        shard.c.worker,
        shard.c.instance,
        shard.c.fencing_token,
        shard.c.attempt_count,
        shard.c.max_attempts,
    )


def _reclaim(
    conn: Connection, db: Database, query: Select[Any], reason: str, *, actor: str
) -> list[int]:
    rows = conn.execute(query.with_for_update(skip_locked=True)).all()
    faults.point("reap.selected")
    if not rows:
        return []
    now = db.now(conn)
    wishes = _wishes(conn, db, {row.task_id for row in rows})
    groups: dict[tuple[str, str], list[Row[Any]]] = {}
    for row in rows:
        groups.setdefault(_outcome(row, wishes[row.task_id], reason), []).append(row)
    for (status, why), members in sorted(groups.items()):
        give_back(conn, db, [row.id for row in members], status, why, now)
    record(conn, db, [_operation(row, wishes, reason, actor) for row in rows], at=now)
    faults.point("reap.before")
    return sorted(row.id for row in rows)


def _wishes(conn: Connection, db: Database, task_ids: Iterable[int]) -> dict[int, str]:
    task = db.tables.task
    rows = conn.execute(select(task.c.id, task.c.desired).where(task.c.id.in_(sorted(task_ids))))
    return {row.id: row.desired for row in rows}


def _outcome(row: Row[Any], wish: str, reason: str) -> tuple[str, str]:
    if wish == "cancel":
        return "failed", "cancelled"
    if row.attempt_count >= row.max_attempts:
        return "failed", f"gave up after {row.attempt_count} attempts: {reason}"
    return ("paused", "paused") if wish == "pause" else ("pending", reason)


def _operation(row: Row[Any], wishes: dict[int, str], reason: str, actor: str) -> Operation:
    status, _ = _outcome(row, wishes[row.task_id], reason)
    before = f"running by {row.worker}/{row.instance}, token {row.fencing_token}"
    after = f"{status}, token {row.fencing_token + 1}"
    return Operation("reclaim", actor, reason, row.task_id, row.shard_no, before, after)


def give_back(
    conn: Connection, db: Database, ids: list[int], status: str, reason: str, now: datetime
) -> None:
    """Take the locked shards *ids* from their owner, with a new token."""
    shard = db.tables.task_shard
    values = {
        "status": status,
        "reason": reason,
        "due": int(status == "pending"),
        "lane": RESUMED_LANE,
        "worker": None,
        "instance": None,
        "lease_until": None,
        "fencing_token": shard.c.fencing_token + 1,
        "updated_at": now,
    }
    for part in in_lists(ids):
        conn.execute(update(shard).where(shard.c.id.in_(part)).values(values))


def _make_due(conn: Connection, db: Database, query: Select[Any]) -> int:
    shard = db.tables.task_shard
    ids = conn.execute(query.with_for_update(skip_locked=True)).scalars().all()
    now = db.now(conn)
    for part in in_lists(ids):
        conn.execute(
            update(shard)
            .where(shard.c.id.in_(part))
            .values(due=1, next_run_at=None, updated_at=now)
        )
    return len(ids)
