"""Is a user's table fit for upserts? Looked at when a crawl starts, before the first request.

An upsert is only as right as its unique index: with a nullable key every pass inserts
again, with a second unique index a row may overwrite an unrelated one, without an
engine that can undo, items and checkpoint disagree after a crash.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import inspect as inspect_database
from sqlalchemy import text
from sqlalchemy.engine import Connection
from sqlalchemy.exc import NoSuchTableError

from scrapy_resume.exceptions import ConfigurationError
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
    with db.read() as conn:
        return [finding for table in tables for finding in _look(conn, db, table)]


def require(db: Database, tables: Iterable[ItemTable]) -> list[Finding]:
    """Raise ConfigurationError if a table is unfit; returns the findings that only warn."""
    findings = inspect(db, tables)
    bad = [finding for finding in findings if finding.refuse]
    if bad:
        raise ConfigurationError("; ".join(map(str, bad)))
    return findings


def _look(conn: Connection, db: Database, table: ItemTable) -> Iterator[Finding]:
    inspector = inspect_database(conn)
    try:
        columns = {column["name"]: column for column in inspector.get_columns(table.name)}
    except NoSuchTableError:
        yield Finding(table.name, None, "it does not exist; create it first", True)
        return
    wanted = [*table.key, *_listed(table), *([table.newer_by] if table.newer_by else [])]
    missing = [name for name in wanted if name not in columns]
    yield from (Finding(table.name, name, "there is no such column", True) for name in missing)
    if not table.key:
        yield Finding(table.name, None, "its ItemTable names no key", True)
    if missing or not table.key:
        return
    primary = inspector.get_pk_constraint(table.name)["constrained_columns"]
    for name in table.key:
        counted = primary == [name] and str(columns[name]["type"]).upper() == "INTEGER"
        if columns[name]["nullable"] and not counted:
            yield Finding(table.name, name, "a key column must be NOT NULL", True)
    if db.dialect == "mysql":
        yield from _look_mysql(conn, table)
    yield from _look_indexes(table, primary, columns, _unique(inspector, conn, db, table.name))


def _listed(table: ItemTable) -> Sequence[str]:
    return () if table.update is None or table.update == "all" else table.update


def _unique(inspector: Any, conn: Connection, db: Database, name: str) -> list[list[str]]:
    """The columns of every unique index besides the primary key; a prefix reads ``url(50)``."""
    if db.dialect == "sqlite":
        both = [*inspector.get_unique_constraints(name), *inspector.get_indexes(name)]
        found = [one["column_names"] for one in both if one.get("unique", True)]
        return [list(columns) for columns in {tuple(columns) for columns in found}]
    rows = conn.execute(
        text(
            "SELECT index_name, column_name, sub_part FROM information_schema.statistics"
            " WHERE table_schema = DATABASE() AND table_name = :name AND non_unique = 0"
            " AND index_name <> 'PRIMARY' ORDER BY index_name, seq_in_index"
        ),
        {"name": name},
    )
    indexes: dict[str, list[str]] = {}
    for index, column, prefix in rows:
        part = f"{column}({prefix})" if prefix else str(column)
        indexes.setdefault(index, []).append(part)
    return list(indexes.values())


def _look_indexes(
    table: ItemTable, primary: list[str], columns: dict[str, Any], unique: list[list[str]]
) -> Iterator[Finding]:
    key = set(table.key)
    every = [*([primary] if primary else []), *unique]
    if not any(set(index) == key for index in every):
        names = ", ".join(table.key)
        yield Finding(table.name, None, f"no unique index is made of just ({names})", True)
    for index in every:
        counted = index is every[0] and primary and _counts_itself(primary, columns)
        if set(index) != key and not counted:
            names = ", ".join(index)
            why = (
                f"its unique index ({names}) may match an unrelated row; only the key may be unique"
            )
            yield Finding(table.name, None, why, True)


def _counts_itself(primary: list[str], columns: dict[str, Any]) -> bool:
    column = columns[primary[0]]
    return len(primary) == 1 and bool(
        column.get("autoincrement") is True or "INT" in str(column["type"]).upper()
    )


def _look_mysql(conn: Connection, table: ItemTable) -> Iterator[Finding]:
    name = {"name": table.name}
    engine = conn.execute(
        text(
            "SELECT engine FROM information_schema.tables"
            " WHERE table_schema = DATABASE() AND table_name = :name"
        ),
        name,
    ).scalar()
    if engine != "InnoDB":
        what = f"its engine is {engine}; only InnoDB can undo a transaction"
        yield Finding(table.name, None, what, True)
    rows = conn.execute(
        text(
            "SELECT column_name, character_set_name, collation_name FROM information_schema.columns"
            " WHERE table_schema = DATABASE() AND table_name = :name"
            " AND character_set_name IS NOT NULL"
        ),
        name,
    )
    for column, charset, collation in rows:
        if charset not in ("utf8mb4", "binary"):
            yield Finding(table.name, column, f"{charset} cannot hold every character", False)
        if column in table.key and "bin" not in collation:
            what = f"the collation {collation} takes different keys for one"
            yield Finding(table.name, column, what, False)
