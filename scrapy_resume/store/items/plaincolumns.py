"""Whole columns of values that their rule would let through unchanged, seen at one glance.

Asking a column's rule about every value costs more than making the statement. So a
column is first looked at as a whole, by what C code can tell of it: all values of one
type, the extremes within the bounds. Only if that says no is the rule asked, value by value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from scrapy_resume.store.items import numberrules
from scrapy_resume.store.items.columntypes import ColumnType, column_type
from scrapy_resume.store.items.tablefacts import ColumnFacts
from scrapy_resume.store.items.textrules import is_whole

Glance = Callable[[Sequence[Any]], bool]

_ANY_CHARACTER = frozenset({None, "utf8mb4"})
_LONGEST = 4  # bytes of a character


def glance(facts: ColumnFacts, dialect: str) -> Glance | None:
    """What tells that a column's values are all plain; None if its rule must be asked."""
    declared = column_type(facts.type, dialect)
    make = _GLANCES.get(declared.kind)
    return None if make is None or facts.generated else make(facts, declared, dialect)


def _text(facts: ColumnFacts, declared: ColumnType, dialect: str) -> Glance | None:
    if declared.fixed:
        return None
    narrow = facts.charset not in _ANY_CHARACTER
    size = 2**62 if declared.size is None else declared.size
    if declared.in_bytes:
        size //= _LONGEST

    def plain(values: Sequence[Any]) -> bool:
        if set(map(type, values)) != {str} or max(map(len, values)) > size:
            return False
        joined = "".join(values)
        return joined.isascii() or (not narrow and is_whole(joined))

    return plain


def _integer(facts: ColumnFacts, declared: ColumnType, dialect: str) -> Glance | None:
    _, low, high = numberrules.integer(declared, dialect)

    def plain(values: Sequence[Any]) -> bool:
        return set(map(type, values)) == {int} and low <= min(values) and max(values) <= high

    return plain


def _float(facts: ColumnFacts, declared: ColumnType, dialect: str) -> Glance | None:
    low, high = float(declared.low or 0), float(declared.high or 0)
    if declared.digits:
        return None

    def plain(values: Sequence[Any]) -> bool:
        if set(map(type, values)) != {float} or not math.isfinite(sum(values)):
            return False
        return bool(low <= min(values) and max(values) <= high)

    return plain


_GLANCES: dict[str, Callable[[ColumnFacts, ColumnType, str], Glance | None]] = {
    "text": _text,
    "integer": _integer,
    "float": _float,
}
