"""The act retry: failed and waiting shards are tried again, at once and with all attempts."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, case, or_, select, update
from sqlalchemy.engine import Connection, Row

from scrapy_resume.exceptions import ActRefused
from scrapy_resume.intake import RESUMED
from scrapy_resume.store.acting import Act, named
from scrapy_resume.store.actresults import ActResult
from scrapy_resume.store.claims import in_lists
from scrapy_resume.store.engine import Database
from scrapy_resume.store.rereads import PutBack
from scrapy_resume.store.runs import Task
from scrapy_resume.store.transitions import shard_values
from scrapy_resume.watermark import PageRanges


def retry(
    db: Database,
    task_id: int,
    *,
    shards: Collection[int] | None = None,
    pages: PageRanges | None = None,
    actor: str,
    reason: str,
    dry_run: bool = False,
) -> ActResult:
    """Try again what failed, and at once what waits for its next try; a run that is over is
    unfinished again. What was read stays.

    *shards* are numbers of shards. With *pages* only shards that failed at one of them are
    meant, and pages that were set aside are read again too. Raises ActRefused.
    """
    act = Act(db, "retry", actor, reason, dry_run)

    def work(conn: Connection) -> None:
        run = act.lock(conn, task_id)
        rows = _candidates(conn, db, run, shards, pages)
        aside = _set_aside(conn, db, run, shards, pages)
        if not rows and not aside:
            raise ActRefused(_nothing(run, shards, pages))
        run = act.reopen(conn, run)
        _try_again(act, conn, run, rows)
        if aside:
            PutBack(act, conn, run).pages(aside)

    return act.carry_out(work)


def _candidates(
    conn: Connection,
    db: Database,
    run: Task,
    shards: Collection[int] | None,
    pages: PageRanges | None,
) -> Sequence[Row[Any]]:
    shard = db.tables.task_shard
    waits = and_(shard.c.status == "pending", shard.c.due == 0)
    columns = (shard.c.id, shard.c.shard_no, shard.c.status, shard.c.failed_pages)
    query: Select[Any] = select(*columns).where(
        shard.c.task_id == run.id, or_(shard.c.status == "failed", waits), *_chosen(db, shards)
    )
    rows = conn.execute(query.order_by(shard.c.id)).all()
    if pages is None:
        return rows
    return [row for row in rows if PageRanges.parse(row.failed_pages).common(pages)]


def _set_aside(
    conn: Connection,
    db: Database,
    run: Task,
    shards: Collection[int] | None,
    pages: PageRanges | None,
) -> dict[int, PageRanges]:
    """Pages among *pages* that were set aside as a whole, by shard number."""
    if pages is None:
        return {}
    aside = db.tables.quarantine
    query = select(aside.c.shard_no, aside.c.page).where(
        aside.c.task_id == run.id,
        aside.c.kind == "page",
        aside.c.resolved_at.is_(None),
        aside.c.shard_no.is_not(None),
        aside.c.page.is_not(None),
    )
    found: dict[int, PageRanges] = {}
    for number, page in conn.execute(query):
        if page in pages and (shards is None or number in shards):
            found[number] = found.get(number, PageRanges()).add(page)
    return found


def _chosen(db: Database, shards: Collection[int] | None) -> list[ColumnElement[bool]]:
    if shards is None:
        return []
    return [db.tables.task_shard.c.shard_no.in_(sorted(shards))]


def _try_again(act: Act, conn: Connection, run: Task, rows: Sequence[Row[Any]]) -> None:
    failed = [row for row in rows if row.status == "failed"]
    waiting = [row for row in rows if row.status == "pending"]
    to = "paused" if run.desired == "pause" else "pending"
    shard = act.db.tables.task_shard
    values = shard_values("retry", to, act.text) | {
        "attempt_count": 0,
        "error_kind": case((shard.c.error_kind == "blocked", "blocked"), else_=None),
        "lane": case((shard.c.fencing_token > 0, RESUMED), else_=shard.c.lane),
        "updated_at": act.now,
    }
    for ids in in_lists(row.id for row in rows):
        conn.execute(update(shard).where(shard.c.id.in_(ids)).values(values))
    act.count("shards", len(failed), "1 failed shard is tried again.",
              "{} failed shards are tried again.")  # fmt: skip
    act.count("waiting", len(waiting), "1 waiting shard is tried at once.",
              "{} waiting shards are tried at once.")  # fmt: skip
    if rows:
        numbers = PageRanges.of((row.shard_no, row.shard_no) for row in rows)
        before = f"{len(failed)} failed, {len(waiting)} waiting: shards {numbers}"
        act.record(conn, run.id, before, to)
    if rows and to == "paused":
        act.sentences.append("The run stays paused; unpause it to have them tried.")


def _nothing(run: Task, shards: Collection[int] | None, pages: PageRanges | None) -> str:
    if pages is not None:
        return (
            f"{named(run)} has no failed or set aside page among {pages}; pages that were read are"
            f" read again by `scrapy resume backfill`"
        )
    which = f" among {', '.join(map(str, sorted(shards)))}" if shards is not None else ""
    return f"{named(run)} has no failed or waiting shard{which}"
