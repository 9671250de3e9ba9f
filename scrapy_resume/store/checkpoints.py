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
from dataclasses import dataclass, field, replace
from datetime import datetime

from sqlalchemy import select, update
from sqlalchemy.engine import Connection

from scrapy_resume import faults
from scrapy_resume.page import ErrorKind, Trouble, Where
from scrapy_resume.store import quarantine
from scrapy_resume.store.endings import end
from scrapy_resume.store.engine import Database
from scrapy_resume.store.fences import Folded, fence
from scrapy_resume.store.items import ItemWriter, Rejection, Row
from scrapy_resume.store.quarantine import QuarantineRecord
from scrapy_resume.store.records import (
    CommitResult,
    Finish,
    PageFailure,
    PageRecord,
    Record,
    Release,
)
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

_ATTEMPTS = 8


def commit(
    db: Database,
    records: Sequence[Record],
    positions: Mapping[int, Position],
    *,
    writer: ItemWriter | None = None,
    hold_records: bool = False,
    attempts: int = _ATTEMPTS,
) -> CommitResult:
    """Store *records*, of one owner and in its order, as one transaction.

    *positions* are those of the shards before it. A row that the database refuses goes
    to quarantine, or with *hold_records* its page is left out. Raises StoreUnavailable
    after *attempts*; the caller may repeat the call, whatever became of the first.
    """
    group = _Group(db, records, positions, writer or ItemWriter(db), hold_records)
    attempt = 0
    while True:
        attempt += 1
        try:
            return group.attempt()
        except _RefusedPages:
            attempt -= 1
        except Exception as exc:
            db.may_repeat(exc, attempt, attempts)
            group.retries += 1


def store_rows(db: Database, rows: Sequence[Row], *, writer: ItemWriter) -> int:
    """Store rows that belong to no page, in one transaction; returns how many keys were stored.

    A row that the database refuses goes to quarantine, without a page.
    """

    def work(conn: Connection) -> int:
        now = db.now(conn)
        written, rejections = writer.write(conn, rows, now=now)
        refused = [_refused(one, rows[one.index], None, None) for one in rejections]
        quarantine.record(conn, db, refused, at=now)
        return written

    return db.run(work)


class _RefusedPages(Exception):
    """Rows were refused and records hold: the group goes again without their pages."""


@dataclass
class _Outcome:
    """One attempt: what each shard's records came to, and what is known of the rows."""

    folded: dict[int, Folded] = field(default_factory=dict)
    fenced: set[int] = field(default_factory=set)
    written: int = 0
    rejected: list[QuarantineRecord] = field(default_factory=list)
    statuses: dict[int, str] = field(default_factory=dict)


class _Group:
    def __init__(
        self,
        db: Database,
        records: Sequence[Record],
        positions: Mapping[int, Position],
        writer: ItemWriter,
        hold_records: bool,
    ) -> None:
        self._db, self._positions, self._writer = db, positions, writer
        self._hold = hold_records
        self._shards: dict[int, list[Record]] = {}
        for record in records:
            self._shards.setdefault(record.shard_id, []).append(record)
        self._order = {id(record): at for at, record in enumerate(records)}
        self._held: dict[int, dict[int, Trouble]] = {}
        self._unanswered: _Outcome | None = None  # of an attempt whose COMMIT had no reply
        self.retries = 0

    def attempt(self) -> CommitResult:
        with self._db.transaction() as conn:
            outcome = self._unanswered
            if outcome is None or not self._landed(conn, outcome):
                self._unanswered = None
                outcome = self._write(conn)
                faults.point("commit.before")
            self._unanswered = outcome
        faults.point("commit.after")
        return self._result(outcome)

    def _write(self, conn: Connection) -> _Outcome:
        faults.point("commit.begin")
        now = self._db.now(conn)
        outcome = _Outcome()
        for shard_id in sorted(self._shards):
            self._fence(conn, shard_id, outcome, now)
        faults.point("commit.fenced")
        self._store_rows(conn, outcome, now)
        faults.point("commit.items")
        for shard_id, folded in outcome.folded.items():
            if folded.ending is not None:
                outcome.statuses[shard_id] = end(conn, self._db, shard_id, folded.ending, now)
        return outcome

    def _fence(self, conn: Connection, shard_id: int, outcome: _Outcome, now: datetime) -> None:
        records = self._shards[shard_id]
        folded = fence(
            conn,
            self._db,
            records[0].fencing_token,
            shard_id,
            records,
            self._positions[shard_id],
            self._held.get(shard_id, {}),
            now,
        )
        if folded is None:
            outcome.fenced.add(shard_id)
        else:
            outcome.folded[shard_id] = folded

    def _store_rows(self, conn: Connection, outcome: _Outcome, now: datetime) -> None:
        pages = [page for folded in outcome.folded.values() for page in folded.pages]
        pages.sort(key=lambda page: self._order[id(page)])
        rows = [row for page in pages for row in page.rows]
        rejections = self._writer.write(conn, rows, now=now)[1] if rows else []
        outcome.written = sum(len({(row.table, row.key) for row in page.rows}) for page in pages)
        if rejections:
            owners = [page for page in pages for _ in page.rows]
            self._set_aside(conn, outcome, [(owners[one.index], one) for one in rejections], rows)
        aside = [one for page in pages for one in page.quarantine]
        quarantine.record(conn, self._db, [*aside, *outcome.rejected], at=now)

    def _set_aside(
        self,
        conn: Connection,
        outcome: _Outcome,
        refused: list[tuple[PageRecord, Rejection]],
        rows: Sequence[Row],
    ) -> None:
        if self._hold:
            for page, one in refused:
                self._leave_out(page, _trouble(one, rows[one.index]))
            raise _RefusedPages
        shard = self._db.tables.task_shard
        shard_ids = sorted({page.shard_id for page, _ in refused})
        query = select(shard.c.id, shard.c.task_id, shard.c.shard_no)
        found = conn.execute(query.where(shard.c.id.in_(shard_ids)))
        numbers = {row.id: (row.task_id, row.shard_no) for row in found}
        for page, one in refused:
            outcome.rejected.append(_refused(one, rows[one.index], page, numbers[page.shard_id]))
        for shard_id in shard_ids:
            bad = [(page.page, rows[one.index].table, rows[one.index].key)
                   for page, one in refused if page.shard_id == shard_id]  # fmt: skip
            self._recount(conn, outcome, shard_id, len(set(bad)), len(bad))

    def _recount(
        self, conn: Connection, outcome: _Outcome, shard_id: int, keys: int, rows: int
    ) -> None:
        folded = outcome.folded[shard_id]
        position = replace(
            folded.position,
            written_count=folded.position.written_count - keys,
            quarantined_count=folded.position.quarantined_count + rows,
        )
        shard = self._db.tables.task_shard
        conn.execute(
            update(shard)
            .where(shard.c.id == shard_id)
            .values(
                written_count=position.written_count, quarantined_count=position.quarantined_count
            )
        )
        outcome.folded[shard_id] = replace(folded, position=position)
        outcome.written -= keys

    def _leave_out(self, page: PageRecord, trouble: Trouble) -> None:
        held = self._held.setdefault(page.shard_id, {})
        held[page.page] = trouble
        behind = replace(trouble, error=f"page {page.page} before it is held", item_key=None)
        for record in self._shards[page.shard_id]:
            chained = page.cursor is not None  # a chain commits strictly in order
            if chained and isinstance(record, PageRecord) and record.page > page.page:
                held.setdefault(record.page, behind)

    def _landed(self, conn: Connection, outcome: _Outcome) -> bool:
        """Did the attempt without a reply happen? Waits for its locks, so the answer stays true."""
        shard = self._db.tables.task_shard
        query = select(shard.c.id, shard.c.fencing_token, shard.c.version, shard.c.status)
        ids = sorted(outcome.folded)
        for row in conn.execute(query.where(shard.c.id.in_(ids)).with_for_update()):
            folded = outcome.folded[row.id]
            ours = row.fencing_token == self._shards[row.id][0].fencing_token
            paged = bool(folded.pages) and row.version == folded.position.version + 1
            if ours and (paged or row.status == outcome.statuses.get(row.id)):
                return True
        return False

    def _result(self, outcome: _Outcome) -> CommitResult:
        return CommitResult(
            positions={
                shard_id: replace(
                    folded.position, version=folded.position.version + bool(folded.pages)
                )
                for shard_id, folded in outcome.folded.items()
            },
            fenced=frozenset(outcome.fenced),
            rejected=tuple(outcome.rejected),
            written=outcome.written,
            retries=self.retries,
            held=tuple(
                (shard_id, page, trouble)
                for shard_id, pages in self._held.items()
                for page, trouble in pages.items()
            ),
            statuses=outcome.statuses,
        )


def _refused(
    one: Rejection, row: Row, page: PageRecord | None, shard: tuple[int, int] | None
) -> QuarantineRecord:
    task_id, shard_no = shard or (None, None)
    return QuarantineRecord(
        task_id=task_id,
        shard_id=page.shard_id if page else None,
        shard_no=shard_no,
        page=page.page if page else None,
        kind="row",
        url=None,
        item_key=_key_text(row),
        error_class=one.error_class,
        error=one.error,
    )


def _key_text(row: Row) -> str:
    parts = row.key[1:] if row.table is None else row.key
    return " / ".join(map(str, parts))


def _trouble(one: Rejection, row: Row) -> Trouble:
    return Trouble(
        Where.ITEM, ErrorKind.PERMANENT, one.error_class, one.error, item_key=_key_text(row)
    )
