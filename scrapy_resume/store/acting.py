"""What every operator's act has in common: its reason, its record, and the dry run.

An act is one transaction. It locks the run's row first, as claims and endings of runs
do, then changes shards by their ids, and leaves its rows in ``operation``. A dry run does
the same and is rolled back, so what it says is what the act would do at that moment.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.engine import Connection

from scrapy_resume.exceptions import ActRefused
from scrapy_resume.store.actresults import ActResult
from scrapy_resume.store.columns import NAME_LENGTH, REASON_LENGTH
from scrapy_resume.store.engine import Database
from scrapy_resume.store.operations import Operation, record
from scrapy_resume.store.runs import Task, existing, one
from scrapy_resume.store.transitions import cleaned, task_values

_DONE = {
    "pause": "paused", "unpause": "unpaused", "cancel": "cancelled", "retry": "retried",
    "restart": "restarted", "reset": "reset", "backfill": "backfilled", "requeue": "requeued",
    "resolve": "resolved",
}  # fmt: skip


class _DryRun(Exception):
    """Rolls the transaction back; carries what it would have come to."""

    def __init__(self, result: ActResult) -> None:
        self.result = result


@dataclass
class Act:
    """One act: what, by whom and why. *counts* and *sentences* fill up while it goes on."""

    db: Database
    kind: str
    actor: str
    reason: str
    dry_run: bool = False
    counts: dict[str, int] = field(default_factory=dict)
    sentences: list[str] = field(default_factory=list)
    task_ids: list[int] = field(default_factory=list)
    _at: datetime | None = None
    _landed: ActResult | None = None

    def __post_init__(self) -> None:
        if not self.reason.strip() or not self.actor.strip():
            raise ActRefused(f"{self.kind} needs a reason and who gives it")
        self.actor = cleaned(self.actor, NAME_LENGTH)
        self.reason = cleaned(self.reason, REASON_LENGTH)

    @property
    def done(self) -> str:
        """What is done: ``paused``, ``requeued``."""
        return _DONE[self.kind]

    @property
    def text(self) -> str:
        """The reason of everything that changes: ``paused by alice@host: they asked us to``."""
        return f"{self.done} by {self.actor}: {self.reason}"[:REASON_LENGTH]

    def carry_out(self, work: Callable[[Connection], None]) -> ActResult:
        """Do *work* in a transaction. Raises ActRefused, or StoreUnavailable."""

        def attempt(conn: Connection) -> ActResult:
            if self._landed is not None and self._is_stored(conn):
                return self._landed  # only the reply of its COMMIT was lost
            self.counts, self.sentences, self.task_ids = {}, [], []
            self._at = self.db.now(conn)
            work(conn)
            result = ActResult(
                self.kind, tuple(self.task_ids), self.dry_run,
                {name: count for name, count in self.counts.items() if count},
                tuple(self.sentences),
            )  # fmt: skip
            if self.dry_run:
                raise _DryRun(result)
            self._landed = result
            return result

        try:
            return self.db.run(attempt)
        except _DryRun as dry:
            return dry.result

    def lock(self, conn: Connection, task_id: int) -> Task:
        """The run that is acted on, locked. Raises ConfigurationError if there is none."""
        run = existing(conn, self.db, task_id, lock=True)
        self.task_ids.append(task_id)
        return run

    def record(
        self, conn: Connection, task_id: int, before: str, after: str, shard_no: int | None = None
    ) -> None:
        """Leave the act's row in ``operation``."""
        self.record_all(conn, [self.operation(task_id, before, after, shard_no)])

    def operation(
        self, task_id: int, before: str, after: str, shard_no: int | None = None
    ) -> Operation:
        """Such a row."""
        return Operation(self.kind, self.actor, self.reason, task_id, shard_no, before, after)

    def record_all(self, conn: Connection, operations: Sequence[Operation]) -> None:
        """Leave several rows."""
        record(conn, self.db, operations, at=self.now)

    @property
    def now(self) -> datetime:
        """The moment of the act, by the database's clock."""
        assert self._at is not None
        return self._at

    def count(self, name: str, number: int, sentence: str = "", many: str = "") -> None:
        """Count *number* of *name*, and say so: *sentence* of one, *many* of several ("{}")."""
        self.counts[name] = self.counts.get(name, 0) + number
        if number and sentence:
            self.sentences.append(sentence if number == 1 else many.format(number))

    def change(self, conn: Connection, run: Task, **values: Any) -> Task:
        """Change the locked *run*; returns it as it is then."""
        task = self.db.tables.task
        values["updated_at"] = self.now
        conn.execute(update(task).where(task.c.id == run.id).values(**values))
        known = {name: values[name] for name in values.keys() & Task.__dataclass_fields__.keys()}
        return replace(run, **known)

    def reopen(self, conn: Connection, run: Task) -> Task:
        """Make the locked *run* one that can be worked on, if it is over.

        Raises ActRefused if it cannot be: it was never planned, or another run is open.
        """
        if run.planned_at is None:
            state = "was never planned" if run.finished_at else "is being planned"
            raise ActRefused(f"{named(run)} {state}; there is nothing to {self.kind} yet")
        if run.finished_at is None:
            if run.desired == "cancel":
                raise ActRefused(f"{named(run)} is being cancelled; wait until it is over")
            return run
        self.require_alone(conn, run)
        self.sentences.append(
            f"R{named(run)[1:]}, which was {run.verdict}, is unfinished again; the next crawl"
            " goes on with it."
        )
        return self.change(
            conn, run, **task_values("reopen", "running", self.text), desired="run",
            verdict=None, finished_at=None, open_name=run.name,
        )  # fmt: skip

    def require_alone(self, conn: Connection, run: Task) -> None:
        """Raise ActRefused if another run of the task is unfinished."""
        other = one(conn, self.db, self.db.tables.task.c.open_name == run.name)
        if other is not None and other.id != run.id:
            raise ActRefused(
                f"run {other.run_no} of {run.name} (task {other.id}) is unfinished, and a task has"
                f" one unfinished run at most; finish or cancel it first: scrapy resume cancel"
                f" {other.id}"
            )

    def _is_stored(self, conn: Connection) -> bool:
        operation = self.db.tables.operation
        ours = (
            operation.c.kind == self.kind,
            operation.c.actor == self.actor,
            operation.c.at == self._at,
        )
        return conn.execute(select(operation.c.id).where(*ours).limit(1)).first() is not None


def named(run: Task) -> str:
    """How a sentence names a run."""
    return f"run {run.run_no} of {run.name}"
