"""From an item of any type to a row for its table.

Items are turned into rows the moment they arrive, so an item object that the spider
uses again, or changes afterwards, cannot change what is stored.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any

from scrapy_resume.itemfields import fields_of, given
from scrapy_resume.itemroutes import ItemRoutes
from scrapy_resume.itemvalues import BadField, column_values, composed, payload
from scrapy_resume.refuseditem import RefusedItem
from scrapy_resume.store.items import ItemTable, Row, default_row
from scrapy_resume.store.items.rowerrors import shortened
from scrapy_resume.store.items.table import digest_key

if TYPE_CHECKING:
    from scrapy_resume.settings import ResumeSettings


class ItemRows:
    """Makes rows for one spider: its ``item_key``, ``make_item_key`` and ``item_table``.

    Raises ConfigurationError for a declaration of tables that cannot be meant.
    """

    def __init__(self, spider: Any, settings: ResumeSettings | None = None) -> None:
        self._source: str = spider.name
        key = getattr(spider, "item_key", None)
        self._key = (key,) if isinstance(key, str) else tuple(key or ())
        self._make_key = _own_key_maker(spider)
        declared = settings.item_tables if settings is not None else None
        self._routes = ItemRoutes(getattr(spider, "item_table", None), declared)
        prefix = settings.table_prefix if settings is not None else "resume_"
        self._default = f"{prefix}item"
        self._compose = settings is not None and settings.normalize_keys
        self._leave_out = settings.leave_out if settings is not None else "unset"

    @property
    def tables(self) -> list[ItemTable]:
        """The users' tables that items may go to."""
        return self._routes.tables

    def row(self, item: Any) -> Row:
        """The row of *item*.

        Raises RefusedItem for a value that cannot be stored and for a missing key,
        TypeError for what is no item.
        """
        table, fields = self._routes.table(type(item)), self._fields(item)
        try:
            return self._row(item, table, fields)
        except (BadField, _NoKey) as why:
            raise self._refused(why, table, fields) from None

    def _row(self, item: Any, table: ItemTable | None, fields: Mapping[str, Any]) -> Row:
        if table is not None:
            values = column_values(fields)
            key = self._key_values(table, values)
            if self._compose:
                values.update(zip(table.key, key, strict=True))
            return Row(table.name, key, values)
        text = payload(fields)
        key_text = self._item_key(item, fields)
        return default_row(self._source, digest_key(text) if key_text is None else key_text, text)

    def _refused(
        self, why: BadField, table: ItemTable | None, fields: Mapping[str, Any]
    ) -> RefusedItem:
        word = "NoKey" if isinstance(why, _NoKey) else "Unfit"
        name = self._default if table is None else table.name
        shown = None if why.field is None else _shown(why.field, fields.get(why.field))
        return RefusedItem(word, why.reason, table=name, column=why.field, value=shown)

    def key_text(self, item: Any) -> str:
        """The key of *item* as text, also of one that cannot be stored.

        Raises TypeError or ValueError if there is none.
        """
        table, fields = self._routes.table(type(item)), self._fields(item)
        if table is None:
            key = self._item_key(item, fields)
            return digest_key(payload(fields)) if key is None else key
        parts = column_values({name: fields[name] for name in table.key if name in fields})
        return " / ".join(map(str, self._key_values(table, parts)))

    def _fields(self, item: Any) -> Mapping[str, Any]:
        fields = fields_of(item)
        if fields is None:
            raise TypeError(f"a pipeline handed on {type(item).__name__}, which is no item")
        return fields if type(item) is dict else given(item, fields, self._leave_out)

    def _key_values(self, table: ItemTable, values: Mapping[str, Any]) -> tuple[Any, ...]:
        key = tuple([values.get(name) for name in table.key])
        if None in key:
            missing = table.key[key.index(None)]
            raise _NoKey(missing)
        try:
            hash(key)
        except TypeError as error:  # of Decimal's NaNs one has no hash
            wrong = next(name for name in table.key if not _is_hashable(values[name]))
            raise BadField(wrong, f"a key field cannot tell rows apart: {error}") from None
        return tuple(map(composed, key)) if self._compose else key

    def _item_key(self, item: Any, fields: Mapping[str, Any]) -> str | None:
        """The key for the default table; None: the spider names none."""
        made = self._make_key(item) if self._make_key is not None else None
        if made is not None:
            key = str(made)
        elif not self._key:
            return None
        elif len(self._key) == 1:
            key = _key_part(fields, self._key[0])
        else:
            parts = [_key_part(fields, name) for name in self._key]
            key = json.dumps(parts, ensure_ascii=False)
        return composed(key) if self._compose else key


class _NoKey(BadField):
    """The key lacks *field*."""

    def __init__(self, field: str) -> None:
        super().__init__(field, f"the key field {field!r} is missing or None")


def _shown(field: str, value: Any) -> str | None:
    """*value* for a record; None for what has more in it than its field's name tells of."""
    if value is None or isinstance(value, (Mapping, list, tuple, set, frozenset)):
        return None
    try:
        return shortened(field, value)
    except Exception:  # the __str__ of an object may do anything
        return None


def _is_hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def _own_key_maker(spider: Any) -> Any:
    """The spider's ``make_item_key``, unless it is the mixin's, which knows no key."""
    maker = getattr(spider, "make_item_key", None)
    inherited = getattr(maker, "__module__", "") == "scrapy_resume.mixins"
    return None if inherited else maker


def _key_part(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    if value is None:
        raise _NoKey(name)
    if isinstance(value, Enum):
        value = value.value
    return value if isinstance(value, str) else str(value)
