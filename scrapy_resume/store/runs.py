"""Runs as values, and looking them up. A run is one row of the table ``task``."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, select
from sqlalchemy.engine import Connection

from scrapy_resume.exceptions import ConfigurationError
from scrapy_resume.store.engine import Database

_LONGEST_ID = 18  # digits that a database takes for a number


@dataclass(frozen=True, slots=True)
class Task:
    """One run of a task, as its row says."""

    id: int
    name: str
    spider: str
    args: str
    run_no: int
    run_name: str | None
    priority: int
    status: str
    desired: str
    reason: str
    verdict: str | None
    bound: str | None
    signature: str | None
    planned_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    read_again_at: datetime | None = None


def find_tasks(db: Database, which: str | int | None) -> list[Task]:
    """The runs of the task named *which* and the run numbered so; all for None; newest first."""
    return db.look(lambda conn: matching(conn, db, which))


def matching(conn: Connection, db: Database, which: str | int | None) -> list[Task]:
    """As :func:`find_tasks`, in the caller's transaction."""
    task = db.tables.task
    query = select(*_columns(db)).order_by(task.c.id.desc())
    if isinstance(which, int):
        query = query.where(task.c.id == which)
    elif which is not None:
        is_id = which.isdecimal() and len(which) <= _LONGEST_ID
        numbered = task.c.id == (int(which) if is_id else None)
        query = query.where((task.c.name == which) | numbered)
    return [Task(**row) for row in conn.execute(query).mappings()]


def one(
    conn: Connection, db: Database, where: ColumnElement[bool], *, lock: bool = False
) -> Task | None:
    """The run that *where* picks, if any; locked until the transaction ends if asked for."""
    query = select(*_columns(db)).where(where)
    row = conn.execute(query.with_for_update() if lock else query).mappings().first()
    return Task(**row) if row else None


def existing(conn: Connection, db: Database, task_id: int, *, lock: bool = False) -> Task:
    """The run *task_id*. Raises ConfigurationError if there is none."""
    found = one(conn, db, db.tables.task.c.id == task_id, lock=lock)
    if found is None:
        raise ConfigurationError(f"there is no task {task_id}")
    return found


def _columns(db: Database) -> list[ColumnElement[Any]]:
    return [db.tables.task.c[name] for name in Task.__dataclass_fields__]
