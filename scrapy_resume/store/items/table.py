"""Item tables and rows as values; nothing here knows a database."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from sqlalchemy import Table, UniqueConstraint

from scrapy_resume.exceptions import ConfigurationError

Values = dict[str, Any]
OnUnknownField = Literal["stop", "ignore", "quarantine"]

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement
    from sqlalchemy.orm import QueryableAttribute

    Column = str | ColumnElement[Any] | QueryableAttribute[Any]
    Columns = Column | Sequence[Column]

_ON_UNKNOWN_FIELD = ("stop", "ignore", "quarantine")


@dataclass(frozen=True)
class ItemTable:
    """A table of yours that items are upserted into.

    *name* may also be a SQLAlchemy ``Table`` or a mapped class. *key* names the columns of
    its one unique index; a ``Table`` or mapped class knows them. *update* says what an item
    changes in a row that is there: ``"all"`` its fields, a list of them, or None for
    nothing. With *newer_by*, a column such as ``scraped_at``, it changes nothing
    unless its value there is at least as high; this column goes along with a list.
    *on_unknown_field* says what a field does that the table has no column for: stop the
    crawl before its page is committed, be ignored and counted, or put its item into
    quarantine.

    Raises ConfigurationError for what can be no table.
    """

    name: str
    key: Sequence[str] = ()
    update: Literal["all"] | Sequence[str] | None = "all"
    newer_by: str | None = None
    on_unknown_field: OnUnknownField = "stop"

    if TYPE_CHECKING:  # what may be given; the fields hold names

        def __init__(
            self,
            name: str | Table | type[Any],
            key: Columns = (),
            update: Columns | None = "all",
            newer_by: Column | None = None,
            on_unknown_field: OnUnknownField = "stop",
        ) -> None: ...

    def __post_init__(self) -> None:
        given: Any = self.name
        table = given if isinstance(given, str) else _mapped(given)
        # One column may be written without its brackets, and a column may be given itself.
        key = _names("key", self.key) or (() if isinstance(table, str) else _key_of(table))
        whole = self.update is None or (isinstance(self.update, str) and self.update == "all")
        values = {
            "name": str(table if isinstance(table, str) else table.name),
            "key": key,
            "update": self.update if whole else _names("update", self.update),
            "newer_by": None if self.newer_by is None else _names("newer_by", self.newer_by)[0],
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)
        if not self.name:
            raise ConfigurationError("an ItemTable has an empty name; allowed is a table's name")
        if self.on_unknown_field not in _ON_UNKNOWN_FIELD:
            raise ConfigurationError(
                f"on_unknown_field of the item table {self.name} is {self.on_unknown_field!r};"
                f" allowed is one of {', '.join(_ON_UNKNOWN_FIELD)}"
            )


def is_table(declared: Any) -> bool:
    """Whether *declared* is a table by itself: an ItemTable, a SQLAlchemy one, a mapped class."""
    return isinstance(declared, (ItemTable, Table)) or isinstance(
        getattr(declared, "__table__", None), Table
    )


def item_table(declared: Any) -> ItemTable:
    """*declared* as an ItemTable. Raises ConfigurationError for what is none."""
    return declared if isinstance(declared, ItemTable) else ItemTable(declared)


def _mapped(given: Any) -> Table:
    table = getattr(given, "__table__", given)
    if not isinstance(table, Table):
        raise ConfigurationError(
            f"the name of an ItemTable is {given!r}; allowed is text, a SQLAlchemy Table or a"
            " class mapped to one"
        )
    if table.schema is not None:
        raise ConfigurationError(
            f"the item table {table.name} belongs to the schema {table.schema}; it must be in"
            " the database of the checkpoints and name no schema"
        )
    return table


def _key_of(table: Table) -> tuple[str, ...]:
    """The primary key; the only unique constraint if that key is a counted id, or none."""
    unique: list[Any] = [
        one.columns for one in table.constraints if isinstance(one, UniqueConstraint)
    ]
    unique += [index.columns for index in table.indexes if index.unique]
    primary = list(table.primary_key.columns)
    alone = len(unique) == 1 and (not primary or table.autoincrement_column is not None)
    return _names("key", unique[0] if alone else primary)


def _names(field: str, given: Any) -> tuple[str, ...]:
    """The names of columns, given as one or several, each as text or as a column."""
    one = isinstance(given, str) or not isinstance(given, Iterable)
    names = [getattr(column, "name", column) for column in ([given] if one else given)]
    for name in names:
        if not isinstance(name, str):
            raise ConfigurationError(
                f"{field} of an ItemTable is {given!r}; allowed are names of columns"
            )
    return tuple(map(str, names))


@dataclass(frozen=True, slots=True)
class Row:
    """One item as columns: *table* of None is the default one, *key* its key values in order."""

    table: str | None
    key: tuple[Any, ...]
    values: Values


@dataclass(frozen=True, slots=True)
class Rejection:
    """A row that cannot be stored: its place among the rows written, and why.

    *column* is the column at fault and *value* its value, shortened, where they are known.
    """

    index: int
    error_class: str
    error: str
    column: str | None = None
    value: str | None = None


def digest_key(payload: str) -> str:
    """The key of an item whose spider names none: it tells apart what differs in anything."""
    return hashlib.sha256(payload.encode()).hexdigest()


def default_row(source: str, item_key: str, payload: str) -> Row:
    """A row of the default item table, of no page yet; *payload* is JSON."""
    values: Values = {
        "source": source,
        "item_key": item_key,
        "payload": payload,
        "task_id": None,
        "shard_no": None,
        "page": None,
    }
    return Row(None, (source, item_key), values)
