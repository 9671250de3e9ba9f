"""Which index serves a query, said outright where the optimiser may choose a worse one.

With few rows, or old statistics, it may prefer an index that cannot keep the wanted
order, and then reads, sorts and locks everything. SQLite never sees statistics here.
"""

from __future__ import annotations

from typing import Any, TypeVar

from sqlalchemy import Select, Table
from sqlalchemy.dialects.sqlite.base import SQLiteCompiler
from sqlalchemy.engine import Engine

Q = TypeVar("Q", bound=Select[Any])


def by_index(query: Q, table: Table, index: str) -> Q:
    """*query*, served by the index of *table* that is named after it and *index*."""
    name = f"{table.name}_{index}"
    query = query.with_hint(table, f"FORCE INDEX ({name})", "mysql")
    return query.with_hint(table, f"INDEXED BY {name}", "sqlite")


def by_primary_key(query: Q, table: Table) -> Q:
    """*query*, served by the primary key of *table*."""
    query = query.with_hint(table, "FORCE INDEX (PRIMARY)", "mysql")
    return query.with_hint(table, "NOT INDEXED", "sqlite")


def enable(engine: Engine) -> None:
    """Have SQLAlchemy write such hints for SQLite too, which it leaves out by itself."""
    if engine.dialect.name == "sqlite":
        engine.dialect.statement_compiler = _HintingCompiler


class _HintingCompiler(SQLiteCompiler):
    def get_from_hint_text(self, table: Any, text: str | None) -> str | None:
        return text
