"""Item tables and rows as values; nothing here knows a database."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

Values = dict[str, Any]


@dataclass(frozen=True)
class ItemTable:
    """A table of yours that items are upserted into.

    *key* names the columns of its one unique index. *update* says what an item
    changes in a row that is there: ``"all"`` its fields, a list of them, or None for
    nothing. With *newer_by*, a column such as ``scraped_at``, it changes nothing
    unless its value there is at least as high.
    """

    name: str
    key: Sequence[str]
    update: Literal["all"] | Sequence[str] | None = "all"
    newer_by: str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.key, str):  # one column, written without its brackets
            object.__setattr__(self, "key", (self.key,))


@dataclass(frozen=True, slots=True)
class Row:
    """One item as columns: *table* of None is the default one, *key* its key values in order."""

    table: str | None
    key: tuple[Any, ...]
    values: Values


@dataclass(frozen=True, slots=True)
class Rejection:
    """A row that cannot be stored: its place among the rows written, and why."""

    index: int
    error_class: str
    error: str


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
