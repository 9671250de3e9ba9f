"""Writing items: rows of many pages, of the default item table and of the user's own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy.engine import Connection

from scrapy_resume.exceptions import ConfigurationError
from scrapy_resume.store.engine import Database
from scrapy_resume.store.items.batch import Batch
from scrapy_resume.store.items.table import ItemTable, Rejection, Row
from scrapy_resume.store.items.targets import Outdated, Target, default_target, reflect


class Written(NamedTuple):
    """What became of rows: keys stored, rows rejected, fields left out, values coerced.

    *respelt* are the keys of rows, by their places, that the table spells otherwise. *kept*
    counts the keys that were there already and were not touched.
    """

    keys: int
    rejected: list[Rejection]
    ignored: int = 0
    coerced: int = 0
    respelt: Mapping[int, tuple[Any, ...]] = {}
    kept: int = 0

    def plus(self, other: Written) -> Written:
        """Both together."""
        return Written(
            self.keys + other.keys,
            self.rejected + other.rejected,
            self.ignored + other.ignored,
            self.coerced + other.coerced,
            {**self.respelt, **other.respelt},
            self.kept + other.kept,
        )


class ItemWriter:
    """Writes rows into the default item table and into *tables*.

    With *keep* it only inserts: a row that is there stays as it is, whatever its table declares,
    and a row with a field that its table lacks is rejected where it would stop a crawl.
    """

    def __init__(
        self, db: Database, tables: Iterable[ItemTable] = (), *, keep: bool = False
    ) -> None:
        self._db, self._keep = db, keep
        self._declared = {one.name: _keeping(one) if keep else one for one in tables}
        self._targets: dict[str | None, Target] = {}

    def write(self, conn: Connection, rows: Sequence[Row], *, now: datetime | None) -> Written:
        """Upsert *rows* inside the caller's transaction; those of the default table as of *now*.

        Raises ConfigurationError, naming table and column, for a table that is not as
        declared, and for a field without a column where that is to stop the crawl.
        """
        written = Written(0, [])
        places: dict[str | None, list[int]] = {}
        for place, row in enumerate(rows):
            places.setdefault(row.table, []).append(place)
        for name in self._parents_first(conn, places):
            written = written.plus(self._write(conn, name, rows, places[name], now))
        written.rejected.sort(key=lambda one: one.index)
        return written

    def _write(
        self,
        conn: Connection,
        name: str | None,
        rows: Sequence[Row],
        places: list[int],
        now: datetime | None,
    ) -> Written:
        for again in (True, False):
            target = self._target(conn, name)
            ignored, coerced = target.ignored, target.coerced
            batch = Batch(conn, target, rows, now, keep=self._keep)
            try:
                keys = batch.write(places)
                break
            except Outdated as changed:
                if not (again and self._look_again(conn, target, rows, places)):
                    raise changed.__cause__ or changed from None
        counts = (target.ignored - ignored, target.coerced - coerced)
        return Written(keys, batch.rejected, *counts, batch.respelt, batch.kept)

    def _look_again(
        self, conn: Connection, old: Target, rows: Sequence[Row], places: list[int]
    ) -> bool:
        """Look the table up anew; False if that changes nothing."""
        if old.facts is None:
            return False
        fields = {name for place in places for name in rows[place].values}
        new = reflect(conn, self._db, old.declared, fields | set(old.absent))
        self._targets[old.name] = new
        return new.facts != old.facts or not fields <= set(old.absent) | set(old.rules)

    def _parents_first(self, conn: Connection, names: Iterable[str | None]) -> list[str | None]:
        """The tables in the order of writing: what a foreign key names goes before it."""
        waiting = sorted(names, key=lambda name: name or "")
        order: list[str | None] = []
        while waiting:
            free = [name for name in waiting if not self._parents(conn, name) & set(waiting)]
            order.append((free or waiting)[0])
            waiting.remove(order[-1])
        return order

    def _parents(self, conn: Connection, name: str | None) -> set[str | None]:
        facts = self._target(conn, name).facts
        parents: set[str | None] = set() if facts is None else {*facts.references}
        return parents - {name}

    def _target(self, conn: Connection, name: str | None) -> Target:
        target = self._targets.get(name)
        if target is None:
            target = self._targets[name] = self._find(conn, name)
        return target

    def _find(self, conn: Connection, name: str | None) -> Target:
        if name is None:
            return default_target(self._db, keep=self._keep)
        if name not in self._declared:
            raise ConfigurationError(f"an item goes to the table {name}, which no ItemTable names")
        return reflect(conn, self._db, self._declared[name])


def _keeping(table: ItemTable) -> ItemTable:
    unknown = "quarantine" if table.on_unknown_field == "stop" else table.on_unknown_field
    return replace(table, update=None, newer_by=None, on_unknown_field=unknown)
