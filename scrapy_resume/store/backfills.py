"""The act backfill: a range of pages is read again, or for the first time, in the low lane."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import insert, select
from sqlalchemy.engine import Connection, Row

from scrapy_resume.exceptions import ActRefused
from scrapy_resume.intake import RESUMED
from scrapy_resume.page import Shard
from scrapy_resume.store.acting import Act, named
from scrapy_resume.store.actresults import ActResult
from scrapy_resume.store.engine import Database
from scrapy_resume.store.planrows import plan_rows
from scrapy_resume.store.rereads import PutBack, highest_known
from scrapy_resume.store.runs import Task
from scrapy_resume.watermark import PageRanges

_NO_END = 1 << 62


def backfill(
    db: Database,
    task_id: int,
    pages: PageRanges,
    *,
    actor: str,
    reason: str,
    dry_run: bool = False,
) -> ActResult:
    """Have *pages* of every list of a run read again, after all that is fresh.

    Pages that no shard has become a shard of their own if the run is one list of numbered
    pages; else only the run's plan knows how to ask for them. Raises ActRefused, also
    while a shard that has some of the pages is being read.
    """
    act = Act(db, "backfill", actor, reason, dry_run)

    def work(conn: Connection) -> None:
        if not pages:
            raise ActRefused("there are no pages to read; name some, such as 12-40")
        run = act.reopen(conn, act.lock(conn, task_id))
        rows = _shards(conn, db, run)
        wanted = {row.shard_no: some for row in rows if (some := _covered(row).common(pages))}
        left = pages
        for some in wanted.values():
            left = left.without(some)
        if left and not _is_plain(rows):
            if not wanted:
                raise ActRefused(f"no shard of {named(run)} has a page among {pages}")
            act.sentences.append(f"The pages {left} are in no shard of the run.")
            left = PageRanges()
        if wanted:
            PutBack(act, conn, run).pages(wanted)
        if left:
            _add(act, conn, run, rows, left)
        if not act.counts.get("shards"):
            raise ActRefused(f"the pages {pages} of {named(run)} are waiting to be read already")

    return act.carry_out(work)


def _shards(conn: Connection, db: Database, run: Task) -> Sequence[Row[Any]]:
    shard = db.tables.task_shard
    query = select(shard).where(shard.c.task_id == run.id).order_by(shard.c.shard_no)
    return conn.execute(query).all()


def _covered(row: Row[Any]) -> PageRanges:
    last = highest_known(row)
    last = _NO_END if last is None else last
    return PageRanges.of([(row.first_page, last)] if last >= row.first_page else [])


def _is_plain(rows: Sequence[Row[Any]]) -> bool:
    """Are the shards the ranges of one list, whose pages the spider asks for by number alone?"""
    pages = PageRanges()
    for row in rows:
        covered = _covered(row)
        if row.ordered or row.spec or row.first_cursor or pages.common(covered):
            return False
        pages = PageRanges.of([*pages.ranges, *covered.ranges])
    return bool(rows) and len({row.site for row in rows}) == 1


def _add(act: Act, conn: Connection, run: Task, rows: Sequence[Row[Any]], left: PageRanges) -> None:
    """Give the run a shard for each of the ranges in *left*."""
    shard, number = act.db.tables.task_shard, max(row.shard_no for row in rows) + 1
    status = "paused" if run.desired == "pause" else "pending"
    new = [
        Shard(f"backfill {number + at}: {low}-{high}", low, high, None, rows[0].priority)
        for at, (low, high) in enumerate(left.ranges)
    ]
    changed = {
        "status": status, "due": int(status == "pending"), "lane": RESUMED,
        "reason": act.text[:500], "created_at": act.now, "updated_at": act.now,
    }  # fmt: skip
    planned = plan_rows(new, run.id, rows[0].site, rows[0].max_attempts, number)
    conn.execute(insert(shard), [row | changed for row in planned])
    act.record_all(conn, [
        act.operation(run.id, "no shard", f"{status}, pages {low}-{high}", number + at)
        for at, (low, high) in enumerate(left.ranges)
    ])  # fmt: skip
    act.counts["shards"] = act.counts.get("shards", 0) + len(new)
    act.count("pages", len(left))
    act.sentences.append(f"The pages {left}, which no shard had, are read too.")
