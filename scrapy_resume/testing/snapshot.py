"""All the tables' rows as of one moment."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

from scrapy_resume.exceptions import ConfigurationError
from scrapy_resume.store.engine import Database
from scrapy_resume.store.errors import error_number

Served: TypeAlias = (
    Mapping[int, Iterable[str]]
    | Mapping[str, Mapping[int, Iterable[str]]]
    | Iterable[tuple[int, Iterable[str]]]
)
"""What a site serves: the item keys of each list page. Pages by number, if the numbers
mean the same in every shard; else a mapping of pages for each shard key."""

# What MySQL says of a table that was just made, or whose upgrade is under way.
_BEING_MADE = frozenset({1054, 1146, 1412, 1684})
_PATIENCE = 100

Row: TypeAlias = Mapping[str, Any]
Pages: TypeAlias = Mapping[int, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The rows of one moment.

    *items* are those of the product's own item table by (source, key). *keys* are those
    of a user's item table, as text; None if the own one is looked at.
    """

    tasks: Mapping[int, Row]
    shards: Mapping[int, Row]
    quarantine: tuple[Row, ...]
    operations: tuple[Row, ...]
    items: Mapping[tuple[str, str], Row]
    keys: frozenset[str] | None = None

    def has_item(self, source: str, key: str) -> bool:
        """Is the item stored?"""
        return (source, key) in self.items if self.keys is None else key in self.keys


@contextmanager
def opened(url: str, prefix: str) -> Iterator[Database]:
    """The database at *url*, with one connection, closed at the end."""
    db = Database.connect(url, prefix=prefix, max_connections=1)
    try:
        yield db
    finally:
        db.close()


def read_snapshot(db: Database, table: str | None = None, key: str = "key") -> Snapshot:
    """All rows as of one moment; none of tables that do not exist yet.

    *table* and its column *key* name a user's item table. Raises ConfigurationError if
    there is no such column.
    """
    for attempt in range(_PATIENCE):
        try:
            return _read(db, table, key)
        except Exception as error:
            if error_number(error) not in _BEING_MADE or attempt == _PATIENCE - 1:
                raise
            time.sleep(0.05)
    raise AssertionError("unreachable")


def _read(db: Database, table: str | None, key: str) -> Snapshot:
    # READ COMMITTED, which the package works at, gives each statement a moment of its own.
    level = {} if db.dialect == "sqlite" else {"isolation_level": "REPEATABLE READ"}
    engine = db.engine.execution_options(resume_begin="BEGIN", **level)
    tables = db.tables
    with engine.connect() as conn, conn.begin():
        known = set(conn.dialect.get_table_names(conn))

        def rows(one: Any) -> list[dict[str, Any]]:
            if one.name not in known:
                return []
            return [dict(row) for row in conn.execute(one.select()).mappings()]

        return Snapshot(
            tasks={row["id"]: row for row in rows(tables.task)},
            shards={row["id"]: row for row in rows(tables.task_shard)},
            quarantine=tuple(rows(tables.quarantine)),
            operations=tuple(rows(tables.operation)),
            items={(row["source"], row["item_key"]): row for row in rows(tables.item)},
            keys=None if table is None else _keys(db, conn, table, key),
        )


def _keys(db: Database, conn: Any, table: str, key: str) -> frozenset[str]:
    metadata = type(db.tables.metadata)()
    if table in conn.dialect.get_table_names(conn):
        metadata.reflect(conn, only=[table])
    if table not in metadata.tables or key not in metadata.tables[table].c:
        raise ConfigurationError(f"there is no table {table!r} with a column {key!r}")
    column = metadata.tables[table].c[key]
    query = metadata.tables[table].select().with_only_columns(column)
    return frozenset(str(value) for value in conn.execute(query).scalars())


def by_shard(served: Served | None) -> Mapping[str | None, Pages]:
    """*served* as pages by shard key; the key None stands for every shard."""
    if served is None:
        return {}
    pairs: list[tuple[Any, Any]] = (
        list(served.items()) if isinstance(served, Mapping) else list(served)
    )
    if pairs and all(isinstance(value, Mapping) for _, value in pairs):
        return {str(key): _pages(value.items()) for key, value in pairs}
    return {None: _pages(pairs)}


def _pages(pairs: Iterable[tuple[Any, Any]]) -> Pages:
    return {int(page): tuple(map(str, keys)) for page, keys in pairs}
