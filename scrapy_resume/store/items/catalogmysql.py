"""The catalogue of MySQL and MariaDB, read from ``information_schema``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from sqlalchemy import text
from sqlalchemy.engine import Connection

from scrapy_resume.store.items.tablefacts import ColumnFacts, TableFacts, Trigger, UniqueIndex

UNDOABLE = frozenset({"innodb", "rocksdb", "tokudb", "ndbcluster", "ndb"})
"""Storage engines whose writes a ROLLBACK undoes, in lower case."""

_COMPUTED = re.compile(r"(?i)\b(virtual|stored|persistent)\b")
_JSON_CHECK = re.compile(r"(?i)json_valid\(`((?:[^`]|``)+)`\)")


def look(conn: Connection, table: str) -> TableFacts | None:
    """The facts of *table* as it is now; None if there is no such table."""
    query = "SELECT engine, table_type, auto_increment FROM information_schema.tables"
    found = _rows(conn, query + " WHERE table_schema = DATABASE() AND table_name = :name", table)
    if not found:
        return None
    ((engine, kind, next_id),) = found
    references, checked = _constraints(conn, table)
    return TableFacts(
        table,
        {column.name: column for column in _columns(conn, table)},
        tuple(_unique(conn, table)),
        is_view="VIEW" in kind,
        engine=engine,
        triggers=tuple(_triggers(conn, table)),
        references=references,
        checked=checked,
        next_id=next_id,
    )


def forgetful(conn: Connection) -> dict[str, str]:
    """The tables of this database that a ROLLBACK does not undo, with their engines."""
    query = "SELECT table_name, engine FROM information_schema.tables"
    query += " WHERE table_schema = DATABASE() AND engine IS NOT NULL"
    return {name: engine for name, engine in _rows(conn, query) if not undoable(engine)}


def undoable(engine: str | None) -> bool:
    """Whether a ROLLBACK undoes what was written into tables of *engine*."""
    return (engine or "").lower() in UNDOABLE


def _rows(conn: Connection, query: str, table: str | None = None) -> list[Any]:
    return list(conn.execute(text(query), {} if table is None else {"name": table}))


def _columns(conn: Connection, table: str) -> Iterable[ColumnFacts]:
    query = (
        "SELECT column_name, column_type, is_nullable, column_default, extra,"
        " character_set_name, collation_name FROM information_schema.columns"
        " WHERE table_schema = DATABASE() AND table_name = :name ORDER BY ordinal_position"
    )
    json = _json_columns(conn, table)
    for name, kind, nullable, default, extra, charset, collation in _rows(conn, query, table):
        yield ColumnFacts(
            name,
            "json" if name in json else str(kind),
            nullable == "YES",
            None if default is None else str(default),
            "auto_increment" in extra.lower(),
            bool(_COMPUTED.search(extra)),
            charset,
            collation,
        )


def _json_columns(conn: Connection, table: str) -> set[str]:
    """MariaDB's JSON columns: texts with a CHECK."""
    if not getattr(conn.dialect, "is_mariadb", False):
        return set()
    query = "SELECT check_clause FROM information_schema.check_constraints"
    query += " WHERE constraint_schema = DATABASE() AND table_name = :name"
    clauses = (_JSON_CHECK.fullmatch(clause) for (clause,) in _rows(conn, query, table))
    return {found[1].replace("``", "`") for found in clauses if found}


def _unique(conn: Connection, table: str) -> Iterable[UniqueIndex]:
    query = (
        "SELECT index_name, column_name, sub_part FROM information_schema.statistics"
        " WHERE table_schema = DATABASE() AND table_name = :name AND non_unique = 0"
        " ORDER BY index_name <> 'PRIMARY', index_name, seq_in_index"
    )
    parts: dict[str, list[tuple[str, int | None]]] = {}
    for index, column, prefix in _rows(conn, query, table):
        parts.setdefault(index, []).append((column or "?", prefix))
    for index, columns in parts.items():
        prefixes = {name: length for name, length in columns if length}
        yield UniqueIndex(index, tuple(name for name, _ in columns), prefixes)


def _triggers(conn: Connection, table: str) -> Iterable[Trigger]:
    query = "SELECT trigger_name, action_statement FROM information_schema.triggers"
    query += " WHERE event_object_schema = DATABASE() AND event_object_table = :name"
    query += " AND event_manipulation <> 'DELETE' ORDER BY trigger_name"
    return (Trigger(name, body) for name, body in _rows(conn, query, table))


def _constraints(conn: Connection, table: str) -> tuple[frozenset[str], bool]:
    query = "SELECT DISTINCT referenced_table_name FROM information_schema.referential_constraints"
    query += " WHERE constraint_schema = DATABASE() AND table_name = :name"
    references = frozenset(name for (name,) in _rows(conn, query, table))
    query = "SELECT COUNT(*) FROM information_schema.table_constraints"
    query += " WHERE table_schema = DATABASE() AND table_name = :name AND constraint_type = 'CHECK'"
    ((checks,),) = _rows(conn, query, table)
    return references, bool(references or checks)
