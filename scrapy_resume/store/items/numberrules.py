"""Values for columns of numbers: what is exact is taken, what would change is not.

MariaDB rounds 3.7 into an INT, turns a whole number of 70 digits into another one in a
DOUBLE, and takes a date for a number; SQLite stores any of them as it comes. Here both
get the number itself or nothing. Only a DECIMAL rounds, half away from zero as MySQL
does, and only a DOUBLE takes a whole number that it cannot hold exactly; both say so.
"""

from __future__ import annotations

import math
import re
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

from scrapy_resume.store.items.columntypes import ColumnType, Convert, Note

NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?\Z", re.ASCII)
_PRECISE = Context(prec=100, rounding=ROUND_HALF_UP)
_NOT_A_NUMBER = "it is not a finite number"
_SQLITE_HIGH = 2**63 - 1


def number(value: Any) -> int | float | Decimal:
    """*value* as a finite number. Raises ValueError with the reason."""
    if isinstance(value, Decimal):
        if not value.is_finite():
            raise ValueError(_NOT_A_NUMBER)
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, str):
        return _from_text(value)
    if not isinstance(value, float):
        raise ValueError(f"a value of the type {type(value).__name__} is no number")
    if not math.isfinite(value):
        raise ValueError(_NOT_A_NUMBER)
    return float(value)


def _from_text(text: str) -> Decimal:
    stripped = text.strip()
    if NUMBER.match(stripped):
        return Decimal(stripped)
    if stripped.lower().lstrip("+-") in ("nan", "inf", "infinity"):
        raise ValueError(_NOT_A_NUMBER)
    raise ValueError("it is empty, no number" if not stripped else "it is no number")


def integer(declared: ColumnType, dialect: str) -> tuple[Convert, int, int]:
    """How a value becomes a whole number, and the lowest and the highest there may be."""
    low, high = int(declared.low or 0), int(declared.high or 0)
    if dialect == "sqlite":
        high = min(high, _SQLITE_HIGH)

    def convert(value: Any) -> int:
        given = number(value)
        whole = given if isinstance(given, int) else _whole(given)
        if not low <= whole <= high:
            raise ValueError(f"it is out of range; the column takes {low} to {high}")
        return whole

    return convert, low, high


def _whole(value: float | Decimal) -> int:
    if isinstance(value, Decimal) and value.adjusted() > 30:
        raise ValueError("it is out of range")  # before an integer of as many digits is made
    if value != int(value):
        raise ValueError("it is no whole number, and rounding would change it")
    return int(value)


def floating(declared: ColumnType, note: Note) -> tuple[Convert, float, float]:
    """How a value becomes a float, and the lowest and the highest there may be."""
    low, high = float(declared.low or 0), float(declared.high or 0)

    def convert(value: Any) -> float:
        given = number(value)
        try:
            near = float(given)
        except OverflowError:
            near = float("inf")
        near = round(near, declared.digits) if declared.digits else near
        if not low <= near <= high:
            raise ValueError(f"it is out of range; the column takes {low:g} to {high:g}")
        if isinstance(given, int) and int(near) != given:
            note("a whole number is kept as the nearest number that the column can hold")
        return near

    return convert, low, high


def decimal(declared: ColumnType, dialect: str, note: Note) -> Convert:
    """How a value becomes a Decimal of the column's digits; on SQLite an int or a float."""
    if not declared.precision:  # SQLite's own NUMERIC: any number
        return lambda value: for_sqlite(number(value))
    places = declared.precision - declared.digits
    unit = Decimal(1).scaleb(-declared.digits)
    unsigned = declared.low is not None
    out_of_range = f"it is out of range; the column takes {places} digits before the point"
    out_of_range += ", and no sign" if unsigned else ""
    finish = for_sqlite if dialect == "sqlite" else _same

    def convert(value: Any) -> Any:
        given = exact = number(value)
        if not isinstance(exact, Decimal):
            exact = Decimal(repr(exact) if isinstance(exact, float) else exact)
        if exact and exact.adjusted() > places:  # before as many digits are made of it
            raise ValueError(out_of_range)
        rounded = exact.quantize(unit, context=_PRECISE)
        if rounded and (rounded.adjusted() >= places or (unsigned and rounded < 0)):
            raise ValueError(out_of_range)
        if rounded != exact and not (isinstance(given, float) and _is_noise(given, rounded)):
            note(f"a number is rounded to {declared.digits} digits after the point")
        return finish(rounded)

    return convert


def _is_noise(given: float, rounded: Decimal) -> bool:
    """0.1 + 0.2 is 0.3: digits beyond the fifteenth are the float's own."""
    return Decimal(f"{given:.15g}") == rounded


def _same(value: Decimal) -> Decimal:
    return value


def for_sqlite(value: float | Decimal) -> int | float:
    """*value* as SQLite, which has no decimals, can hold it: 64 bits or a double, exactly."""
    if isinstance(value, float):
        return value
    if -_SQLITE_HIGH <= value <= _SQLITE_HIGH and value == int(value):
        return int(value)
    try:
        near = float(value)
    except OverflowError:
        near = math.inf
    if not math.isfinite(near) or Decimal(repr(near)) != value:
        raise ValueError("SQLite cannot hold so many digits; declare the column as TEXT")
    return near
