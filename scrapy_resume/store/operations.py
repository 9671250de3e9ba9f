"""The record of every decision that no owner of a shard made: who, when, what, why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime

from sqlalchemy import insert, select
from sqlalchemy.engine import Connection

from scrapy_resume.store.columns import NAME_LENGTH, REASON_LENGTH
from scrapy_resume.store.engine import Database


@dataclass(frozen=True, slots=True)
class Operation:
    """One act; *before* and *after* are short texts of what it changed."""

    kind: str
    actor: str
    reason: str
    task_id: int | None = None
    shard_no: int | None = None
    before: str | None = None
    after: str | None = None


def record(
    conn: Connection, db: Database, operations: Sequence[Operation], *, at: datetime
) -> None:
    """Write *operations* in the transaction of the changes they describe."""
    if operations:
        conn.execute(insert(db.tables.operation), [_row(one, at) for one in operations])


def note(db: Database, operation: Operation) -> None:
    """Write *operation*, which changed nothing in the database, in a transaction of its own."""
    db.run(lambda conn: record(conn, db, [operation], at=db.now(conn)))


def find(db: Database, task_id: int, *, limit: int = 100) -> list[tuple[datetime, Operation]]:
    """The latest acts on a task, newest first."""
    operation = db.tables.operation
    query = (
        select(operation)
        .where(operation.c.task_id == task_id)
        .order_by(operation.c.at.desc(), operation.c.id.desc())
        .limit(limit)
    )
    rows = db.look(lambda conn: [dict(row) for row in conn.execute(query).mappings()])
    fields = Operation.__dataclass_fields__
    return [(row["at"], Operation(**{name: row[name] for name in fields})) for row in rows]


def _row(operation: Operation, at: datetime) -> dict[str, object]:
    row = asdict(operation)
    row["actor"] = operation.actor[:NAME_LENGTH]
    row["reason"] = operation.reason[:REASON_LENGTH]
    return row | {"at": at}
