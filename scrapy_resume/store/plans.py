"""Planning a run: one process at a time, under a fenced lease on the task's row.

Until ``planned_at`` is set no shard can be claimed. A planner that died leaves
shards behind which its successor deletes before it stores its own; every batch
checks the planning token under the row's lock, so a planner that was only frozen
stores nothing more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

from sqlalchemy import ColumnElement, and_, delete, func, insert, or_, select, update
from sqlalchemy.engine import Connection
from sqlalchemy.exc import IntegrityError

from scrapy_resume import faults
from scrapy_resume.exceptions import ConfigurationError, LeaseLost
from scrapy_resume.page import Shard
from scrapy_resume.store.engine import Database
from scrapy_resume.store.planrows import plan_rows

_BATCH = 1000  # shards stored by one transaction


def claim_planning(
    db: Database, task_id: int, *, worker: str, instance: str, lease: float
) -> int | None:
    """Take the right to plan for *lease* seconds; returns the planning token.

    None if the run is planned or over, or another worker is planning it. An earlier
    instance of the same worker is dead and is taken over at once.
    """
    return db.run(lambda conn: _claim(conn, db, task_id, worker, instance, lease))


def renew_planning(db: Database, task_id: int, token: int, lease: float) -> bool:
    """Extend the planning lease to *lease* seconds from now; False if it is lost."""

    def work(conn: Connection) -> bool:
        until = db.now(conn) + timedelta(seconds=lease)
        return _fenced(conn, db, task_id, token, plan_lease_until=until)

    return db.run(work)


def store_plan(
    db: Database,
    task_id: int,
    token: int,
    shards: Iterable[Shard],
    *,
    default_site: str,
    ordered_default: bool | Callable[[Shard], bool] = False,
    max_attempts: int = 10,
    bound: str | None = None,
    signature: str | None = None,
) -> int:
    """Store *shards* as the run's plan and make them claimable; returns how many.

    The caller renews the planning lease meanwhile if *shards* takes its time.
    Raises LeaseLost if someone else plans now, ConfigurationError for a shard that
    cannot be stored or a key used twice.
    """
    db.run(lambda conn: _clear(conn, db, task_id, token))
    rows = plan_rows(shards, task_id, default_site, ordered_default, max_attempts)
    count = 0
    while batch := list(islice(rows, _BATCH)):
        _store(db, task_id, token, batch)
        count += len(batch)
    faults.point("plan.before")
    db.run(lambda conn: _publish(conn, db, task_id, token, bound, signature))
    return count


def _claim(
    conn: Connection, db: Database, task_id: int, worker: str, instance: str, lease: float
) -> int | None:
    task = db.tables.task
    now = db.now(conn)
    free = or_(task.c.planner.is_(None), task.c.planner == worker, task.c.plan_lease_until < now)
    result = conn.execute(
        update(task)
        .where(task.c.id == task_id, *_unplanned(db), free)
        .values(
            planner=worker,
            planner_instance=instance,
            plan_token=task.c.plan_token + 1,
            plan_lease_until=now + timedelta(seconds=lease),
            updated_at=now,
        )
    )
    if not result.rowcount:
        return None
    token: int = conn.execute(select(task.c.plan_token).where(task.c.id == task_id)).scalar_one()
    return token


def _unplanned(db: Database) -> tuple[ColumnElement[bool], ...]:
    task = db.tables.task
    return task.c.planned_at.is_(None), task.c.finished_at.is_(None)


def _fenced(conn: Connection, db: Database, task_id: int, token: int, **values: Any) -> bool:
    """Change the task's row, and keep it locked, if *token* still plans it."""
    task = db.tables.task
    mine = (task.c.id == task_id, task.c.plan_token == token, task.c.planner.is_not(None))
    return bool(
        conn.execute(
            update(task).where(*mine, *_unplanned(db)).values(updated_at=db.now(conn), **values)
        ).rowcount
    )


def _fence(conn: Connection, db: Database, task_id: int, token: int, **values: Any) -> None:
    if not _fenced(conn, db, task_id, token, **values):
        lost = LeaseLost(0, token)
        lost.args = (f"the plan of task {task_id} is no longer ours (planning token {token})",)
        raise lost


def _clear(conn: Connection, db: Database, task_id: int, token: int) -> None:
    _fence(conn, db, task_id, token)
    shard = db.tables.task_shard
    ours = shard.c.task_id == task_id
    if conn.execute(select(shard.c.id).where(ours).limit(1)).first():
        conn.execute(delete(shard).where(ours))


def _store(db: Database, task_id: int, token: int, batch: list[dict[str, Any]]) -> None:
    shard = db.tables.task_shard

    def work(conn: Connection) -> None:
        _fence(conn, db, task_id, token)
        highest = select(func.max(shard.c.shard_no)).where(shard.c.task_id == task_id)
        if (conn.execute(highest).scalar() or 0) >= batch[-1]["shard_no"]:
            return  # stored already; only the reply of the COMMIT was lost
        now = db.now(conn)
        times = {"created_at": now, "updated_at": now}
        conn.execute(insert(shard), [row | times for row in batch])

    try:
        db.run(work)
    except IntegrityError:
        raise ConfigurationError(_twice(db, task_id, batch)) from None


def _twice(db: Database, task_id: int, batch: list[dict[str, Any]]) -> str:
    shard = db.tables.task_shard
    keys = [row["shard_key"] for row in batch]
    stored = select(shard.c.shard_key).where(
        and_(shard.c.task_id == task_id, shard.c.shard_key.in_(keys))
    )
    seen = db.look(lambda conn: set(conn.execute(stored).scalars()))
    for key in keys:
        if key in seen:
            return f"plan() yields the shard key {key!r} twice; a key names one shard of the run"
        seen.add(key)
    return "plan() yields a shard that the database refuses"


def _publish(
    conn: Connection,
    db: Database,
    task_id: int,
    token: int,
    bound: str | None,
    signature: str | None,
) -> None:
    task = db.tables.task
    now: datetime = db.now(conn)
    values = {
        "status": "running",
        "reason": "planned",
        "bound": bound,
        "signature": signature,
        "planned_at": now,
        "planner": None,
        "planner_instance": None,
        "plan_lease_until": None,
    }
    done = select(task.c.id).where(
        task.c.id == task_id, task.c.plan_token == token, task.c.planned_at.is_not(None)
    )
    if conn.execute(done).first() is None:  # else the reply of its COMMIT was lost
        _fence(conn, db, task_id, token, **values)
