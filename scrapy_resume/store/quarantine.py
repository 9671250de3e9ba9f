"""What was set aside: pages, requests, items and rows that failed, each with its reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import insert, select, update
from sqlalchemy.engine import Connection

from scrapy_resume.store.columns import NAME_LENGTH
from scrapy_resume.store.engine import Database
from scrapy_resume.watermark import PageRanges

READ_AGAIN = ("requeued", "restarted", "backfilled", "retried")
"""Resolutions of records whose page was put back; they no longer count as rejects."""
_AT_ONCE = 500  # records settled by one statement
_ERROR_LENGTH = 1000  # characters
_KEY_LENGTH = 1000
_URL_LENGTH = 2000
_VALUE_LENGTH = 60


@dataclass(frozen=True, slots=True)
class QuarantineRecord:
    """One thing set aside; *kind* is page, request, item or row.

    Of a refused row or item, *item_table* is the table it was for, *column_name* the column at
    fault and *value* what it was to hold, shortened, as far as they are known.
    What belongs to no page has no shard and page, and no task if there is no run.
    """

    task_id: int | None
    shard_id: int | None
    shard_no: int | None
    page: int | None
    kind: str
    url: str | None
    item_key: str | None
    error_class: str
    error: str
    attempts: int = 1
    column_name: str | None = None
    value: str | None = None
    item_table: str | None = None


def record(
    conn: Connection, db: Database, records: Sequence[QuarantineRecord], *, at: datetime
) -> None:
    """Write *records* in the transaction of the pages they belong to."""
    if records:
        conn.execute(insert(db.tables.quarantine), [_row(one, at) for one in records])


def set_aside(db: Database, records: Sequence[QuarantineRecord]) -> None:
    """Record what failed outside of every page, in a transaction of its own."""
    db.run(lambda conn: record(conn, db, records, at=db.now(conn)))


def find(
    db: Database,
    task_id: int | None,
    *,
    kind: str | None = None,
    resolved: bool | None = None,
    after: int = 0,
    limit: int = 1000,
) -> list[dict[str, Any]]:
    """Records of a run's quarantine (None: of every run), in the order they came.

    Only those of a *kind*, if one is given; open ones with *resolved* False, closed ones with
    True; those with ids behind *after*.
    """
    quarantine = db.tables.quarantine
    query = select(quarantine).where(quarantine.c.id > after)
    if task_id is not None:
        query = query.where(quarantine.c.task_id == task_id)
    if kind is not None:
        query = query.where(quarantine.c.kind == kind)
    if resolved is not None:
        closed = quarantine.c.resolved_at.is_not(None)
        query = query.where(closed if resolved else ~closed)
    query = query.order_by(quarantine.c.id).limit(limit)
    return db.look(lambda conn: [dict(row) for row in conn.execute(query).mappings()])


def one(db: Database, record_id: int) -> dict[str, Any] | None:
    """The record *record_id*, if there is one."""
    found = find(db, None, after=record_id - 1, limit=1)
    return found[0] if found and found[0]["id"] == record_id else None


def settle_records(
    conn: Connection,
    db: Database,
    task_id: int,
    shard_no: int | None,
    pages: PageRanges | None,
    resolution: str,
    at: datetime,
) -> int:
    """Close the open records of pages that were put back; returns how many.

    Those of *pages* of one shard, of the whole shard for None, of every shard without
    *shard_no*. What belongs to no shard stays open.
    """
    aside = db.tables.quarantine
    where = [aside.c.task_id == task_id, aside.c.resolution.is_(None)]
    no = aside.c.shard_no
    where.append(no.is_not(None) if shard_no is None else no == shard_no)
    rows = conn.execute(select(aside.c.id, aside.c.page).where(*where))
    ids = [row.id for row in rows if pages is None or (row.page is not None and row.page in pages)]
    for first in range(0, len(ids), _AT_ONCE):
        part = aside.c.id.in_(ids[first : first + _AT_ONCE])
        conn.execute(update(aside).where(part).values(resolved_at=at, resolution=resolution))
    return len(ids)


def _row(one: QuarantineRecord, at: datetime) -> dict[str, object]:
    return asdict(one) | {
        "url": one.url and _clean(one.url, _URL_LENGTH),
        "item_key": one.item_key and _clean(one.item_key, _KEY_LENGTH),
        "error_class": _clean(one.error_class, NAME_LENGTH),
        "error": _clean(one.error, _ERROR_LENGTH),
        "column_name": one.column_name and _clean(one.column_name, NAME_LENGTH),
        "value": None if one.value is None else _clean(one.value, _VALUE_LENGTH),
        "item_table": one.item_table and _clean(one.item_table, NAME_LENGTH),
        "created_at": at,
    }


def _clean(text: str, limit: int) -> str:
    """*text* short enough, and without the half characters that no database takes."""
    return text[:limit].encode("utf-8", "replace").decode()
