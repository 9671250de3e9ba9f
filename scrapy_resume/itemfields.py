"""The fields that an item of any type has, and which of them count as given.

A dict or a scrapy Item has the fields that were put into it. An object of a class has
every field, also those that nobody set: ``RESUME_LEAVE_OUT`` decides about these.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any


def fields_of(item: Any) -> Mapping[str, Any] | None:
    """The fields of an item of any type, not deeper; None for what is no item."""
    if type(item) is dict:
        return item
    from itemadapter import ItemAdapter  # brings pydantic along where that is installed

    if not ItemAdapter.is_item(item):
        return None
    fields = dict(ItemAdapter(item))
    if _is_model(type(item)) and (more := getattr(item, "model_extra", None)):
        fields.update(more)  # what it took beyond its fields
    return fields


def given(item: Any, fields: Mapping[str, Any], leave_out: str) -> Mapping[str, Any]:
    """*fields* of *item* without those that ``RESUME_LEAVE_OUT`` leaves out.

    ``unset``: None in a field that a pydantic model says nobody set. ``defaults``: every
    field that holds its default. ``nothing``: none.
    """
    if leave_out == "nothing" or isinstance(item, Mapping):
        return fields
    if _is_model(type(item)):
        known = item.model_fields_set if hasattr(item, "model_fields_set") else item.__fields_set__
        every = leave_out == "defaults"
        return {n: v for n, v in fields.items() if n in known or not (every or v is None)}
    if leave_out == "unset":
        return fields
    cls: Any = type(item)
    defaults = _defaults(cls)
    return {n: v for n, v in fields.items() if n not in defaults or not _same(v, defaults[n]())}


def _is_model(cls: type) -> bool:
    """Whether *cls* is a model of pydantic, of its first version too."""
    return hasattr(cls, "model_fields_set") or hasattr(cls, "__fields_set__")


def _same(value: Any, default: Any) -> bool:
    return type(value) is type(default) and bool(value is default or value == default)


@lru_cache(maxsize=256)
def _defaults(cls: type) -> dict[str, Callable[[], Any]]:
    """What makes the default of each field of a dataclass or attrs class that has one."""
    if dataclasses.is_dataclass(cls):
        return {one.name: make for one in dataclasses.fields(cls) if (make := _maker(one))}
    made = {one.name: one.default for one in getattr(cls, "__attrs_attrs__", ())}
    return {name: make for name, default in made.items() if (make := _attrs_maker(default))}


def _maker(field: dataclasses.Field[Any]) -> Callable[[], Any] | None:
    if field.default is not dataclasses.MISSING:
        return _always(field.default)
    factory = field.default_factory
    return None if factory is dataclasses.MISSING else factory


def _attrs_maker(default: Any) -> Callable[[], Any] | None:
    attr = sys.modules["attr"]  # which made the class
    if default is attr.NOTHING:
        return None
    if not isinstance(default, attr.Factory):
        return _always(default)
    factory: Callable[[], Any] = default.factory
    return None if default.takes_self else factory


def _always(value: Any) -> Callable[[], Any]:
    return lambda: value
