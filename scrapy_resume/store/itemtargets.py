"""A table that items go to: its columns, its rule for meeting rows, its statements."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from sqlalchemy import Column, MetaData, Table
from sqlalchemy.engine import Connection
from sqlalchemy.sql.dml import Insert
from sqlalchemy.types import NullType

from scrapy_resume.exceptions import ConfigurationError
from scrapy_resume.store import catalog
from scrapy_resume.store.engine import Database
from scrapy_resume.store.itemtable import ItemTable, Values
from scrapy_resume.store.upserts import Rule, upsert


@dataclass(frozen=True, slots=True)
class Prepared:
    """A statement as the driver takes it, and how a row's values are put in its order.

    It goes to the driver as it is: SQLAlchemy's own way of handing over many rows takes
    longer than storing them.
    """

    text: str
    parameters: Callable[[Values], Any]


class Target:
    """A table, the rule for meeting rows, and its statements by set of fields."""

    def __init__(self, db: Database, table: Table, declared: ItemTable) -> None:
        self.table, self.declared = table, declared
        self.is_default = table is db.tables.item
        self.plain = db.dialect != "sqlite"
        self._dialect = db.dialect
        self._sql_dialect = db.engine.dialect
        self._statements: dict[frozenset[str], Prepared] = {}
        update = declared.update
        listed = () if update is None or update == "all" else update
        for name in (*declared.key, *listed, *filter(None, [declared.newer_by])):
            self._known(name)

    def statement(self, fields: frozenset[str]) -> Prepared:
        """The upsert of rows that have exactly *fields*; a connection must have been open."""
        statement = self._statements.get(fields)
        if statement is None:
            statement = self._statements[fields] = self._prepare(self._build(fields), fields)
        return statement

    def updated(self, fields: Iterable[str]) -> tuple[str, ...]:
        """Which of *fields* change a row that is there."""
        update = self.declared.update
        if update is None:
            return ()
        wanted = set(fields) - set(self.declared.key)
        if update != "all":
            wanted &= set(update)
        return tuple(column.name for column in self.table.columns if column.name in wanted)

    def meet(self, before: Values, after: Values) -> Values:
        """What a row holds once *after* was stored over *before*."""
        guard = self.declared.newer_by
        if guard in before and guard in after and not _at_least(after[guard], before[guard]):
            return before
        return before | {name: after[name] for name in self.updated(after)}

    def _prepare(self, statement: Insert, fields: frozenset[str]) -> Prepared:
        compiled: Any = statement.compile(
            dialect=self._sql_dialect, column_keys=sorted(fields), for_executemany=True
        )
        order = list(compiled.positiontup)
        if len(order) == 1:
            return Prepared(str(compiled), lambda values: (values[order[0]],))
        return Prepared(str(compiled), itemgetter(*order))

    def _build(self, fields: frozenset[str]) -> Insert:
        for name in sorted(fields):
            self._known(name)
        guard = self.declared.newer_by
        newer_by = guard if guard in fields else None
        rule = Rule(tuple(self.declared.key), self.updated(fields), newer_by)
        return upsert(self._dialect, self.table, rule)

    def _known(self, name: str) -> None:
        if name not in self.table.columns:
            raise ConfigurationError(f"the item table {self.table.name} has no column {name}")
        if self._dialect == "mysql" and "%" in name:  # SQLAlchemy escapes it twice in an upsert
            raise ConfigurationError(
                f"the item table {self.table.name} has the column {name}; a column with a '%' in"
                " its name cannot be written on MySQL"
            )


def default_target(db: Database) -> Target:
    """The product's own item table: everything is updated but the time it was first seen."""
    columns = [column.name for column in db.tables.item.columns]
    update = [name for name in columns if name not in ("source", "item_key", "first_seen_at")]
    declared = ItemTable(db.tables.item.name, ("source", "item_key"), update)
    return Target(db, db.tables.item, declared)


def reflect(conn: Connection, db: Database, declared: ItemTable) -> Target:
    """Look a user's table up. Raises ConfigurationError if it is not as *declared*."""
    names = catalog.columns(conn, db, declared.name)
    if not names:
        raise ConfigurationError(
            f"the item table {declared.name} does not exist at {db.redacted_url}; create it first"
        )
    # Values go to the driver as they are: reflected types would convert them.
    columns = [Column(name, NullType()) for name in names]
    return Target(db, Table(declared.name, MetaData(), *columns), declared)


def _at_least(new: Any, old: Any) -> bool:
    if old is None:
        return True
    try:
        return new is not None and bool(new >= old)
    except TypeError:  # of two types: the database will say which it takes
        return True
