"""From an item of any type to a row for its table.

Items are turned into rows the moment they arrive, so an item object that the spider
uses again, or changes afterwards, cannot change what is stored.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from datetime import date, datetime, timezone
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

from scrapy_resume.exceptions import ConfigurationError
from scrapy_resume.store.items import ItemTable, Row, default_row


class ItemRows:
    """Makes rows for one spider: its ``item_key``, ``make_item_key`` and ``item_table``."""

    def __init__(self, spider: Any) -> None:
        self._source: str = spider.name
        key = getattr(spider, "item_key", None)
        self._key = (key,) if isinstance(key, str) else tuple(key or ())
        self._make_key = _own_key_maker(spider)
        self._tables = _tables(getattr(spider, "item_table", None))

    @property
    def tables(self) -> list[ItemTable]:
        """The users' tables that items may go to."""
        return list(self._tables.values())

    def row(self, item: Any) -> Row:
        """The row of *item*.

        Raises TypeError or ValueError naming the field for a value that cannot be
        stored, ValueError for a missing key.
        """
        table = self._table_of(item)
        fields = item if type(item) is dict else _fields(item)
        if fields is None:
            raise TypeError(f"a pipeline handed on {type(item).__name__}, which is no item")
        if table is not None:
            return _table_row(table, fields)
        payload = json_text(fields)
        return default_row(self._source, self._item_key(item, fields, payload), payload)

    def key_text(self, item: Any) -> str | None:
        """The key of *item* as text. Raises like :meth:`row`."""
        row = self.row(item)
        return " / ".join(map(str, row.key if row.table is not None else row.key[1:]))

    def _table_of(self, item: Any) -> ItemTable | None:
        if not self._tables:
            return None
        for cls in type(item).__mro__:
            if cls in self._tables:
                return self._tables[cls]
        return self._tables.get(object)

    def _item_key(self, item: Any, fields: Mapping[str, Any], payload: str) -> str:
        made = self._make_key(item) if self._make_key is not None else None
        if made is not None:
            return str(made)
        if not self._key:
            return hashlib.sha256(payload.encode()).hexdigest()
        if len(self._key) == 1:
            return _key_part(fields, self._key[0])
        return json.dumps([_key_part(fields, name) for name in self._key], ensure_ascii=False)


def _own_key_maker(spider: Any) -> Any:
    """The spider's ``make_item_key``, unless it is the mixin's, which knows no key."""
    maker = getattr(spider, "make_item_key", None)
    inherited = getattr(maker, "__module__", "") == "scrapy_resume.mixins"
    return None if inherited else maker


def json_text(value: Any) -> str:
    """*value* as JSON text: sorted keys, non-ASCII kept; NaN and infinities are refused."""
    return _ENCODER.encode(value)


def column_value(name: str, value: Any) -> Any:
    """*value* as one a database driver takes: nested values become JSON text, zoned times
    UTC. Raises TypeError or ValueError naming the field."""
    if value is None or isinstance(value, (str, bool, int, bytes, Decimal)):
        return value.value if isinstance(value, Enum) else value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"field {name!r} is {value}, which no table can hold")
        return value
    if isinstance(value, datetime):
        return value.astimezone(timezone.utc).replace(tzinfo=None) if value.tzinfo else value
    if isinstance(value, date):
        return value
    if isinstance(value, (Mapping, list, tuple, set, frozenset)):
        return json_text(value)
    plain = _plain(value)
    return json_text(plain) if isinstance(plain, dict) else plain


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, (datetime, date)):
        return value.isoformat()
    if isinstance(value, (Decimal, UUID)):
        return str(value)
    if isinstance(value, (set, frozenset)):
        return sorted(value, key=repr)
    fields = _fields(value)
    if fields is not None:
        return fields
    raise TypeError(f"{type(value).__name__} values cannot be stored: {str(value)[:50]!r}")


def _fields(item: Any) -> dict[str, Any] | None:
    """The fields of an item of any type; None for what is no item."""
    from itemadapter import ItemAdapter  # brings pydantic along where that is installed

    return ItemAdapter(item).asdict() if ItemAdapter.is_item(item) else None


def _key_part(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    if value is None:
        raise ValueError(f"the key field {name!r} is missing or None")
    return value if isinstance(value, str) else str(value)


def _table_row(table: ItemTable, fields: Mapping[str, Any]) -> Row:
    values = {name: column_value(name, value) for name, value in fields.items()}
    for name in table.key:
        if values.get(name) is None:
            raise ValueError(f"the key field {name!r} is missing or None")
    return Row(table.name, tuple(values[name] for name in table.key), values)


def _tables(declared: Any) -> dict[type, ItemTable]:
    if declared is None:
        return {}
    if isinstance(declared, ItemTable):
        return {object: declared}
    if isinstance(declared, Mapping) and all(isinstance(t, ItemTable) for t in declared.values()):
        return dict(declared)
    raise ConfigurationError(
        f"item_table is {type(declared).__name__}; allowed is an ItemTable or a dict from item"
        " class to ItemTable"
    )


_ENCODER = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"), default=_plain
)
