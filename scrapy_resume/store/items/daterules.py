"""Values for columns of dates and times: ISO 8601, stored UTC, as text of the column's digits.

Text of one length sorts and compares like the moments themselves, on SQLite too, which
has no dates. A fraction finer than the column's is cut off, not rounded, since rounding
can move a moment into the next year. A number is no date: MySQL would take 20240101.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone
from typing import Any

from scrapy_resume.store.items.columntypes import ColumnType, Convert, Note

_ZONE = r"(Z|z|[+-]\d\d(?::?\d\d)?)?"
_CLOCK = r"(\d{1,3}):(\d\d)(?::(\d\d)(?:\.(\d+))?)?"
_MOMENT = re.compile(rf"(\d{{4}})-(\d\d)-(\d\d)(?:[T ]{_CLOCK} ?{_ZONE})?", re.ASCII)
_TIME = re.compile(rf"(-?){_CLOCK}{_ZONE}", re.ASCII)
_USUAL = re.compile(
    r"\d{4}-\d\d-\d\d(?:[T ](?:[01]\d|2[0-3]):\d\d:\d\dZ?)?", re.ASCII
)  # which datetime reads by itself; newer Pythons would take 24:00 too
_FIRST_STAMP = datetime(1970, 1, 1, 0, 0, 1)
_LAST_STAMP = datetime(2038, 1, 19, 3, 14, 7, 999999)
_DAY = timedelta(days=1)
_LONGEST = timedelta(hours=839)
_SPECS = {0: "seconds", 3: "milliseconds"}


def moment(digits: int) -> Callable[[datetime], str]:
    """How a UTC datetime is written with *digits* of its fraction."""
    spec = _SPECS.get(digits, "microseconds")
    if digits in (1, 2, 4, 5):
        return lambda value: value.isoformat(" ", spec)[: digits - 6]
    return lambda value: value.isoformat(" ", spec)


def datetimes(declared: ColumnType) -> Convert:
    """How a value becomes the text of a DATETIME or TIMESTAMP."""
    write = moment(declared.digits)
    stamp = declared.kind == "timestamp"

    def convert(value: Any) -> str:
        found = _moment(value)
        if stamp and not _FIRST_STAMP <= found <= _LAST_STAMP:
            raise ValueError("it is out of range; a TIMESTAMP is of 1970 to 2038")
        return write(found)

    return convert


def dates(note: Note) -> Convert:
    """How a value becomes the text of a DATE; a time of the day is left out, and said so."""

    def convert(value: Any) -> str:
        found = _moment(value)
        if found.time() != time.min:
            note("the time of the day is left out of a date")
        return found.date().isoformat()

    return convert


def _moment(value: Any) -> datetime:
    if isinstance(value, datetime):
        return utc(value)
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day)
    if not isinstance(value, str):
        raise ValueError(f"a value of the type {type(value).__name__} is no date")
    try:
        if _USUAL.fullmatch(value):
            return datetime.fromisoformat(value.rstrip("Z"))
        match = _MOMENT.fullmatch(value.strip())
        if match is not None:
            return utc(_of_parts(*match.groups()))
    except ValueError:
        raise ValueError("there is no such date or time") from None
    raise ValueError("it is no ISO date" if value.strip() else "it is empty, no date")


def _of_parts(
    year: str, month: str, day: str, hour: str | None, minute: str | None, second: str | None,
    fraction: str | None, zone: str | None,
) -> datetime:  # fmt: skip
    return datetime(
        int(year), int(month), int(day), int(hour or 0), int(minute or 0), int(second or 0),
        _microseconds(fraction), _zone(zone),
    )  # fmt: skip


def _microseconds(fraction: str | None) -> int:
    return int(fraction[:6].ljust(6, "0")) if fraction else 0


def utc(value: datetime) -> datetime:
    """*value* in UTC without a zone; one that has none is taken as it is."""
    if value.utcoffset() is None:  # a zone may not know; then astimezone takes the machine's
        return value.replace(tzinfo=None)
    try:
        return value.astimezone(timezone.utc).replace(tzinfo=None)
    except OverflowError:
        raise ValueError("there is no such date in UTC") from None


def _zone(text: str | None) -> timezone | None:
    if text is None:
        return None
    if text in "Zz":
        return timezone.utc
    hours, minutes = int(text[1:3]), int(text[3:].lstrip(":") or 0)
    if hours > 23 or minutes > 59:
        raise ValueError("there is no such zone")
    offset = timedelta(hours=hours, minutes=minutes)
    return timezone(-offset if text[0] == "-" else offset)


def times(declared: ColumnType) -> Convert:
    """How a value becomes the text of a TIME: of a day, or a length of up to 838 hours."""

    def convert(value: Any) -> str:
        length = value if isinstance(value, timedelta) else _length(value)
        if not -_LONGEST < length < _LONGEST:
            raise ValueError("it is out of range; a TIME has up to 838 hours")
        return clock_text(length, declared.digits)

    return convert


def _length(value: Any) -> timedelta:
    if isinstance(value, time):
        return _time_of_day(value)
    if not isinstance(value, str):
        raise ValueError(f"a value of the type {type(value).__name__} is no time")
    match = _TIME.fullmatch(value.strip())
    if match is None:
        raise ValueError("it is no time" if value.strip() else "it is empty, no time")
    sign, hours, minutes, seconds, fraction, zone = match.groups()
    if int(minutes) > 59 or int(seconds or 0) > 59:
        raise ValueError("there is no such time")
    length = timedelta(
        hours=int(hours), minutes=int(minutes), seconds=int(seconds or 0),
        microseconds=_microseconds(fraction),
    )  # fmt: skip
    offset = _zone(zone)
    if offset is None:
        return -length if sign else length
    if sign or length >= _DAY:
        raise ValueError("only a time of the day has a zone")
    return (length - offset.utcoffset(None)) % _DAY


def _time_of_day(value: time) -> timedelta:
    length = timedelta(
        hours=value.hour, minutes=value.minute, seconds=value.second, microseconds=value.microsecond
    )
    if value.tzinfo is None:
        return length
    offset = value.utcoffset()
    if offset is None:
        raise ValueError("its zone has no fixed offset, and without a day no other")
    return (length - offset) % _DAY


def clock_text(length: timedelta, digits: int) -> str:
    """*length* as ``[-]HH:MM:SS``, with *digits* of the second's fraction, cut off."""
    rest, sign = (-length, "-") if length < timedelta() else (length, "")
    minutes, seconds = divmod(rest.days * 86400 + rest.seconds, 60)
    text = f"{sign}{minutes // 60:02}:{minutes % 60:02}:{seconds:02}"
    return f"{text}.{rest.microseconds:06}"[: len(text) + 1 + digits] if digits else text
