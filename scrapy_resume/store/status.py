"""What a person or a script asks about runs: ``scrapy resume status`` and ``why``."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import and_, case, func, or_, select
from sqlalchemy.engine import Connection

from scrapy_resume import clock
from scrapy_resume.store import sites
from scrapy_resume.store.engine import Database
from scrapy_resume.store.runs import Task, existing, matching

_WATERMARK = (
    "shard_no", "first_page", "last_page", "cur_page", "ahead", "failed_pages", "status",
    "reason", "worker", "lease_until", "fencing_token", "attempt_count",
)  # fmt: skip
_WHY = (
    "shard_no", "shard_key", "site", "lane", "priority", "status", "reason", "error_kind",
    "last_error", "worker", "instance", "lease_until", "due", "next_run_at", "first_page",
    "last_page", "cur_page", "ahead", "failed_pages", "attempt_count", "max_attempts",
    "updated_at",
)  # fmt: skip
_STATUSES = ("pending", "running", "paused", "done", "failed")


def status(db: Database, which: str | int | None) -> dict[str, Any]:
    """The runs named or numbered *which* (None: all), as ``status --json`` prints them.

    Plain values only: times are ISO text in UTC.
    """

    shard = db.tables.task_shard
    marks = select(*(shard.c[name] for name in _WATERMARK)).order_by(shard.c.shard_no)

    def read(conn: Connection, task: Task) -> dict[str, Any]:
        rows = conn.execute(marks.where(shard.c.task_id == task.id)).mappings()
        return {**_summary(conn, db, task), "watermarks": [_plain(row) for row in rows]}

    return {"tasks": db.look(lambda conn: [read(conn, task) for task in matching(conn, db, which)])}


def why(db: Database, task_id: int) -> dict[str, Any]:
    """What of a run is unfinished or failed: held by whom, since when, for what reason.

    The numbers of its shards by status are called *shard_counts* here; *site_shards* says
    how many shards of each of its sites are running, over all runs; *unresolved* is how
    much of what was set aside still waits for somebody.
    """
    shard, aside = db.tables.task_shard, db.tables.quarantine
    unresolved = select(func.count()).where(
        aside.c.task_id == task_id, aside.c.resolved_at.is_(None)
    )
    query = select(*(shard.c[name] for name in _WHY)).where(
        shard.c.task_id == task_id, shard.c.status != "done"
    )

    def read(conn: Connection) -> dict[str, Any]:
        summary = _summary(conn, db, existing(conn, db, task_id))
        summary["shard_counts"] = summary.pop("shards")
        summary["unresolved"] = conn.execute(unresolved).scalar_one()
        rows = conn.execute(query.order_by(shard.c.shard_no)).mappings().all()
        ours, busy = {row["site"] for row in rows}, sites.busy(conn, db)
        return {
            **summary,
            "site_shards": {site: count for site, count in busy.items() if site in ours},
            "shards": [_plain(row) for row in rows],
        }

    return db.look(read)


def progress(db: Database, task_id: int) -> tuple[int, int | None]:
    """Pages committed and pages planned of a run; None if a shard's last page is unknown."""
    shard = db.tables.task_shard
    planned = func.sum(shard.c.last_page - shard.c.first_page + 1)
    open_ended = func.sum(case((shard.c.last_page.is_(None), 1), else_=0))
    query = select(func.sum(shard.c.page_count), planned, open_ended).where(
        shard.c.task_id == task_id
    )
    done, total, unknown = db.look(lambda conn: conn.execute(query).one())
    return _whole(done), None if unknown or total is None else int(total)


def quiet_for(db: Database, task_id: int) -> float:
    """For how many seconds no page of a run was stored, by the database's clock.

    If none ever was, since the run was begun.
    """
    task, shard = db.tables.task, db.tables.task_shard
    latest = select(func.max(shard.c.checkpoint_at)).where(shard.c.task_id == task_id)
    begun = select(task.c.started_at).where(task.c.id == task_id)

    def work(conn: Connection) -> float:
        since = conn.execute(latest).scalar() or conn.execute(begun).scalar_one()
        return max(0.0, float((db.now(conn) - since).total_seconds()))

    return db.look(work)


def _summary(conn: Connection, db: Database, task: Task) -> dict[str, Any]:
    """A run without its single shards."""
    shard = db.tables.task_shard
    ours = shard.c.task_id == task.id
    sums = (shard.c.page_count, shard.c.written_count, shard.c.dropped_count)
    totals = [func.sum(column) for column in (*sums, shard.c.quarantined_count)]
    rows = conn.execute(
        select(shard.c.status, func.count(), *totals).where(ours).group_by(shard.c.status)
    ).all()
    by_status = {row[0]: row[1] for row in rows}
    names = ("pages", "items", "dropped", "quarantined")
    return {
        **_head(task),
        **{name: sum(_whole(row[at]) for row in rows) for at, name in enumerate(names, 2)},
        "shards": {name: by_status.get(name, 0) for name in _STATUSES},
        "workers": _workers(conn, db, task),
        "health": _health(conn, db, task),
        "now": _text(db.now(conn)),
    }


def _head(task: Task) -> dict[str, Any]:
    return {
        "task_id": task.id,
        "name": task.name,
        "spider": task.spider,
        "args": task.args,
        "run_no": task.run_no,
        "run_name": task.run_name,
        "status": "paused" if task.desired == "pause" and not task.finished_at else task.status,
        "reason": task.reason,
        "verdict": task.verdict,
        "started_at": _text(task.started_at),
        "finished_at": _text(task.finished_at),
    }


def _workers(conn: Connection, db: Database, task: Task) -> list[dict[str, Any]]:
    """Who works on the run: those that said so and did not end, and whoever holds a shard.

    *heartbeat_age* is in seconds, by the database's clock.
    """
    shard, worker = db.tables.task_shard, db.tables.worker
    holders = select(shard.c.instance).where(
        shard.c.task_id == task.id, shard.c.status == "running"
    )
    present = and_(worker.c.task_id == task.id, worker.c.stopped_at.is_(None))
    query = select(worker).where(or_(present, worker.c.instance.in_(holders)))
    rows, now = conn.execute(query.order_by(worker.c.started_at)).mappings().all(), db.now(conn)
    ages = [(now - row["heartbeat_at"]).total_seconds() for row in rows]
    return [
        {**_plain(row), "heartbeat_age": max(0.0, round(age, 3))}
        for row, age in zip(rows, ages, strict=True)
    ]


def _health(conn: Connection, db: Database, task: Task) -> list[dict[str, Any]]:
    shard, health = db.tables.task_shard, db.tables.site_health
    ours = select(shard.c.site).where(shard.c.task_id == task.id)
    rows = conn.execute(select(health).where(health.c.site.in_(ours)))
    return [_plain(row) for row in rows.mappings()]


def _plain(row: Any) -> dict[str, Any]:
    return {
        name: _text(value) if isinstance(value, datetime) else value for name, value in row.items()
    }


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else clock.utc_text(moment)


def _whole(value: Any) -> int:
    return int(value or 0)
