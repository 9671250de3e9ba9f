"""The statements of one item table, by set of fields, as the driver takes them.

They go to the driver as they are: SQLAlchemy's own way of handing over many rows takes
longer than storing them, and the types of a reflected table would convert values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any

from sqlalchemy import Column, MetaData, Select, Table, insert, select, tuple_
from sqlalchemy.sql import ClauseElement
from sqlalchemy.types import NullType

from scrapy_resume.store.engine import Database
from scrapy_resume.store.items.table import ItemTable, Values
from scrapy_resume.store.items.upserts import Rule, change, upsert

_KEPT = 1000  # statements
_BARE = 80  # bytes of a number, which may be as long, and of what stands around a value
_PERCENT = "\ue000"  # stands for a "%" in a name, which SQLAlchemy would escape twice


@dataclass(frozen=True, slots=True)
class Prepared:
    """A statement as the driver takes it, and how a row's values are put in its order."""

    text: str
    parameters: Callable[[Values], Any]


class Statements:
    """What is sent for the rows of one table; a connection must have been open."""

    def __init__(self, db: Database, declared: ItemTable, columns: Iterable[str]) -> None:
        self._declared, self._names = declared, tuple(columns)
        self._dialect, self._sql_dialect = db.dialect, db.engine.dialect
        self._plain = self._make("%")
        self._table = self._make(_PERCENT if db.dialect == "mysql" else "%")
        self._prepared: dict[tuple[str, frozenset[str]], Prepared] = {}

    def upsert(self, fields: frozenset[str]) -> Prepared:
        """Insert rows of *fields*, or update those that are there."""
        return self._get("upsert", fields)

    def keep(self, fields: frozenset[str]) -> Prepared:
        """Insert rows of *fields*; of those that are there take the lock only."""
        return self._get("keep", fields)

    def insert(self, fields: frozenset[str]) -> Prepared:
        """Insert rows of *fields*, which must be new."""
        return self._get("insert", fields)

    def change(self, fields: frozenset[str]) -> Prepared | None:
        """Update a row of *fields* that is there; None if it is to stay as it is."""
        return self._get("change", fields) if self._rule(fields).update else None

    def locked(self, keys: list[tuple[Any, ...]]) -> Select[Any]:
        """Lock the rows of *keys* that are there, in the order of the index; gives their keys."""
        columns = [self._plain.c[name] for name in self._declared.key]
        if len(columns) == 1:
            wanted = columns[0].in_([key[0] for key in keys])
        else:
            wanted = tuple_(*columns).in_(keys)
        return select(*columns).where(wanted).with_for_update()

    def updated(self, fields: Iterable[str]) -> tuple[str, ...]:
        """Which of *fields* change a row that is there."""
        update = self._declared.update
        if not update:
            return ()
        wanted = set(fields) - set(self._declared.key)
        if update != "all":  # the guard goes along, or an older row could come next
            wanted &= {*update, self._declared.newer_by}
        return tuple(name for name in self._names if name in wanted)

    def overhead(self, fields: frozenset[str]) -> int:
        """Bytes that a statement for one row of *fields* has at most besides its texts."""
        names = sum(len(name.encode()) + _BARE for name in self._names)
        return len(self.upsert(fields).text.encode()) + names

    def _make(self, percent: str) -> Table:
        def spelt(name: str) -> str:
            return name.replace("%", percent)

        columns = (Column(spelt(name), NullType(), key=name) for name in self._names)
        return Table(spelt(self._declared.name), MetaData(), *columns)

    def _rule(self, fields: frozenset[str]) -> Rule:
        guard = self._declared.newer_by
        dated = guard is not None and guard in fields
        return Rule(tuple(self._declared.key), self.updated(fields), guard, dated)

    def _get(self, what: str, fields: frozenset[str]) -> Prepared:
        prepared = self._prepared.get((what, fields))
        if prepared is None:
            if len(self._prepared) >= _KEPT:
                self._prepared.clear()
            prepared = self._prepared[what, fields] = self._prepare(what, fields)
        return prepared

    def _prepare(self, what: str, fields: frozenset[str]) -> Prepared:
        rule = self._rule(fields)
        if what == "change":
            return self._compiled(change(self._table, rule), None, self._sources(rule))
        if what == "insert":
            return self._compiled(insert(self._table), fields, {})
        rule = rule if what == "upsert" else replace(rule, update=())
        return self._compiled(upsert(self._dialect, self._table, rule), fields, {})

    def _sources(self, rule: Rule) -> dict[str, str]:
        """Which field a placeholder of a change takes its value from."""
        sources = {f"key {n}": name for n, name in enumerate(rule.key)}
        sources |= {f"={name}": name for name in rule.update}
        return sources if rule.newer_by is None else sources | {"guard": rule.newer_by}

    def _compiled(
        self, statement: ClauseElement, fields: frozenset[str] | None, sources: dict[str, str]
    ) -> Prepared:
        compiled: Any = statement.compile(
            dialect=self._sql_dialect,
            column_keys=None if fields is None else sorted(fields),
            for_executemany=True,
        )
        order = [sources.get(name, name) for name in compiled.positiontup]
        text = str(compiled).replace(_PERCENT, "%%")
        if len(order) == 1:
            return Prepared(text, lambda values: (values[order[0]],))
        return Prepared(text, itemgetter(*order))
