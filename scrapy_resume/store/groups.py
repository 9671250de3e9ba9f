"""One group of records on its way into the database; see :mod:`.checkpoints`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
from scrapy_resume.store.items import ItemWriter, Written
from scrapy_resume.store.items.table import Rejection, Row
from scrapy_resume.store.quarantine import QuarantineRecord
from scrapy_resume.store.records import CommitResult, PageRecord, Record
from scrapy_resume.store.refusals import refused, trouble
from scrapy_resume.store.tallies import tally
from scrapy_resume.watermark import Position


class RefusedPages(Exception):
    """Rows were refused and records hold: the group goes again without their pages."""


@dataclass
class Outcome:
    """One attempt: what each shard's records came to, and what is known of the rows."""

    folded: dict[int, Folded] = field(default_factory=dict)
    fenced: set[int] = field(default_factory=set)
    written: int = 0
    repeated: int = 0
    ignored: int = 0
    coerced: int = 0
    rejected: list[QuarantineRecord] = field(default_factory=list)
    statuses: dict[int, str] = field(default_factory=dict)


class Group:
    """The records of one owner that are stored together, and what is known of them so far."""

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
        self._tokens: dict[int, int] = {}
        for record in records:
            token = max(record.fencing_token, self._tokens.get(record.shard_id, 0))
            self._tokens[record.shard_id] = token
        # What is left of an earlier claim of the same shard is void.
        self._shards: dict[int, list[Record]] = {shard_id: [] for shard_id in self._tokens}
        for record in records:
            if record.fencing_token == self._tokens[record.shard_id]:
                self._shards[record.shard_id].append(record)
        self._order = {id(record): at for at, record in enumerate(records)}
        self._held: dict[int, dict[int, Trouble]] = {}
        self._unanswered: Outcome | None = None  # of an attempt whose COMMIT had no reply

    def attempt(self) -> CommitResult:
        """One transaction. Raises RefusedPages, or what the database raised."""
        with self._db.transaction() as conn:
            outcome = self._unanswered
            if outcome is None or not self._landed(conn, outcome):
                self._unanswered = None
                outcome = self._write(conn)
                faults.point("commit.before")
            self._unanswered = outcome
        faults.point("commit.after")
        return self._result(outcome)

    def _write(self, conn: Connection) -> Outcome:
        faults.point("commit.begin")
        now = self._db.now(conn)
        outcome = Outcome()
        for shard_id in sorted(self._shards):
            self._fence(conn, shard_id, outcome, now)
        faults.point("commit.fenced")
        self._store_rows(conn, outcome, now)
        faults.point("commit.items")
        for shard_id, folded in outcome.folded.items():
            if folded.ending is not None:
                outcome.statuses[shard_id] = end(conn, self._db, shard_id, folded.ending, now)
        return outcome

    def _fence(self, conn: Connection, shard_id: int, outcome: Outcome, now: datetime) -> None:
        folded = fence(
            conn,
            self._db,
            self._tokens[shard_id],
            shard_id,
            self._shards[shard_id],
            self._positions[shard_id],
            self._held.get(shard_id, {}),
            now,
        )
        if folded is None:
            outcome.fenced.add(shard_id)
        else:
            outcome.folded[shard_id] = folded

    def _store_rows(self, conn: Connection, outcome: Outcome, now: datetime) -> None:
        pages = [page for folded in outcome.folded.values() for page in folded.pages]
        pages.sort(key=lambda page: self._order[id(page)])
        rows = [row for page in pages for row in page.rows]
        written = self._writer.write(conn, rows, now=now) if rows else Written(0, [])
        if written.rejected:
            owners = [page for page in pages for _ in page.rows]
            bad = [(owners[one.index], one) for one in written.rejected]
            self._set_aside(conn, outcome, bad, rows)
        counted = tally(pages, rows, written)
        outcome.written, outcome.repeated = counted.written, counted.repeated
        outcome.ignored, outcome.coerced = written.ignored, written.coerced
        for shard_id, amends in counted.amends.items():
            self._recount(conn, outcome, shard_id, *amends)
        aside = [one for page in pages for one in page.quarantine]
        quarantine.record(conn, self._db, [*aside, *outcome.rejected], at=now)

    def _set_aside(
        self,
        conn: Connection,
        outcome: Outcome,
        bad: list[tuple[PageRecord, Rejection]],
        rows: Sequence[Row],
    ) -> None:
        if self._hold:
            for page, one in bad:
                self._leave_out(page, trouble(one, rows[one.index]))
            raise RefusedPages
        shard = self._db.tables.task_shard
        ids = sorted({page.shard_id for page, _ in bad})
        query = select(shard.c.id, shard.c.task_id, shard.c.shard_no).where(shard.c.id.in_(ids))
        numbers = {row.id: (row.task_id, row.shard_no) for row in conn.execute(query)}
        for page, one in bad:
            numbered = numbers[page.shard_id]
            record = refused(one, rows[one.index], page, numbered, self._db.tables.item.name)
            outcome.rejected.append(record)

    def _recount(
        self, conn: Connection, outcome: Outcome, shard_id: int, missing: int, refused_rows: int
    ) -> None:
        if not missing and not refused_rows:
            return
        folded = outcome.folded[shard_id]
        position = replace(
            folded.position,
            written_count=folded.position.written_count - missing,
            quarantined_count=folded.position.quarantined_count + refused_rows,
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

    def _leave_out(self, page: PageRecord, trouble: Trouble) -> None:
        held = self._held.setdefault(page.shard_id, {})
        held[page.page] = trouble

    def _landed(self, conn: Connection, outcome: Outcome) -> bool:
        """Did the attempt without a reply happen? Waits for its locks, so the answer stays true."""
        shard = self._db.tables.task_shard
        query = select(shard.c.id, shard.c.fencing_token, shard.c.version, shard.c.status)
        ids = sorted(outcome.folded)
        for row in conn.execute(query.where(shard.c.id.in_(ids)).with_for_update()):
            folded = outcome.folded[row.id]
            ours = row.fencing_token == self._tokens[row.id]
            paged = bool(folded.pages) and row.version == folded.position.version + 1
            if ours and (paged or row.status == outcome.statuses.get(row.id)):
                return True
        return False

    def _refused_pages(self) -> Iterator[tuple[int, int, Trouble]]:
        for shard_id, pages in self._held.items():
            for page, why in pages.items():
                yield shard_id, page, why

    def _result(self, outcome: Outcome) -> CommitResult:
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
            repeated=outcome.repeated,
            ignored=outcome.ignored,
            coerced=outcome.coerced,
            held=(*self._refused_pages(), *_behind(outcome)),
            statuses=outcome.statuses,
        )


def _behind(outcome: Outcome) -> Iterator[tuple[int, int, Trouble]]:
    """Pages of a chain that were left out because the page before them is not stored."""
    for shard_id, folded in outcome.folded.items():
        for page in folded.behind:
            text = f"page {folded.position.cur_page + 1} before it is not stored"
            yield shard_id, page, Trouble(Where.PAGE, ErrorKind.RETRYABLE, "NotInOrder", text)
