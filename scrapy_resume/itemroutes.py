"""Which table an item goes to: what the spider declares, else ``RESUME_ITEM_TABLES``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scrapy.utils.misc import load_object

from scrapy_resume.exceptions import ConfigurationError
from scrapy_resume.store.items.table import ItemTable, is_table, item_table

_SETTING = "RESUME_ITEM_TABLES"
_ALLOWED = "an ItemTable, a SQLAlchemy Table, a class mapped to one"
_KEYS = "allowed is an item class, its dotted path, or '*' for all that is left"
_FIELDS = tuple(ItemTable.__dataclass_fields__)


class ItemRoutes:
    """The tables of a spider by item class; the nearest class decides.

    Raises ConfigurationError for a declaration that cannot be meant.
    """

    def __init__(self, declared: Any, setting: Mapping[Any, Any] | None = None) -> None:
        self._tables = _read(declared, setting)
        self._known: dict[type, ItemTable | None] = {}
        self._refuse_contradictions()

    @property
    def tables(self) -> list[ItemTable]:
        """Each table once."""
        return list({table.name: table for table in self._tables.values()}.values())

    def table(self, cls: type) -> ItemTable | None:
        """The table for items of *cls*; None: the product's own."""
        if cls not in self._known:
            found = (self._tables[one] for one in cls.__mro__ if one in self._tables)
            self._known[cls] = next(found, None)
        return self._known[cls]

    def _refuse_contradictions(self) -> None:
        tables: dict[str, ItemTable] = {}
        for table in self._tables.values():
            if tables.setdefault(table.name, table) != table:
                raise ConfigurationError(
                    f"the item table {table.name} is declared twice, and not alike"
                )


def _read(declared: Any, setting: Mapping[Any, Any] | None) -> dict[type, ItemTable]:
    if declared is None:
        return _by_class(_SETTING, setting or {})
    if is_table(declared):
        return {object: item_table(declared)}
    if isinstance(declared, Mapping):
        return _by_class("item_table", declared)
    raise ConfigurationError(
        f"item_table is {type(declared).__name__}; allowed is {_ALLOWED}, or a dict from item"
        " class to any of these"
    )


def _by_class(where: str, declared: Mapping[Any, Any]) -> dict[type, ItemTable]:
    return {
        _item_class(where, key): _declared(f"{where}[{key!r}]", value)
        for key, value in declared.items()
    }


def _item_class(where: str, key: Any) -> type:
    if key == "*":
        return object
    try:
        cls = load_object(key)
    except (ImportError, ValueError, NameError, TypeError) as error:
        raise ConfigurationError(
            f"{where} names {key!r}, which cannot be loaded: {error}; {_KEYS}"
        ) from error
    if not isinstance(cls, type):
        raise ConfigurationError(f"{where} names {key!r}, which is no class; {_KEYS}")
    return cls


def _declared(where: str, value: Any) -> ItemTable:
    if isinstance(value, str):
        return ItemTable(value)
    if isinstance(value, Mapping):
        return _of_fields(where, value)
    if is_table(value):
        return item_table(value)
    raise ConfigurationError(
        f"{where} is {type(value).__name__}; allowed is {_ALLOWED}, a table's name or a dict of"
        " an ItemTable's fields"
    )


def _of_fields(where: str, fields: Mapping[str, Any]) -> ItemTable:
    unknown = sorted(set(fields) - set(_FIELDS))
    if unknown or "name" not in fields:
        what = f"has no field {unknown[0]!r}" if unknown else "needs a name"
        raise ConfigurationError(
            f"{where} cannot be read: an ItemTable {what}; allowed are {', '.join(_FIELDS)}"
        )
    return ItemTable(**fields)
