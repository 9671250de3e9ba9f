"""Planning a run: one process at a time, under a fenced lease on the task's row.

Shards are stored in chunks while ``plan()`` is read, and none can be claimed before
``planned_at`` is set. A planner that died leaves shards behind which its successor
deletes before it stores its own; every chunk checks the planning token under the
row's lock, so a planner that was only frozen stores nothing more. Each function here
is one transaction of bounded size, so that a heartbeat fits between two of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

from sqlalchemy import ColumnElement, case, delete, func, insert, or_, select, update
from sqlalchemy.engine import Connection
from sqlalchemy.exc import IntegrityError

from scrapy_resume import faults
from scrapy_resume.exceptions import ConfigurationError, LeaseLost
from scrapy_resume.page import Shard
from scrapy_resume.store.engine import Database
from scrapy_resume.store.planrows import plan_rows
from scrapy_resume.store.transitions import task_values

CHUNK = 1000  # shards stored by one transaction
_DELETED = 900  # left-over shards deleted by one transaction


def claim_planning(
    db: Database, task_id: int, *, worker: str, instance: str, lease: float, again: bool = False
) -> int | None:
    """Take the right to plan for *lease* seconds; returns the planning token.

    None if the run is planned or over, or another worker is planning it. An earlier
    instance of the same worker is dead and is taken over at once; not *again*, after the
    plan was lost to someone of that name: processes whose homes are copies of one another
    have one name, and would take the plan from each other for ever.
    """
    owner = {"planner": worker, "planner_instance": instance}
    return db.run(lambda conn: _claim(conn, db, task_id, owner, lease, again))


def renew_planning(db: Database, task_id: int, token: int, lease: float) -> bool:
    """Extend the planning lease to *lease* seconds from now; False if it is lost."""

    def work(conn: Connection) -> bool:
        until = db.now(conn) + timedelta(seconds=lease)
        return _fenced(conn, db, task_id, token, plan_lease_until=until)

    return db.run(work)


def clear_plan(db: Database, task_id: int, token: int) -> bool:
    """Delete some of the shards that a dead planner left behind; False once none is left.

    Raises LeaseLost if someone else plans now.
    """
    shard = db.tables.task_shard
    some = select(shard.c.id).where(shard.c.task_id == task_id).order_by(shard.c.shard_no)

    def work(conn: Connection) -> bool:
        _fence(conn, db, task_id, token)
        ids = conn.execute(some.limit(_DELETED)).scalars().all()
        if ids:
            conn.execute(delete(shard).where(shard.c.id.in_(ids)))
        return bool(ids)

    return db.run(work)


def add_shards(
    db: Database,
    task_id: int,
    token: int,
    shards: Sequence[Shard],
    first_no: int,
    *,
    default_site: str,
    max_attempts: int = 10,
) -> None:
    """Store a chunk of the run's plan: *shards*, a thousand or so, numbered from *first_no*.

    A chunk that is stored already is passed over. Raises LeaseLost if someone else plans
    now, ConfigurationError for a shard that cannot be stored or a key used twice.
    """
    rows = list(plan_rows(shards, task_id, default_site, max_attempts, first_no))
    try:
        _store(db, task_id, token, rows)
    except IntegrityError:
        raise ConfigurationError(_twice(db, task_id, rows)) from None


def finish_plan(
    db: Database,
    task_id: int,
    token: int,
    count: int,
    *,
    bound: str | None = None,
    signature: str | None = None,
) -> None:
    """Make the plan of *count* shards, all of them stored, claimable.

    Raises LeaseLost if someone else plans now.
    """
    faults.point("plan.before")
    db.run(lambda conn: _publish(conn, db, task_id, token, count, bound, signature))


def store_plan(
    db: Database,
    task_id: int,
    token: int,
    shards: Iterable[Shard],
    *,
    default_site: str,
    max_attempts: int = 10,
    bound: str | None = None,
    signature: str | None = None,
) -> int:
    """The whole of it: clear, store *shards* in chunks, make them claimable; returns how many.

    The caller renews the planning lease meanwhile if it takes its time.
    """
    while clear_plan(db, task_id, token):
        pass
    count = 0
    rest = iter(shards)
    while chunk := list(islice(rest, CHUNK)):
        add_shards(
            db, task_id, token, chunk, count + 1, default_site=default_site,
            max_attempts=max_attempts,
        )  # fmt: skip
        count += len(chunk)
    finish_plan(db, task_id, token, count, bound=bound, signature=signature)
    return count


def _claim(
    conn: Connection, db: Database, task_id: int, owner: dict[str, str], lease: float, again: bool
) -> int | None:
    task = db.tables.task
    now = db.now(conn)
    name = "planner_instance" if again else "planner"
    dead = task.c[name] == owner[name]
    free = or_(task.c.planner.is_(None), dead, task.c.plan_lease_until < now)
    result = conn.execute(
        update(task)
        .where(task.c.id == task_id, *_unplanned(db), free)
        .values(
            **owner,
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


def _highest(conn: Connection, db: Database, task_id: int) -> int:
    """The number of the last shard that is stored."""
    shard = db.tables.task_shard
    highest = select(func.max(shard.c.shard_no)).where(shard.c.task_id == task_id)
    return conn.execute(highest).scalar() or 0


def _store(db: Database, task_id: int, token: int, chunk: list[dict[str, Any]]) -> None:
    def work(conn: Connection) -> None:
        _fence(conn, db, task_id, token)
        if not chunk or _highest(conn, db, task_id) >= chunk[-1]["shard_no"]:
            return  # stored already; only the reply of the COMMIT was lost
        now = db.now(conn)
        times = {"created_at": now, "updated_at": now}
        conn.execute(insert(db.tables.task_shard), [row | times for row in chunk])

    db.run(work)


def _twice(db: Database, task_id: int, rows: list[dict[str, Any]]) -> str:
    """Why the database refused *rows*: a key among them is one of another shard."""
    shard = db.tables.task_shard
    keys, numbers = [row["shard_key"] for row in rows], {row["shard_no"] for row in rows}
    stored = select(shard.c.shard_key, shard.c.shard_no).where(
        shard.c.task_id == task_id, shard.c.shard_key.in_(keys)
    )
    found = db.look(lambda conn: conn.execute(stored).all())
    seen = {row.shard_key for row in found if row.shard_no not in numbers}
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
    count: int,
    bound: str | None,
    signature: str | None,
) -> None:
    task = db.tables.task
    now: datetime = db.now(conn)
    asked = case((task.c.desired == "run", "planned"), else_=task.c.reason)  # an operator's stays
    values = task_values("plan", "running", "planned") | {
        "reason": asked,
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
        stored = _highest(conn, db, task_id)
        assert stored == count, f"{stored} of {count} shards are stored"
