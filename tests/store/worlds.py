"""Short-hands of the store's tests: a task with shards, claims on it, records for it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import select, text

from scrapy_resume.intake import Intake
from scrapy_resume.page import ErrorKind, Shard, Trouble, Where
from scrapy_resume.store import checkpoints, leases, tasks
from scrapy_resume.store.checkpoints import CommitResult, PageFailure, PageRecord, Record
from scrapy_resume.store.engine import Database
from scrapy_resume.store.items.table import Row, default_row
from scrapy_resume.store.leases import ClaimedShard
from scrapy_resume.store.tasks import Task
from scrapy_resume.watermark import Position

LEASE = 15.0
_EVERYTHING = Intake()


@dataclass
class World:
    """A database, and the positions that its owner knows."""

    db: Database
    positions: dict[int, Position] = field(default_factory=dict)

    def open(self, run: str = "auto", name: str = "books") -> Task:
        """Open a run of the task *name*."""
        return tasks.open_run(
            self.db, name=name, spider="books", args="{}", run=run, actor="a test"
        )

    def plan(self, shards: int | Iterable[Shard] = 1, **options: Any) -> Task:
        """Open a run and plan it: so many shards of pages 1 to 100, or those given.

        With *ordered* they are chains.
        """
        name, ordered = options.pop("name", "books"), options.pop("ordered", None)
        task = self.open(name=name)
        if isinstance(shards, int):
            shards = [Shard(f"s{n}", 1, 100, ordered=ordered) for n in range(1, shards + 1)]
        token = tasks.claim_planning(self.db, task.id, worker="planner", instance="p1", lease=LEASE)
        assert token is not None
        tasks.store_plan(self.db, task.id, token, shards, default_site="site", **options)
        return tasks.find_tasks(self.db, task.id)[0]

    def claim(
        self, task: Task, limit: int = 100, *, worker: str = "w", instance: str = "w1",
        lease: float = LEASE, alone: bool = True, intake: Intake = _EVERYTHING,
    ) -> list[ClaimedShard]:  # fmt: skip
        """Claim shards, and remember where they stand."""
        claimed = leases.claim(
            self.db, task.id, worker=worker, instance=instance, limit=limit, lease=lease,
            alone=alone, intake=intake,
        )  # fmt: skip
        self.positions.update({one.id: one.position for one in claimed})
        return claimed

    def commit(self, *records: Record, **options: Any) -> CommitResult:
        """Commit *records* on top of the known positions, and remember the new ones."""
        known = {record.shard_id: self.positions[record.shard_id] for record in records}
        result = checkpoints.commit(self.db, records, known, **options)
        self.positions.update(result.positions)
        return result

    def shard(self, shard_id: int) -> Any:
        """The row of a shard as it is now."""
        shard = self.db.tables.task_shard
        query = select(shard).where(shard.c.id == shard_id)
        return self.db.look(lambda conn: conn.execute(query).one())

    def items(self) -> dict[str, Any]:
        """The default item table: payload by key."""
        item = self.db.tables.item
        query = select(item.c.item_key, item.c.payload)
        rows = self.db.look(lambda conn: conn.execute(query).all())
        return {row.item_key: json.loads(row.payload) for row in rows}

    def workers(self) -> dict[str, int]:
        """The instances that have not ended, and how many shards each says it holds."""
        return {
            row.instance: row.load
            for row in self.sql("SELECT * FROM resume_worker WHERE stopped_at IS NULL")
        }

    def sql(self, statement: str, **parameters: Any) -> list[Any]:
        """Run any statement in a transaction of its own; returns its rows."""
        with self.db.transaction() as conn:
            result = conn.execute(text(statement), parameters)
            return list(result) if result.returns_rows else []


def item(key: str, **fields: Any) -> Row:
    """A row of the default item table."""
    return default_row("books", key, json.dumps({"key": key, **fields}))


def page(shard: ClaimedShard, number: int, *rows: Row, **more: Any) -> PageRecord:
    """A complete page of *shard*; two items of its own unless *rows* are given."""
    if not rows:
        rows = tuple(item(f"{shard.shard.key}-{number}-{n}", page=number) for n in (1, 2))
    more.setdefault("ordered", "cursor" in more)
    return PageRecord(shard.id, shard.fencing_token, number, rows, **more)


def failure(shard: ClaimedShard, number: int, kind: ErrorKind = ErrorKind.RETRYABLE) -> PageFailure:
    """A held page."""
    trouble = Trouble(Where.PAGE, kind, "HttpError", "503 Service Unavailable", status=503)
    return PageFailure(shard.id, shard.fencing_token, number, trouble, 3)
