"""The commit: pages, their items and the positions of their shards in one transaction.

Several pages of several shards go together. The fences come first, in ascending order
of shard, then the items in order of their keys, then what was set aside, then the
shards that end; so transactions take their locks in one order. A shard whose fence
fails leaves the group and the others go on. Any error rolls everything back. A COMMIT
without a reply is settled on a new connection, under the rows' locks: the version
says whether it happened.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sqlalchemy.engine import Connection

from scrapy_resume import faults
from scrapy_resume.store import quarantine
from scrapy_resume.store.engine import Database
from scrapy_resume.store.groups import Group, RefusedPages
from scrapy_resume.store.items import ItemWriter, Row
from scrapy_resume.store.quarantine import QuarantineRecord
from scrapy_resume.store.records import (
    CommitResult,
    Finish,
    PageFailure,
    PageRecord,
    Record,
    Release,
    with_repeats,
)
from scrapy_resume.store.refusals import refused
from scrapy_resume.store.repeats import ATTEMPTS
from scrapy_resume.watermark import Position

__all__ = [
    "CommitResult",
    "Finish",
    "PageFailure",
    "PageRecord",
    "Record",
    "Release",
    "commit",
    "store_rows",
]


def commit(
    db: Database,
    records: Sequence[Record],
    positions: Mapping[int, Position],
    *,
    writer: ItemWriter | None = None,
    hold_records: bool = False,
    attempts: int = ATTEMPTS,
) -> CommitResult:
    """Store *records*, of one owner and in its order, as one transaction.

    *positions* are those of the shards before it. A row that the database refuses goes
    to quarantine, or with *hold_records* its page is left out. Raises StoreUnavailable
    after *attempts*; the caller may repeat the call, whatever became of the first.
    """
    group = Group(db, records, positions, writer or ItemWriter(db), hold_records)
    repeats = db.repeats(attempts)
    while True:
        try:
            return with_repeats(group.attempt(), repeats)
        except RefusedPages:
            pass  # it goes again without them
        except Exception as exc:
            repeats.after(exc)


def store_rows(
    db: Database,
    loose: Sequence[Row | QuarantineRecord],
    *,
    writer: ItemWriter,
    task_id: int | None = None,
) -> CommitResult:
    """Store rows that belong to no page, and records of items without one, in one transaction.

    A row that the database refuses goes to quarantine, without a page; *task_id* names the
    run that it counts for. Raises StoreUnavailable; the caller may repeat the call.
    """
    repeats = db.repeats()
    while True:
        try:
            with db.transaction() as conn:
                result = _store_rows(conn, db, loose, writer, task_id)
                faults.point("batch.before")
            faults.point("batch.after")
            return with_repeats(result, repeats)
        except Exception as exc:
            repeats.after(exc)


def _store_rows(
    conn: Connection,
    db: Database,
    loose: Sequence[Row | QuarantineRecord],
    writer: ItemWriter,
    task_id: int | None,
) -> CommitResult:
    rows = [one for one in loose if isinstance(one, Row)]
    items = [replace(one, task_id=task_id) for one in loose if not isinstance(one, Row)]
    timed = any(row.table is None for row in rows)
    now = db.now(conn) if timed else None
    written = writer.write(conn, rows, now=now)
    default, shard = db.tables.item.name, (task_id, None)
    bad = [refused(one, rows[one.index], None, shard, default) for one in written.rejected]
    aside = [*items, *bad]
    if aside:
        quarantine.record(conn, db, aside, at=now or db.now(conn))
    return CommitResult(
        rejected=tuple(aside),
        written=written.keys,
        repeated=len(rows) - len(bad) - written.keys,
        ignored=written.ignored,
        coerced=written.coerced,
    )
