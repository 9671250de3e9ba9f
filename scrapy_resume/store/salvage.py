"""Salvage: what is kept of pages that were read and never committed, once their shard has
gone to others.

Its new owner reads these pages again, and what it stores is newer. So nothing is
overwritten: a row is inserted where its key is absent, and that is all; the checkpoint, the
counts and the quarantine are not touched. An item without a declared key has a digest of all
its fields for one, so an older reading of it would come to stand beside the newer one. Such
items are left out.

Repeating a salvage changes nothing, whatever became of the first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.engine import Connection

from scrapy_resume import faults
from scrapy_resume.store.engine import Database
from scrapy_resume.store.items import ItemTable, ItemWriter, Row
from scrapy_resume.store.items.table import digest_key
from scrapy_resume.store.operations import Operation, record
from scrapy_resume.store.records import PageRecord
from scrapy_resume.watermark import PageRanges

KIND = "salvage"


@dataclass(frozen=True, slots=True)
class Salvaged:
    """What became of the items of lost pages.

    *inserted* had no row yet, of *present* ones there was a row, which was left alone. *refused*
    ones the database does not take, *keyless* ones have no declared key.
    """

    inserted: int = 0
    present: int = 0
    refused: int = 0
    keyless: int = 0

    def __str__(self) -> str:
        parts = [f"{self.inserted} items inserted", f"{self.present} were there"]
        parts += [f"{self.refused} refused"] if self.refused else []
        parts += [f"{self.keyless} left out, which have no declared key"] if self.keyless else []
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class Loss:
    """Why pages cannot be committed: *reason*, of a shard as far as its run is known."""

    reason: str
    shard_id: int
    token: int
    task_id: int | None = None
    shard_no: int | None = None


def salvage(
    db: Database,
    pages: Sequence[PageRecord],
    loss: Loss,
    *,
    tables: Iterable[ItemTable],
    actor: str,
) -> Salvaged:
    """Insert the rows of *pages*, of one shard, that are absent, in one transaction.

    Leaves a row in ``operation``. Raises ConfigurationError for a table that is not as it was
    declared, StoreUnavailable.
    """
    every = [row for page in pages for row in page.rows]
    declared = {table.name: table for table in tables}
    keyed = [row for row in every if _has_key(row)]
    rows = _last_of_each(keyed, declared)
    writer = ItemWriter(db, declared.values(), keep=True)

    def work(conn: Connection) -> Salvaged:
        now = db.now(conn)
        written = writer.write(conn, rows, now=now)
        done = Salvaged(written.keys, written.kept, len(written.rejected), len(every) - len(keyed))
        _note(conn, db, pages, loss, str(done), actor, now)
        faults.point("salvage.before")
        return done

    return db.run(work)


def drop(db: Database, pages: Sequence[PageRecord], loss: Loss, *, actor: str) -> None:
    """Put on record that *pages* are not wanted any more. Raises StoreUnavailable."""

    def work(conn: Connection) -> None:
        _note(conn, db, pages, loss, "dropped", actor, db.now(conn))

    db.run(work)


def _has_key(row: Row) -> bool:
    if row.table is not None:
        return True
    payload: str = row.values["payload"]
    return bool(row.key[1] != digest_key(payload))


def _last_of_each(rows: Iterable[Row], declared: dict[str, ItemTable]) -> list[Row]:
    """One row for each key: what storing them one after the other would have left."""
    merged: dict[tuple[str | None, tuple[Any, ...]], Row] = {}
    for row in rows:
        place = (row.table, row.key)
        before = merged.get(place)
        table = None if row.table is None else declared.get(row.table)
        merged[place] = row if before is None else _met(table, before, row)
    return list(merged.values())


def _met(table: ItemTable | None, before: Row, after: Row) -> Row:
    if table is None:
        return after
    changed = table.update or ()
    fields = {
        name: value
        for name, value in after.values.items()
        if changed == "all" or name in changed or name == table.newer_by
    }
    return before if not changed else replace(before, values=before.values | fields)


def _note(
    conn: Connection,
    db: Database,
    pages: Sequence[PageRecord],
    loss: Loss,
    outcome: str,
    actor: str,
    now: datetime,
) -> None:
    """Write the record of it, unless it is there: the same pages may come again."""
    numbers = PageRanges.of((page.page, page.page) for page in pages)
    items = sum(len(page.rows) for page in pages)
    before = f"token {loss.token} of shard {loss.shard_id}: pages {numbers} with {items} items"
    operation = db.tables.operation
    there = select(operation.c.id).where(
        operation.c.task_id.is_not_distinct_from(loss.task_id),
        operation.c.kind == KIND,
        operation.c.before == before,
    )
    if conn.execute(there.limit(1)).first() is None:
        act = Operation(
            KIND, actor, loss.reason, loss.task_id, loss.shard_no, before=before, after=outcome
        )
        record(conn, db, [act], at=now)
