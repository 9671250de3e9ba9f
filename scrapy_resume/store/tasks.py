"""Tasks and their runs: opening one, finding them, and declaring one over.

A run is one row. At most one run of a task is unfinished, which the unique
``open_name`` holds even when two processes start at the same moment.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import func, insert, select
from sqlalchemy.engine import Connection
from sqlalchemy.exc import IntegrityError

from scrapy_resume.exceptions import ConfigurationError, RunRefused
from scrapy_resume.store.columns import NAME_LENGTH, REASON_LENGTH
from scrapy_resume.store.engine import Database
from scrapy_resume.store.finishing import (
    finish,
    finish_ended,
    finish_run,
    read_verdict,
    supersede,
)
from scrapy_resume.store.plans import (
    add_shards,
    claim_planning,
    clear_plan,
    finish_plan,
    renew_planning,
    store_plan,
)
from scrapy_resume.store.runs import Task, existing, find_tasks, one

__all__ = [
    "Task",
    "add_shards",
    "claim_planning",
    "clear_plan",
    "find_tasks",
    "finish_ended",
    "finish_plan",
    "finish_run",
    "open_run",
    "read_verdict",
    "renew_planning",
    "store_plan",
]

_RACES = 5  # openings of the same task at the same moment that are sorted out


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
        unfinished = one(conn, self.db, task.c.open_name == self.name, lock=True)
        if unfinished and self._wanted(unfinished):
            return unfinished
        if self.run == "resume":
            raise RunRefused(f"{self.name} has no unfinished run to resume")
        named = None if self.run in ("auto", "new") else self.run
        over = one(conn, self.db, (task.c.name == self.name) & (task.c.run_name == named))
        if named and over:
            return over
        latest = select(func.max(task.c.run_no)).where(task.c.name == self.name)
        self.made = (conn.execute(latest).scalar() or 0) + 1
        if unfinished and not finish(conn, self.db, unfinished.id).finished_at:
            supersede(conn, self.db, unfinished, self.made, self.actor)
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
        return existing(conn, self.db, key[0] if key else 0)
