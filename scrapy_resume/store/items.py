"""Writing items: rows of many pages, of the default item table and of the user's own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from sqlalchemy.engine import Connection

from scrapy_resume.exceptions import ConfigurationError
from scrapy_resume.store.engine import Database
from scrapy_resume.store.itembatch import Batch
from scrapy_resume.store.iteminspect import Finding, inspect, require
from scrapy_resume.store.itemtable import ItemTable, Rejection, Row, default_row
from scrapy_resume.store.itemtargets import Target, default_target, reflect

__all__ = [
    "Finding",
    "ItemTable",
    "ItemWriter",
    "Rejection",
    "Row",
    "default_row",
    "inspect",
    "require",
]


class ItemWriter:
    """Writes rows into the default item table and into *tables*."""

    def __init__(self, db: Database, tables: Iterable[ItemTable] = ()) -> None:
        self._db = db
        self._declared = {table.name: table for table in tables}
        self._targets: dict[str | None, Target] = {}

    def write(
        self, conn: Connection, rows: Sequence[Row], *, now: datetime
    ) -> tuple[int, list[Rejection]]:
        """Upsert *rows* inside the caller's transaction.

        Returns how many keys were stored, and what was rejected. Raises
        ConfigurationError, naming table and column, for a table that is not as declared.
        """
        written, rejected = 0, list[Rejection]()
        for name in sorted({row.table for row in rows}, key=lambda name: name or ""):
            target = self._target(conn, name)
            batch = Batch(conn, self._db, target, rows, now)
            written += batch.write([at for at, row in enumerate(rows) if row.table == name])
            rejected += batch.rejected
        return written, rejected

    def _target(self, conn: Connection, name: str | None) -> Target:
        target = self._targets.get(name)
        if target is None:
            target = self._targets[name] = self._find(conn, name)
        return target

    def _find(self, conn: Connection, name: str | None) -> Target:
        if name is None:
            return default_target(self._db)
        if name not in self._declared:
            raise ConfigurationError(f"an item goes to the table {name}, which no ItemTable names")
        return reflect(conn, self._db, self._declared[name])
