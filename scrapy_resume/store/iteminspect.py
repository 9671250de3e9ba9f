"""Is a user's table fit for upserts? Looked at when a crawl starts, before the first request.

An upsert is only as right as its unique index: with a nullable key every pass inserts
again, with a second unique index a row may overwrite an unrelated one, without an
engine that can undo, items and checkpoint disagree after a crash.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy.engine import Connection

from scrapy_resume.exceptions import ConfigurationError
from scrapy_resume.store import catalog
from scrapy_resume.store.catalog import ColumnFacts
from scrapy_resume.store.engine import Database
from scrapy_resume.store.itemtable import ItemTable


@dataclass(frozen=True, slots=True)
class Finding:
    """Something about a table; *refuse* says that items cannot go there."""

    table: str
    column: str | None
    text: str
    refuse: bool

    def __str__(self) -> str:
        column = f", column {self.column}" if self.column else ""
        return f"table {self.table}{column}: {self.text}"


def inspect(db: Database, tables: Iterable[ItemTable]) -> list[Finding]:
    """Compare the real tables with what *tables* declare."""
    every = list(tables)
    return db.look(lambda conn: [one for table in every for one in _look(conn, db, table)])


def require(db: Database, tables: Iterable[ItemTable]) -> list[Finding]:
    """Raise ConfigurationError if a table is unfit; returns the findings that only warn."""
    findings = inspect(db, tables)
    bad = [finding for finding in findings if finding.refuse]
    if bad:
        raise ConfigurationError("; ".join(map(str, bad)))
    return findings


def _look(conn: Connection, db: Database, table: ItemTable) -> Iterator[Finding]:
    columns = catalog.columns(conn, db, table.name)
    if not columns:
        yield Finding(table.name, None, "it does not exist; create it first", True)
        return
    if not table.key:
        yield Finding(table.name, None, "its ItemTable names no key", True)
    missing = [name for name in _named(table) if name not in columns]
    yield from (Finding(table.name, name, "there is no such column", True) for name in missing)
    if missing or not table.key:
        return
    for name in table.key:
        if columns[name].nullable:
            yield Finding(table.name, name, "a key column must be NOT NULL", True)
    yield from _look_indexes(table, columns, catalog.unique_indexes(conn, db, table.name))
    if db.dialect == "mysql":
        engine = catalog.engine_of(conn, table.name)
        if engine != "InnoDB":
            what = f"its engine is {engine}; only InnoDB can undo a transaction"
            yield Finding(table.name, None, what, True)
        yield from _look_texts(table, columns)


def _named(table: ItemTable) -> list[str]:
    update = table.update
    listed: Sequence[str] = () if update is None or isinstance(update, str) else update
    return [*table.key, *listed, *([table.newer_by] if table.newer_by else [])]


def _look_indexes(
    table: ItemTable, columns: Mapping[str, ColumnFacts], indexes: list[tuple[str, ...]]
) -> Iterator[Finding]:
    key = set(table.key)
    if not any(set(index) == key for index in indexes):
        names = ", ".join(table.key)
        yield Finding(table.name, None, f"no unique index is made of just ({names})", True)
    for index in indexes:
        counted = len(index) == 1 and index[0] in columns and columns[index[0]].counted
        if set(index) != key and not counted:
            names = ", ".join(index)
            what = f"its unique index ({names}) may match an unrelated row; only the key may be one"
            yield Finding(table.name, None, what, True)


def _look_texts(table: ItemTable, columns: Mapping[str, ColumnFacts]) -> Iterator[Finding]:
    for name, column in columns.items():
        if column.charset not in (None, "utf8mb4", "binary"):
            what = f"{column.charset} cannot hold every character"
            yield Finding(table.name, name, what, False)
        if name in table.key and column.collation and "bin" not in column.collation:
            what = f"the collation {column.collation} takes different keys for one"
            yield Finding(table.name, name, what, False)
