"""The catalogue of SQLite, read by its PRAGMAs."""

from __future__ import annotations

import re
from typing import Any

from sqlalchemy.engine import Connection

from scrapy_resume.store.items.tablefacts import ColumnFacts, TableFacts, Trigger, UniqueIndex

_VIRTUAL, _STORED = 2, 3  # of a column's "hidden"
_CHECK = re.compile(r"(?i)\bCHECK\s*\(")
_NO_ROWID = re.compile(r"(?i)\bWITHOUT\s+ROWID\b")


def look(conn: Connection, table: str) -> TableFacts | None:
    """The facts of *table* as it is now; None if there is no such table."""
    query = "SELECT type, name, sql FROM sqlite_master WHERE type IN ('table', 'view')"
    query += " AND name = ? COLLATE NOCASE"
    found = _rows(conn, query, table)
    if not found:
        return None
    ((kind, name, made_by),) = found
    unique, collations = _unique(conn, name)
    columns, primary = _columns(conn, name, made_by, collations)
    query = 'SELECT DISTINCT "table" FROM pragma_foreign_key_list(?)'
    references = frozenset(parent for (parent,) in _rows(conn, query, name))
    query = "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND tbl_name = ?"
    return TableFacts(
        table,
        columns,
        (*primary, *unique),
        is_view=kind == "view",
        triggers=tuple(Trigger(*row) for row in _rows(conn, query + " ORDER BY name", name)),
        references=references,
        checked=bool(references or _CHECK.search(made_by or "")),
    )


def _rows(conn: Connection, query: str, name: str) -> list[Any]:
    return list(conn.exec_driver_sql(query, (name,)))


def _columns(
    conn: Connection, table: str, made_by: str | None, collations: dict[str, str]
) -> tuple[dict[str, ColumnFacts], list[UniqueIndex]]:
    """The columns, and the primary key if it is the row's number, which has no index."""
    query = 'SELECT name, type, "notnull", dflt_value, pk, hidden FROM pragma_table_xinfo(?)'
    found = _rows(conn, query, table)
    keys = [name for name, _, _, _, pk, _ in found if pk]
    numbered = not _NO_ROWID.search((made_by or "").rpartition(")")[2])
    columns: dict[str, ColumnFacts] = {}
    for name, kind, notnull, default, pk, hidden in found:
        counted = bool(numbered and pk and len(keys) == 1 and kind.upper() == "INTEGER")
        columns[name] = ColumnFacts(
            name,
            kind,
            not (notnull or counted or (pk and not numbered)),
            default,
            counted,
            hidden in (_VIRTUAL, _STORED),
            None,
            collations.get(name),
        )
    if any(column.counted for column in columns.values()):
        return columns, [UniqueIndex("PRIMARY", tuple(keys), fixed=True)]
    return columns, []


def _unique(conn: Connection, table: str) -> tuple[list[UniqueIndex], dict[str, str]]:
    """The unique indexes, and the collations of their columns."""
    query = 'SELECT name, origin, partial FROM pragma_index_list(?) WHERE "unique" ORDER BY name'
    indexes: list[UniqueIndex] = []
    collations: dict[str, str] = {}
    for name, origin, partial in _rows(conn, query, table):
        parts = _rows(conn, "SELECT name, coll FROM pragma_index_xinfo(?) WHERE key", name)
        names = tuple(part or "?" for part, _ in parts)
        fixed = origin != "c"
        indexes.append(UniqueIndex(name, names, partial=bool(partial), fixed=fixed))
        collations |= {part: coll for part, coll in parts if part and coll != "BINARY"}
    return indexes, collations
