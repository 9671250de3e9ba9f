"""Values of items as plain ones: for the JSON of a payload, and for a column of a table.

A value is copied by this, so an object that is changed afterwards changes nothing stored.
What a column makes of a plain value is the business of the store's column rules.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from ipaddress import IPv4Address, IPv6Address
from pathlib import PurePath
from typing import Any
from uuid import UUID

from scrapy_resume.itemfields import fields_of
from scrapy_resume.store.items.daterules import utc
from scrapy_resume.store.items.textrules import encoded

_AS_THEY_ARE = frozenset(
    {str, int, float, bool, type(None), bytes, Decimal, date, time, timedelta}
)  # fmt: skip
_BY_THEIR_TEXT = (Decimal, UUID, PurePath, IPv4Address, IPv6Address)


class BadField(ValueError):
    """The value of *field* cannot be stored; *reason* does not repeat it."""

    def __init__(self, field: str | None, reason: str) -> None:
        super().__init__(reason if field is None else f"field {field!r}: {reason}")
        self.field, self.reason = field, reason


def json_text(value: Any) -> str:
    """*value* as JSON text: sorted keys, non-ASCII kept; NaN and infinities are refused.

    Raises TypeError or ValueError for what cannot be written so.
    """
    try:
        text = _encode(value)
    except RecursionError:
        raise ValueError("it is nested too deep, or holds itself") from None
    except ValueError as error:
        if "JSON compliant" not in str(error):
            raise
        raise ValueError("it holds NaN or an infinity, which JSON does not have") from None
    if not text.isascii():
        encoded(text)
    return text


def _encode(value: Any) -> str:
    try:
        return _ENCODER.encode(value)
    except TypeError:  # keys of several types have no order
        return _ENCODER.encode(_with_text_keys(value))


def payload(fields: Mapping[str, Any]) -> str:
    """*fields* as JSON text. Raises BadField."""
    try:
        return json_text(fields if isinstance(fields, dict) else dict(fields))
    except (TypeError, ValueError) as error:
        for name, value in fields.items():
            _named(name, json_text, {name: value})
        raise BadField(None, str(error)) from None


def column_values(fields: Mapping[str, Any]) -> dict[str, Any]:
    """*fields* as values for columns: nested ones become JSON text, zoned times UTC.

    Raises BadField.
    """
    values = {
        name: value if type(value) in _AS_THEY_ARE else _named(name, _column_value, value)
        for name, value in fields.items()
    }
    try:
        "".join(values)
    except TypeError:
        wrong = next(name for name in values if not isinstance(name, str))
        raise BadField(None, f"the name of a field is {wrong!r}, which is no text") from None
    return values


def composed(value: Any) -> Any:
    """*value*, if it is text, in Unicode's composed form (NFC)."""
    if isinstance(value, str) and not value.isascii():
        return unicodedata.normalize("NFC", value)
    return value


def _named(name: str, make: Any, value: Any) -> Any:
    try:
        return make(value)
    except (TypeError, ValueError) as error:
        raise BadField(name, str(error)) from None


def _column_value(value: Any) -> Any:
    if isinstance(value, Enum):
        value = value.value
        return value if type(value) in _AS_THEY_ARE else _column_value(value)
    if isinstance(value, datetime):
        return utc(_moment(value))
    if isinstance(value, str):
        return str.__str__(value)
    for kind in (int, float):  # and numpy.float64, which is one
        if isinstance(value, kind):
            return kind(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, (Decimal, date, time, timedelta)):
        return value
    if isinstance(value, (Mapping, list, tuple, set, frozenset)):
        return json_text(value)
    plain = _plain(value)
    return plain if type(plain) in _AS_THEY_ARE else _column_value(plain)


def _moment(value: datetime) -> datetime:
    if value != value:  # pandas' NaT
        raise ValueError("it is not a time")
    if type(value) is datetime:
        return value
    return datetime(
        value.year, value.month, value.day, value.hour, value.minute, value.second,
        value.microsecond, value.tzinfo, fold=value.fold,
    )  # fmt: skip


def _plain(value: Any) -> Any:
    """What stands for an object that JSON does not know."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, datetime):
        return _moment(value).isoformat()
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Decimal) and not value.is_finite():
        raise ValueError("it is not a finite number")
    # Addresses of pydantic say their text by a method of this name.
    if isinstance(value, _BY_THEIR_TEXT) or hasattr(type(value), "unicode_string"):
        return str(value)
    if isinstance(value, (set, frozenset)):
        return sorted(value, key=json_text)
    if isinstance(value, Mapping):
        return dict(value)
    fields = fields_of(value)
    return _plain_of_arrays(value) if fields is None else dict(fields)


def _plain_of_arrays(value: Any) -> Any:
    """numpy's and pandas' numbers and arrays; a datetime64 would come out as a bare number."""
    if hasattr(value, "tolist") and "time" not in str(getattr(value, "dtype", "")):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} values cannot be stored")


def _with_text_keys(value: Any) -> Any:
    """*value* with the keys of its dicts as JSON writes them, down to the last one."""
    if isinstance(value, Mapping):
        texts = {_key_text(key): _with_text_keys(inner) for key, inner in value.items()}
        if len(texts) < len(value):
            raise ValueError("two keys of a dict are one in JSON, as 1 and '1'")
        return texts
    if isinstance(value, (list, tuple)):
        return [_with_text_keys(inner) for inner in value]
    if value is None or isinstance(value, (str, int, float)):
        return value
    return _with_text_keys(_plain(value))


def _key_text(key: Any) -> str:
    if isinstance(key, str):
        return str.__str__(key)
    if key is None or isinstance(key, (bool, int, float)):
        return _ENCODER.encode(key)
    raise TypeError(f"a key of a dict is {type(key).__name__}, which JSON does not have")


_ENCODER = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"), default=_plain
)
