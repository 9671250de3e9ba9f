"""Acts that begin a run anew: restart keeps its plan, reset does not."""

from __future__ import annotations

from sqlalchemy import delete, func, select
from sqlalchemy.engine import Connection

from scrapy_resume.exceptions import ActRefused
from scrapy_resume.store.acting import Act, named
from scrapy_resume.store.actresults import ActResult
from scrapy_resume.store.claims import in_lists
from scrapy_resume.store.engine import Database
from scrapy_resume.store.rereads import PutBack, require_idle
from scrapy_resume.store.runs import Task
from scrapy_resume.store.transitions import task_values


def restart(
    db: Database, task_id: int, *, actor: str, reason: str, dry_run: bool = False
) -> ActResult:
    """Have every shard of a run read again from its first page, by the plan it has.

    Erases the checkpoints; items stay and are written again. Raises ActRefused, also while
    a shard is being read.
    """
    act = Act(db, "restart", actor, reason, dry_run)

    def work(conn: Connection) -> None:
        run = act.reopen(conn, act.lock(conn, task_id))
        PutBack(act, conn, run).everything()

    return act.carry_out(work)


def reset(
    db: Database, task_id: int, *, actor: str, reason: str, dry_run: bool = False
) -> ActResult:
    """Forget what a run planned and read, so that the next crawl plans it anew.

    Erases its shards with their checkpoints, its manifest and its quarantine; items stay.
    Raises ActRefused, also while a shard is being read.
    """
    act = Act(db, "reset", actor, reason, dry_run)

    def work(conn: Connection) -> None:
        run = act.lock(conn, task_id)
        if run.planned_at is None and run.finished_at is None:
            raise ActRefused(f"{named(run)} has no plan yet; there is nothing to reset")
        act.require_alone(conn, run)
        _forget(act, conn, run)
        act.change(
            conn, run, **task_values("reset", "planning", act.text), desired="run", verdict=None,
            bound=None, signature=None, planned_at=None, finished_at=None, open_name=run.name,
            read_again_at=act.now,
        )  # fmt: skip
        act.sentences.append("The items stay. The next crawl plans the run anew.")

    return act.carry_out(work)


def _forget(act: Act, conn: Connection, run: Task) -> None:
    shard, manifest = act.db.tables.task_shard, act.db.tables.manifest
    aside = act.db.tables.quarantine
    query = select(shard).where(shard.c.task_id == run.id).order_by(shard.c.id)
    rows = conn.execute(query.with_for_update()).all()
    require_idle(act, run, rows)
    ours = aside.c.task_id == run.id
    records = conn.execute(select(func.count()).select_from(aside).where(ours)).scalar() or 0
    pages = sum(row.page_count for row in rows)
    for ids in in_lists(row.id for row in rows):
        conn.execute(delete(manifest).where(manifest.c.shard_id.in_(ids)))
        conn.execute(delete(shard).where(shard.c.id.in_(ids)))
    conn.execute(delete(aside).where(ours))
    act.count("shards", len(rows), "1 shard is erased.", "{} shards are erased.")
    act.count("pages", pages, "The checkpoint of 1 page is erased.",
              "The checkpoints of {} pages are erased.")  # fmt: skip
    act.count("records", records, "1 record of the quarantine is erased.",
              "{} records of the quarantine are erased.")  # fmt: skip
    act.record(
        conn, run.id, f"{run.status}, {len(rows)} shards, {pages} pages, {records} records",
        "planning",
    )  # fmt: skip
