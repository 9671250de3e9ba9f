"""How a run ends: its shards all final, or superseded by a newer run; and its verdict."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, and_, case, exists, func, literal, or_, select, update
from sqlalchemy.engine import Connection

from scrapy_resume.exceptions import RunRefused
from scrapy_resume.store.claims import in_lists
from scrapy_resume.store.engine import Database
from scrapy_resume.store.operations import Operation, record
from scrapy_resume.store.quarantine import READ_AGAIN
from scrapy_resume.store.runs import Task, existing
from scrapy_resume.store.sites import ParkedSite, parked
from scrapy_resume.store.transitions import OPEN, shard_values, task_values
from scrapy_resume.verdict import Tally, Verdict, decide

_ENDED = 100  # runs that one look declares over


def finish_run(db: Database, task_id: int) -> Task:
    """Declare the run over if every shard is final, and give its verdict, once.

    Returns the run as it is now; unchanged if it is unplanned, unfinished or over.
    """
    return db.run(lambda conn: finish(conn, db, task_id))


def finish_ended(db: Database) -> list[Task]:
    """Declare over every run whose shards are all final; returns those runs.

    The owner of the last shard does it, unless it died just before.
    """
    task = db.tables.task
    planned = (task.c.open_name.is_not(None), task.c.planned_at.is_not(None))
    query = select(task.c.id).where(*planned, ~_unfinished(db, task.c.id)).limit(_ENDED)
    ids = db.look(lambda conn: list(conn.execute(query).scalars()))
    runs = [finish_run(db, task_id) for task_id in ids]
    return [run for run in runs if run.finished_at is not None]


def _unfinished(db: Database, task_id: Any) -> ColumnElement[bool]:
    """Whether a shard of the run is not final; one dive into the claim index per status."""
    shard = db.tables.task_shard
    ours = shard.c.task_id == task_id
    return or_(*(exists().where(ours, shard.c.status == status) for status in OPEN))


def read_verdict(db: Database, task_id: int) -> tuple[Verdict, str]:
    """What the run would say of itself now, over or not, and why."""
    return db.look(lambda conn: _decide(conn, db, existing(conn, db, task_id)))


def finish(conn: Connection, db: Database, task_id: int) -> Task:
    """Declare the run over inside the caller's transaction, if every shard is final."""
    found = existing(conn, db, task_id, lock=True)
    if found.finished_at or not found.planned_at:
        return found
    if conn.execute(select(_unfinished(db, task_id))).scalar():
        return found
    shard = db.tables.task_shard
    verdict, reason = _decide(conn, db, found)
    failed = exists().where(shard.c.task_id == task_id, shard.c.status == "failed")
    status = "failed" if conn.execute(select(failed)).scalar() else "done"
    _close(conn, db, task_id, ("finish", status, reason), verdict)
    return existing(conn, db, task_id)


def supersede(conn: Connection, db: Database, old: Task, run_no: int, actor: str) -> None:
    """End the unfinished run *old*, locked by the caller, for the sake of run *run_no*.

    Raises RunRefused while somebody works on it.
    """
    task, shard = db.tables.task, db.tables.task_shard
    now = db.now(conn)
    running = select(shard.c.worker, shard.c.lease_until).where(
        shard.c.task_id == old.id, shard.c.status == "running", shard.c.lease_until >= now
    )
    holder = (
        conn.execute(running.limit(1)).first()
        or conn.execute(
            select(task.c.planner, task.c.plan_lease_until).where(
                task.c.id == old.id, task.c.plan_lease_until > now
            )
        ).first()
    )
    if holder:
        raise RunRefused(
            f"run {old.run_no} of {old.name} is worked on by {holder[0]} until {holder[1]} UTC;"
            " stop it first, or join it with RESUME_RUN=auto"
        )
    reason = f"superseded by run {run_no}"
    verdict = end_unfinished(conn, db, old, "supersede", reason, now)
    act = Operation("supersede", actor, reason, old.id, before=old.status, after=verdict.value)
    record(conn, db, [act], at=now)


def end_unfinished(
    conn: Connection, db: Database, run: Task, move: str, reason: str, now: datetime
) -> Verdict:
    """End the locked *run* by *move*, and with it every shard that is not final."""
    shard = db.tables.task_shard
    wanted = (shard.c.task_id == run.id, shard.c.status.in_(OPEN))
    values = shard_values(move, "failed", reason)
    values |= {"fencing_token": shard.c.fencing_token + 1, "updated_at": now}
    for ids in in_lists(conn.execute(select(shard.c.id).where(*wanted)).scalars()):
        conn.execute(update(shard).where(shard.c.id.in_(ids)).values(values))
    verdict, _ = _decide(conn, db, run)
    _close(conn, db, run.id, (move, "failed", reason), verdict)
    return verdict


def _close(
    conn: Connection, db: Database, task_id: int, move: tuple[str, str, str], verdict: Verdict
) -> None:
    task = db.tables.task
    now = db.now(conn)
    conn.execute(
        update(task)
        .where(task.c.id == task_id, task.c.finished_at.is_(None))
        .values(
            **task_values(*move),
            verdict=verdict.value,
            open_name=None,
            planner=None,
            planner_instance=None,
            plan_lease_until=None,
            finished_at=now,
            updated_at=now,
        )
    )


def _decide(conn: Connection, db: Database, found: Task) -> tuple[Verdict, str]:
    shard = db.tables.task_shard
    sums = conn.execute(
        select(func.sum(shard.c.page_count), func.sum(shard.c.quarantined_count)).where(
            shard.c.task_id == found.id
        )
    ).one()
    aside = db.tables.quarantine
    put_back = func.coalesce(aside.c.resolution, "").in_(READ_AGAIN)
    pages_aside = select(func.count()).where(
        aside.c.task_id == found.id, aside.c.kind == "page", aside.c.shard_no.is_not(None),
        ~put_back,
    )  # fmt: skip
    loose = select(func.count()).where(aside.c.task_id == found.id, aside.c.shard_no.is_(None))
    return decide(
        _tallies(conn, db, found.id),
        planned=found.planned_at is not None,
        pages=int(sums[0] or 0) - int(conn.execute(pages_aside).scalar() or 0),
        rejects=int(sums[1] or 0) + int(conn.execute(loose).scalar() or 0),
    )


def _tallies(conn: Connection, db: Database, task_id: int) -> list[Tally]:
    """The run's shards by what is said of them; a blocked site's waiting ones are blocked."""
    shard = db.tables.task_shard
    blocked = {name: one for name, one in parked(conn, db).items() if one.state == "blocked"}
    held = and_(shard.c.status == "pending", shard.c.site.in_(sorted(blocked)))
    site = case((held, shard.c.site), else_="") if blocked else literal("")
    kinds = (shard.c.status, shard.c.error_kind, shard.c.reason, site.label("held_site"))
    counts = select(*kinds, func.count().label("count_")).where(shard.c.task_id == task_id)
    return [
        Tally(row.status, row.error_kind, row.reason, row.count_)
        if not row.held_site or row.error_kind == "blocked"
        else Tally(row.status, "blocked", _parked_reason(blocked[row.held_site]), row.count_)
        for row in conn.execute(counts.group_by(*kinds))
    ]


def _parked_reason(site: ParkedSite) -> str:
    return f"parked: site {site.site} is blocked: {site.reason}"
