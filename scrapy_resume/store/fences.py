"""The fence: one UPDATE per shard that writes its position if the shard is still ours.

The UPDATE names the fencing token, the version and the status. It reads the row as
it is now and locks it until the transaction ends, so a takeover is ordered entirely
before it (it changes no row) or entirely after it (the new owner reads what it
wrote). A check by a plain SELECT would let stale writes through. Only page commits
raise the version, so it also tells whether a COMMIT without a reply happened.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Update, bindparam, select, update
from sqlalchemy.engine import Connection

from scrapy_resume.store.claims import position_of
from scrapy_resume.store.engine import Database
from scrapy_resume.store.records import Finish, PageFailure, PageRecord, Record, Release
from scrapy_resume.store.setbacks import take_back
from scrapy_resume.watermark import Position

_ERROR_LENGTH = 500  # characters


@dataclass(frozen=True, slots=True)
class Folded:
    """The records of one shard on top of its position: *pages* are those not yet committed.

    *behind* are ordered pages left out because the page before them is not stored.
    """

    position: Position
    pages: tuple[PageRecord, ...]
    failure: PageFailure | None
    ending: Finish | Release | None
    behind: tuple[int, ...] = ()

    @property
    def last_page(self) -> int | None:
        """The page that one of the records ends the shard with, if one does."""
        return next((page.page for page in self.pages if page.ends), None)

    @property
    def nothing_new(self) -> bool:
        """Is every page committed already?"""
        return not self.pages


def fold(position: Position, records: Sequence[Record], left_out: Collection[int]) -> Folded:
    """Apply *records* in order; pages in *left_out* are skipped, and with them a finish."""
    pages: list[PageRecord] = []
    failure: PageFailure | None = None
    ending: Finish | Release | None = None
    behind: list[int] = []
    for record in records:
        if isinstance(record, PageRecord):
            if record.page in left_out or position.has(record.page):
                continue
            if record.ordered and record.page != position.cur_page + 1:
                behind.append(record.page)
            else:
                pages.append(record)
                position = _with_page(position, record)
                if record.ends:
                    position = position.ending_at(record.page)
        elif isinstance(record, PageFailure):
            position, failure = position.with_failed(record.page), record
        elif not ((left_out or behind) and isinstance(record, Finish) and record.status == "done"):
            ending = record
    return Folded(position, tuple(pages), failure, ending, tuple(behind))


def _with_page(position: Position, record: PageRecord) -> Position:
    return position.with_page(
        record.page,
        written=len({(row.table, row.key) for row in record.rows}),
        dropped=record.dropped,
        quarantined=len(record.quarantine),
        cursor=record.cursor,
        digests=record.digests,
    )


def fence(
    conn: Connection,
    db: Database,
    token: int,
    shard_id: int,
    records: Sequence[Record],
    position: Position,
    left_out: Collection[int],
    now: datetime,
) -> Folded | None:
    """Write the position with *records* on top, or return None if the shard is not ours.

    The caller's *position* may be old, after a reply that was lost or in a replay: then
    the row's own is taken, under its lock, and pages that it has are not repeated. If the row
    is the older one, the shard is the caller's no more (``setbacks``).
    """
    if not any(isinstance(record, PageFailure) for record in records):
        folded = fold(position, records, left_out)
        if _write(conn, db, token, shard_id, position, folded, now):
            return folded
    # Rare. A held page changes the position without raising the version: the row's counts.
    shard = db.tables.task_shard
    row = conn.execute(select(shard).where(shard.c.id == shard_id).with_for_update()).first()
    if row is None or row.fencing_token != token:
        return None
    current = position_of(row)
    if current.version < position.version:
        take_back(conn, db, row, now)
        return None
    folded = fold(current, records, left_out)
    if row.status == "running":
        written = _write(conn, db, token, shard_id, current, folded, now)
        return folded if written else None
    ended = folded.ending is not None and folded.nothing_new
    return Folded(current, (), None, None) if ended else None


def _write(
    conn: Connection,
    db: Database,
    token: int,
    shard_id: int,
    before: Position,
    folded: Folded,
    now: datetime,
) -> bool:
    parameters: dict[str, Any] = {"b_id": shard_id, "b_token": token, "now": now}
    if folded.pages:
        parameters |= _columns(folded.position)
        parameters |= {"b_version": before.version, "b_failed": str(before.failed)}
    if folded.failure is not None:
        parameters |= _failure(folded)
    if folded.last_page is not None:
        parameters["last_page"] = folded.last_page
    final = isinstance(folded.ending, Finish)
    if final:
        parameters["b_version"] = before.version
    flags = (bool(folded.pages), folded.failure is not None, folded.last_page is not None)
    statement = _statement(db, *flags, final)
    return bool(conn.execute(statement, parameters).rowcount)


def _columns(position: Position) -> dict[str, Any]:
    return {
        "cur_page": position.cur_page,
        "cursor": position.cursor,
        "ahead": str(position.ahead),
        "failed_pages": str(position.failed),
        "digests": position.digests,
        "page_count": position.page_count,
        "written_count": position.written_count,
        "dropped_count": position.dropped_count,
        "quarantined_count": position.quarantined_count,
    }


def _failure(folded: Folded) -> dict[str, Any]:
    failure = folded.failure
    assert failure is not None
    trouble = failure.trouble
    error = f"page {failure.page}: {trouble.error_class}: {trouble.error}"
    return {
        "failed_pages": str(folded.position.failed),
        "last_error": error[:_ERROR_LENGTH].encode("utf-8", "replace").decode(),
        "error_kind": trouble.kind.value,
    }


def _statement(db: Database, *flags: bool) -> Update:
    name = f"fence {flags}"
    statement = db.statements.get(name)
    if statement is None:
        statement = db.statements[name] = _build(db, *flags)
    return statement


def _build(
    db: Database, with_pages: bool, with_failure: bool, with_end: bool, final: bool
) -> Update:
    shard = db.tables.task_shard
    where = [
        shard.c.id == bindparam("b_id"),
        shard.c.fencing_token == bindparam("b_token"),
        shard.c.status == "running",
    ]
    values: dict[str, Any] = {"updated_at": bindparam("now")}
    if with_pages or final:
        where.append(shard.c.version == bindparam("b_version"))
    if with_pages:
        where.append(shard.c.failed_pages == bindparam("b_failed"))
        values |= {
            "version": bindparam("b_version") + 1,
            "attempt_count": 0,
            "checkpoint_at": bindparam("now"),
        }
        values |= {name: bindparam(name) for name in _columns(Position(0, 0))}
    if with_failure:
        names = ("failed_pages", "last_error", "error_kind")
        values |= {name: bindparam(name) for name in names}
    if with_end:
        values["last_page"] = bindparam("last_page")
    return update(shard).where(*where).values(values)
