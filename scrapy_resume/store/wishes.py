"""What an operator wishes of a run, carried out as far as the rows allow now.

``task.desired`` is the wish. Shards that nobody works on follow it at once, in the
operator's own transaction; an owner gives its shards up by itself once it has noticed.
What slips through, a shard given back in the very moment of the act, the reaper's round
finds: :func:`carry_out` may be called at any time and changes nothing twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from sqlalchemy import ColumnElement, and_, exists, func, or_, select, update
from sqlalchemy.engine import Connection

from scrapy_resume.store.claims import in_lists
from scrapy_resume.store.engine import Database
from scrapy_resume.store.finishing import finish
from scrapy_resume.store.runs import Task, existing
from scrapy_resume.store.transitions import SHARD, shard_values, sources, task_values

_AT_ONCE = 100  # runs that one look takes up

# By wish: the move of a shard that nobody works on, and where it leads to.
_MOVES = {
    "pause": ("pause", "paused"),
    "run": ("unpause", "pending"),
    "cancel": ("cancel", "failed"),
}


def carry_out(db: Database) -> list[Task]:
    """Have every unfinished run follow its operator's wish; returns the runs that changed."""
    task = db.tables.task
    query = select(task.c.id).where(task.c.open_name.is_not(None), _lags(db)).limit(_AT_ONCE)
    ids = db.look(lambda conn: list(conn.execute(query).scalars()))
    return [follow(db, task_id) for task_id in ids]


def follow(db: Database, task_id: int) -> Task:
    """The same of one run; declares it over if every shard is final, and returns it."""
    return db.run(lambda conn: _follow(conn, db, task_id))


def settle(conn: Connection, db: Database, run: Task) -> int:
    """Have the shards of the locked *run* that nobody works on follow the wish, and the run
    its shards; returns how many shards changed. Declares no run over."""
    now = db.now(conn)
    move, to = _MOVES[run.desired]
    shard = db.tables.task_shard
    query = select(shard.c.id).where(shard.c.task_id == run.id, sources(shard, SHARD, move))
    count = move_shards(conn, db, conn.execute(query).scalars(), (move, to, run.reason), now)
    _settle_run(conn, db, run, now)
    return count


def move_shards(
    conn: Connection, db: Database, ids: Iterable[int], move: tuple[str, str, str], now: datetime
) -> int:
    """Make *move* (its name, where it leads to, the reason) with those of *ids* that may;
    returns how many."""
    shard = db.tables.task_shard
    values = shard_values(*move) | {"updated_at": now}
    statement = update(shard).where(sources(shard, SHARD, move[0])).values(values)
    parts = in_lists(ids)
    return sum(conn.execute(statement.where(shard.c.id.in_(part))).rowcount for part in parts)


def count_shards(conn: Connection, db: Database, task_id: int, *statuses: str) -> int:
    """How many shards of the run are in one of *statuses*."""
    shard = db.tables.task_shard
    query = select(func.count()).select_from(shard)
    query = query.where(shard.c.task_id == task_id, shard.c.status.in_(statuses))
    return conn.execute(query).scalar() or 0


def _follow(conn: Connection, db: Database, task_id: int) -> Task:
    run = existing(conn, db, task_id, lock=True)
    if run.finished_at is None and run.planned_at is not None:
        settle(conn, db, run)
    return finish(conn, db, task_id)


def _settle_run(conn: Connection, db: Database, run: Task, now: datetime) -> None:
    if run.desired == "pause" and run.status == "running":
        if not count_shards(conn, db, run.id, "running"):
            _set(conn, db, run, task_values("pause", "paused", run.reason), now)
    elif run.desired == "run" and run.status == "paused":
        _set(conn, db, run, task_values("unpause", "running", run.reason), now)


def _set(conn: Connection, db: Database, run: Task, values: dict[str, str], now: datetime) -> None:
    task = db.tables.task
    conn.execute(update(task).where(task.c.id == run.id).values(**values, updated_at=now))


def _lags(db: Database) -> ColumnElement[bool]:
    """Is something of a run otherwise than its operator wishes? Each status is one dive."""
    task, shard = db.tables.task, db.tables.task_shard

    def has(status: str) -> ColumnElement[bool]:
        return exists().where(shard.c.task_id == task.c.id, shard.c.status == status)

    settled = or_(task.c.status == "paused", has("running"))
    return and_(
        task.c.planned_at.is_not(None),
        or_(
            and_(task.c.desired == "pause", or_(has("pending"), ~settled)),
            and_(task.c.desired == "run", or_(has("paused"), task.c.status == "paused")),
            and_(task.c.desired == "cancel", or_(has("pending"), has("paused"))),
        ),
    )
