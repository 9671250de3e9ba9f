"""What the database says of a user's table: its columns and its unique indexes."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import inspect, text
from sqlalchemy.engine import Connection
from sqlalchemy.exc import NoSuchTableError

from scrapy_resume.store.engine import Database


@dataclass(frozen=True, slots=True)
class ColumnFacts:
    """A column; *counted* says that the database counts it up by itself."""

    nullable: bool
    counted: bool
    charset: str | None = None
    collation: str | None = None


def columns(conn: Connection, db: Database, table: str) -> dict[str, ColumnFacts]:
    """The columns of *table* in their order; empty if there is no such table."""
    if db.dialect == "sqlite":
        return _sqlite_columns(conn, table)
    rows = conn.execute(
        text(
            "SELECT column_name, is_nullable, extra, character_set_name, collation_name"
            " FROM information_schema.columns"
            " WHERE table_schema = DATABASE() AND table_name = :name ORDER BY ordinal_position"
        ),
        {"name": table},
    )
    return {
        name: ColumnFacts(nullable == "YES", "auto_increment" in extra, charset, collation)
        for name, nullable, extra, charset, collation in rows
    }


def unique_indexes(conn: Connection, db: Database, table: str) -> list[tuple[str, ...]]:
    """The columns of every unique index, the primary key among them; a prefix reads ``url(50)``."""
    if db.dialect == "sqlite":
        return _sqlite_indexes(conn, table)
    rows = conn.execute(
        text(
            "SELECT index_name, column_name, sub_part FROM information_schema.statistics"
            " WHERE table_schema = DATABASE() AND table_name = :name AND non_unique = 0"
            " ORDER BY index_name, seq_in_index"
        ),
        {"name": table},
    )
    indexes: dict[str, tuple[str, ...]] = {}
    for index, column, prefix in rows:
        part = f"{column}({prefix})" if prefix else str(column)
        indexes[index] = (*indexes.get(index, ()), part)
    return list(indexes.values())


def engine_of(conn: Connection, table: str) -> str | None:
    """The storage engine of a MySQL table; None for a view."""
    query = text(
        "SELECT engine FROM information_schema.tables"
        " WHERE table_schema = DATABASE() AND table_name = :name"
    )
    engine: str | None = conn.execute(query, {"name": table}).scalar()
    return engine


def _sqlite_columns(conn: Connection, table: str) -> dict[str, ColumnFacts]:
    inspector = inspect(conn)
    try:
        found = inspector.get_columns(table)
        primary = inspector.get_pk_constraint(table)["constrained_columns"]
    except NoSuchTableError:
        return {}
    rowid = primary[0] if len(primary) == 1 else None
    return {
        column["name"]: ColumnFacts(
            nullable=column["nullable"] and not _is_rowid(column, rowid),
            counted=_is_rowid(column, rowid),
        )
        for column in found
    }


def _is_rowid(column: object, rowid: str | None) -> bool:
    assert isinstance(column, dict)
    return column["name"] == rowid and str(column["type"]).upper() == "INTEGER"


def _sqlite_indexes(conn: Connection, table: str) -> list[tuple[str, ...]]:
    inspector = inspect(conn)
    primary = tuple(inspector.get_pk_constraint(table)["constrained_columns"])
    found = {tuple(one["column_names"]) for one in inspector.get_unique_constraints(table)}
    found |= {
        tuple(name or "?" for name in one["column_names"])
        for one in inspector.get_indexes(table)
        if one["unique"]
    }
    return [*([primary] if primary else []), *sorted(found)]
