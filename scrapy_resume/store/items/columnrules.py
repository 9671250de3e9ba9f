"""One rule for each column of a user's table: is this value stored, and as what?

MySQL, MariaDB and SQLite answer that differently, and differently by their settings, so it
is answered here, before a value is sent, from the column's declared type: what a database
gets is what it stores. docs/reference/values.md has the rules as a table.
A rule runs once for each value; the usual ones are let through by the first comparison.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime
from typing import Any

from scrapy_resume.store.items import daterules, numberrules, textrules
from scrapy_resume.store.items.columntypes import ColumnType, Convert, Note, column_type
from scrapy_resume.store.items.tablefacts import ColumnFacts
from scrapy_resume.store.items.textrules import is_whole

Rule = Convert  # raises Unfit, which names the column
Coerced = Callable[[str, str], None]


class Unfit(ValueError):
    """A value that the column cannot hold as it is; *reason* does not repeat the value."""

    def __init__(self, column: str, reason: str) -> None:
        super().__init__(f"column {column}: {reason}")
        self.column, self.reason = column, reason


def column_rule(facts: ColumnFacts, dialect: str, coerced: Coerced | None = None) -> Rule:
    """The rule of a column: ``rule(value)`` is what the driver gets, or it raises Unfit.

    *dialect* is ``sqlite`` or ``mysql``. *coerced* is told column and reason when a value
    is stored that is not quite the one given, as a rounded price.
    """

    def note(reason: str) -> None:
        if coerced is not None:
            coerced(facts.name, reason)

    declared = column_type(facts.type, dialect)
    if facts.generated:
        return _never(facts.name)
    return _RULES[declared.kind](facts, declared, dialect, note)


def _never(column: str) -> Rule:
    def rule(value: Any) -> Any:
        raise Unfit(column, "the database makes its value; leave the field out")

    return rule


def _careful(facts: ColumnFacts, convert: Convert) -> Rule:
    """*convert*, its errors naming the column, and None where the column may be NULL."""
    name, nullable = facts.name, facts.nullable

    def careful(value: Any) -> Any:
        if value is None:
            if nullable:
                return None
            raise Unfit(name, "it may not be NULL; leave the field out or give it a value")
        try:
            return convert(value)
        except (ValueError, ArithmeticError) as error:
            raise Unfit(name, str(error)) from None

    return careful


def _integer(facts: ColumnFacts, declared: ColumnType, dialect: str, note: Note) -> Rule:
    convert, low, high = numberrules.integer(declared, dialect)
    careful = _careful(facts, convert)

    def rule(value: Any) -> Any:
        return value if type(value) is int and low <= value <= high else careful(value)

    return rule


def _float(facts: ColumnFacts, declared: ColumnType, dialect: str, note: Note) -> Rule:
    convert, low, high = numberrules.floating(declared, note)
    careful = _careful(facts, convert)
    if declared.digits:
        return careful

    def rule(value: Any) -> Any:
        return value if type(value) is float and low <= value <= high else careful(value)

    return rule


def _text(facts: ColumnFacts, declared: ColumnType, dialect: str, note: Note) -> Rule:
    careful = _careful(facts, textrules.text(declared, facts.charset))
    size = 2**62 if declared.size is None else declared.size
    wide = size // 4 if declared.in_bytes else size  # characters that fit whatever they are
    if declared.fixed or facts.charset not in (None, "utf8mb4"):
        wide = -1
    padded = " " if declared.fixed else "\ud800"  # what no ASCII text ends with

    def rule(value: Any) -> Any:
        if type(value) is str:
            if value.isascii():
                if len(value) <= size and value[-1:] != padded:
                    return value
            elif len(value) <= wide and is_whole(value):
                return value
        return careful(value)

    return rule


def _binary(facts: ColumnFacts, declared: ColumnType, dialect: str, note: Note) -> Rule:
    return _careful(facts, textrules.binary(declared))


def _datetime(facts: ColumnFacts, declared: ColumnType, dialect: str, note: Note) -> Rule:
    careful = _careful(facts, daterules.datetimes(declared))
    write = daterules.moment(declared.digits)

    def rule(value: Any) -> Any:
        if type(value) is datetime and value.tzinfo is None:
            return write(value)
        return careful(value)

    return rule


def _date(facts: ColumnFacts, declared: ColumnType, dialect: str, note: Note) -> Rule:
    careful = _careful(facts, daterules.dates(note))

    def rule(value: Any) -> Any:
        return value.isoformat() if type(value) is date else careful(value)

    return rule


def _other(facts: ColumnFacts, declared: ColumnType, dialect: str, note: Note) -> Rule:
    return _careful(facts, textrules.untyped(declared, dialect))


_RULES: dict[str, Callable[[ColumnFacts, ColumnType, str, Note], Rule]] = {
    "integer": _integer,
    "float": _float,
    "decimal": lambda f, t, d, n: _careful(f, numberrules.decimal(t, d, n)),
    "text": _text,
    "binary": _binary,
    "json": lambda f, t, d, n: _careful(f, textrules.json_text(d)),
    "date": _date,
    "datetime": _datetime,
    "timestamp": lambda f, t, d, n: _careful(f, daterules.datetimes(t)),
    "time": lambda f, t, d, n: _careful(f, daterules.times(t)),
    "choice": lambda f, t, d, n: _careful(f, textrules.choice(t)),
    "choices": lambda f, t, d, n: _careful(f, textrules.choices(t)),
    "parsed": lambda f, t, d, n: _careful(f, textrules.parsed(t)),
    "guessed": _other,
    "other": _other,
}
