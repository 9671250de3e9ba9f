"""Tasks and their runs: opening one, finding them, and declaring one over.

A run is one row. At most one run of a task is unfinished, which the unique
``open_name`` holds even when two processes start at the same moment.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, func, insert, select, update
from sqlalchemy.engine import Connection, RowMapping
from sqlalchemy.exc import IntegrityError

from scrapy_resume.exceptions import ConfigurationError, RunRefused
from scrapy_resume.store.columns import NAME_LENGTH, REASON_LENGTH
from scrapy_resume.store.engine import Database
from scrapy_resume.store.operations import Operation, record
from scrapy_resume.store.plans import claim_planning, renew_planning, store_plan
from scrapy_resume.verdict import Tally, Verdict, decide

__all__ = [
    "Task",
    "claim_planning",
    "find_tasks",
    "finish_run",
    "open_run",
    "read_verdict",
    "renew_planning",
    "store_plan",
]

_BATCH = 2000  # shards changed by one statement at most
_RACES = 5  # openings of the same task at the same moment that are sorted out


@dataclass(frozen=True, slots=True)
class Task:
    """One run of a task, as its row says."""

    id: int
    name: str
    spider: str
    args: str
    run_no: int
    run_name: str | None
    priority: int
    status: str
    desired: str
    reason: str
    verdict: str | None
    bound: str | None
    signature: str | None
    planned_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None


def open_run(
    db: Database, *, name: str, spider: str, args: str, run: str, priority: int = 0, actor: str
) -> Task:
    """Open the run that *run* asks for (the setting ``RESUME_RUN``).

    ``auto`` resumes the unfinished run, else begins one; ``new`` begins one and
    supersedes an unfinished run that nobody works on; ``resume`` wants an unfinished
    run; any other text is a run's name: that run whatever its state (a finished one
    is returned as it is), else a new one. *args* is JSON. Raises RunRefused.
    """
    for what, value in (("task", name), ("spider", spider), ("run", run)):
        if len(value) > NAME_LENGTH:
            raise ConfigurationError(
                f"the {what} name {value[:40]!r}… has {len(value)} characters;"
                f" allowed are {NAME_LENGTH}"
            )
    opening = _Opening(db, name, spider, args, run, priority, actor)
    for _ in range(_RACES):
        try:
            return db.run(opening.open)
        except IntegrityError:  # another process opened a run in the same moment
            continue
    raise RunRefused(f"other processes keep opening runs of {name}")


@dataclass
class _Opening:
    db: Database
    name: str
    spider: str
    args: str
    run: str
    priority: int
    actor: str
    made: int | None = None  # run number of our own, perhaps committed already

    def open(self, conn: Connection) -> Task:
        task = self.db.tables.task
        unfinished = _one(conn, self.db, task.c.open_name == self.name, lock=True)
        if unfinished and self._wanted(unfinished):
            return unfinished
        if self.run == "resume":
            raise RunRefused(f"{self.name} has no unfinished run to resume")
        named = None if self.run in ("auto", "new") else self.run
        over = _one(conn, self.db, (task.c.name == self.name) & (task.c.run_name == named))
        if named and over:
            return over
        latest = select(func.max(task.c.run_no)).where(task.c.name == self.name)
        self.made = (conn.execute(latest).scalar() or 0) + 1
        if unfinished and not _finish(conn, self.db, unfinished.id).finished_at:
            _supersede(conn, self.db, unfinished, self.made, self.actor)
        return self._begin(conn, self.made, named)

    def _wanted(self, unfinished: Task) -> bool:
        same = self.run in ("auto", "resume", unfinished.run_name)
        return same or unfinished.run_no == self.made

    def _begin(self, conn: Connection, run_no: int, run_name: str | None) -> Task:
        now = self.db.now(conn)
        row = {
            "name": self.name,
            "spider": self.spider,
            "args": self.args,
            "run_no": run_no,
            "run_name": run_name,
            "open_name": self.name,
            "priority": self.priority,
            "status": "planning",
            "desired": "run",
            "reason": f"opened by {self.actor}"[:REASON_LENGTH],
            "plan_token": 0,
            "started_at": now,
            "created_at": now,
            "updated_at": now,
        }
        result = conn.execute(insert(self.db.tables.task).values(row))
        key = result.inserted_primary_key
        found = _one(conn, self.db, self.db.tables.task.c.id == (key and key[0]))
        assert found is not None
        return found


def find_tasks(db: Database, which: str | int | None) -> list[Task]:
    """The runs of the task named *which* and the run numbered so; all for None; newest first."""
    task = db.tables.task
    query = select(*_columns(db)).order_by(task.c.id.desc())
    if isinstance(which, int):
        query = query.where(task.c.id == which)
    elif which is not None:
        numbered = task.c.id == (int(which) if which.isdecimal() else None)
        query = query.where((task.c.name == which) | numbered)
    with db.read() as conn:
        return [_task(row) for row in conn.execute(query).mappings()]


def finish_run(db: Database, task_id: int) -> Task:
    """Declare the run over if every shard is final, and give its verdict, once.

    Returns the run as it is now; unchanged if it is unplanned, unfinished or over.
    """
    return db.run(lambda conn: _finish(conn, db, task_id))


def read_verdict(db: Database, task_id: int) -> tuple[Verdict, str]:
    """What the run would say of itself now, over or not, and why."""
    with db.read() as conn:
        found = _existing(conn, db, task_id)
        return _decide(conn, db, found)


def _finish(conn: Connection, db: Database, task_id: int) -> Task:
    found = _existing(conn, db, task_id, lock=True)
    shard = db.tables.task_shard
    unfinished = select(func.count()).where(
        shard.c.task_id == task_id, shard.c.status.in_(("pending", "running", "paused"))
    )
    if found.finished_at or not found.planned_at or conn.execute(unfinished).scalar():
        return found
    verdict, reason = _decide(conn, db, found)
    failed = select(func.count()).where(shard.c.task_id == task_id, shard.c.status == "failed")
    status = "failed" if conn.execute(failed).scalar() else "done"
    _close(conn, db, task_id, status, verdict, reason)
    return _existing(conn, db, task_id)


def _close(
    conn: Connection, db: Database, task_id: int, status: str, verdict: Verdict, reason: str
) -> None:
    task = db.tables.task
    now = db.now(conn)
    conn.execute(
        update(task)
        .where(task.c.id == task_id, task.c.finished_at.is_(None))
        .values(
            status=status,
            verdict=verdict.value,
            reason=reason[:REASON_LENGTH],
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
    kinds = (shard.c.status, shard.c.error_kind, shard.c.reason)
    tallies = conn.execute(
        select(*kinds, func.count()).where(shard.c.task_id == found.id).group_by(*kinds)
    )
    sums = conn.execute(
        select(func.sum(shard.c.page_count), func.sum(shard.c.quarantined_count)).where(
            shard.c.task_id == found.id
        )
    ).one()
    return decide(
        [Tally(*row) for row in tallies],
        planned=found.planned_at is not None,
        pages=int(sums[0] or 0),
        rejects=int(sums[1] or 0),
    )


def _supersede(conn: Connection, db: Database, old: Task, run_no: int, actor: str) -> None:
    task, shard = db.tables.task, db.tables.task_shard
    now = db.now(conn)
    running = select(shard.c.worker, shard.c.lease_until).where(
        shard.c.task_id == old.id, shard.c.status == "running"
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
    _fail_shards(conn, db, old.id, reason, now)
    verdict, _ = _decide(conn, db, old)
    _close(conn, db, old.id, "failed", verdict, reason)
    act = Operation("supersede", actor, reason, old.id, before=old.status, after=verdict.value)
    record(conn, db, [act], at=now)


def _fail_shards(conn: Connection, db: Database, task_id: int, reason: str, now: datetime) -> None:
    shard = db.tables.task_shard
    wanted = (shard.c.task_id == task_id, shard.c.status.in_(("pending", "paused")))
    ids = sorted(conn.execute(select(shard.c.id).where(*wanted)).scalars())
    for start in range(0, len(ids), _BATCH):
        conn.execute(
            update(shard)
            .where(shard.c.id.in_(ids[start : start + _BATCH]))
            .values(status="failed", reason=reason, due=0, next_run_at=None, updated_at=now)
        )


def _columns(db: Database) -> list[ColumnElement[Any]]:
    return [db.tables.task.c[name] for name in Task.__dataclass_fields__]


def _task(row: RowMapping) -> Task:
    return Task(**row)


def _one(
    conn: Connection, db: Database, where: ColumnElement[bool], *, lock: bool = False
) -> Task | None:
    query = select(*_columns(db)).where(where)
    row = conn.execute(query.with_for_update() if lock else query).mappings().first()
    return _task(row) if row else None


def _existing(conn: Connection, db: Database, task_id: int, *, lock: bool = False) -> Task:
    found = _one(conn, db, db.tables.task.c.id == task_id, lock=lock)
    if found is None:
        raise ConfigurationError(f"there is no task {task_id}")
    return found
