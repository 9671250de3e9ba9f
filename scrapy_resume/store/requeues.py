"""Acts on the quarantine: requeue reads the pages of records again, resolve closes records."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.engine import Connection, Row

from scrapy_resume.exceptions import ActRefused
from scrapy_resume.store.acting import Act
from scrapy_resume.store.actresults import ActResult
from scrapy_resume.store.claims import in_lists
from scrapy_resume.store.columns import REASON_LENGTH
from scrapy_resume.store.engine import Database
from scrapy_resume.store.quarantine import READ_AGAIN
from scrapy_resume.store.rereads import PutBack
from scrapy_resume.store.transitions import cleaned
from scrapy_resume.watermark import PageRanges


def requeue(
    db: Database,
    quarantine_ids: Collection[int],
    *,
    actor: str,
    reason: str,
    dry_run: bool = False,
) -> ActResult:
    """Have the pages of records read again, which closes every record of these pages.

    What fails again is recorded again. Raises ActRefused.
    """
    act = Act(db, "requeue", actor, reason, dry_run)

    def work(conn: Connection) -> None:
        rows = _open_records(conn, db, quarantine_ids)
        for row in rows:
            if row.task_id is None or row.shard_no is None or row.page is None:
                raise ActRefused(
                    f"record {row.id} belongs to no page, so nothing can be read again for it;"
                    f" close it: scrapy resume quarantine resolve {row.id}"
                )
        for task_id in sorted({row.task_id for row in rows}):
            wanted: dict[int, PageRanges] = {}
            for row in rows:
                if row.task_id == task_id:
                    wanted[row.shard_no] = wanted.get(row.shard_no, PageRanges()).add(row.page)
            run = act.reopen(conn, act.lock(conn, task_id))
            PutBack(act, conn, run).pages(wanted)
        _say_others(act, len(rows))

    return act.carry_out(work)


def resolve(
    db: Database,
    quarantine_ids: Collection[int],
    resolution: str,
    *,
    actor: str,
    reason: str,
    dry_run: bool = False,
) -> ActResult:
    """Close records with a word on what became of them; nothing is read again.

    The run's verdict stays, since what was refused is not in the tables. Raises ActRefused.
    """
    act = Act(db, "resolve", actor, reason, dry_run)

    def work(conn: Connection) -> None:
        if not resolution.strip() or resolution in READ_AGAIN:
            raise ActRefused("say what became of the records, in words of your own")
        rows = _open_records(conn, db, quarantine_ids)
        aside = db.tables.quarantine
        values = {"resolved_at": act.now, "resolution": cleaned(resolution, REASON_LENGTH)}
        for ids in in_lists(row.id for row in rows):
            conn.execute(update(aside).where(aside.c.id.in_(ids)).values(values))
        act.task_ids += sorted({row.task_id for row in rows if row.task_id is not None})
        act.count("records", len(rows), "1 record is resolved.", "{} records are resolved.")
        act.record_all(conn, [
            act.operation(row.task_id, f"record {row.id}", resolution, row.shard_no)
            for row in rows
        ])  # fmt: skip

    return act.carry_out(work)


def _open_records(conn: Connection, db: Database, ids: Collection[int]) -> Sequence[Row[Any]]:
    aside = db.tables.quarantine
    found: dict[int, Row[Any]] = {}
    for part in in_lists(set(ids)):
        query = select(aside).where(aside.c.id.in_(part)).with_for_update()
        found |= {row.id: row for row in conn.execute(query)}
    if not ids:
        raise ActRefused("name the records, by their numbers in `scrapy resume quarantine list`")
    for number in sorted(set(ids)):
        if number not in found:
            raise ActRefused(f"there is no record {number} in quarantine")
        if found[number].resolved_at is not None:
            raise ActRefused(f"record {number} is closed already: {found[number].resolution}")
    return [found[number] for number in sorted(found)]


def _say_others(act: Act, named: int) -> None:
    more = act.counts.get("records", 0) - named
    if more > 0:
        act.sentences.append(f"{more} more record(s) of the same pages are closed with them.")
