"""Values as literals of MySQL's SQL, a whole column at a time.

PyMySQL spends most of the time of a bulk write in making literals, value by value. Text,
whole numbers and floats are made here, at once for a column that holds nothing else.
What is rare is PyMySQL's own business.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pymysql.constants import SERVER_STATUS

_BETWEEN = "\0"  # stands between texts that are escaped together


def rows(connection: Any, template: str, args: Sequence[Sequence[Any]]) -> Iterator[str]:
    """*template* filled with the literals of each row of *args*."""
    literal = of_value(connection)
    plain = not connection.server_status & SERVER_STATUS.SERVER_STATUS_NO_BACKSLASH_ESCAPES
    columns = [_column(column, literal, plain) for column in zip(*args, strict=True)]
    return map(template.__mod__, zip(*columns, strict=True))


def of_value(connection: Any) -> Callable[[Any], str]:
    """What makes the literal of one value."""
    escape: Callable[[Any, Any], str] = connection.escape
    encoders = connection.encoders
    last: Any = None
    text = "NULL"

    def literal(value: Any) -> str:
        nonlocal last, text
        if value is last:  # a time that many rows share, or None
            return text
        if type(value) is int:
            return str(value)
        if type(value) is bytes:
            return f"x'{value.hex()}'"
        last, text = value, "NULL" if value is None else escape(value, encoders)
        return text

    return literal


def _column(values: Sequence[Any], literal: Callable[[Any], str], plain: bool) -> Sequence[str]:
    kinds = set(map(type, values))
    if kinds == {str} and plain:
        return _texts(values)
    if kinds == {int}:
        return list(map(str, values))
    if kinds == {float}:
        return _floats(values, literal)
    return [literal(value) for value in values]


def _texts(values: Sequence[str]) -> Sequence[str]:
    whole = _BETWEEN.join(values)
    if "\\" in whole or "'" in whole:
        whole = whole.replace("\\", "\\\\").replace("'", "''")
    escaped = whole.split(_BETWEEN)
    if len(escaped) != len(values):  # a text holds what stands between them
        escaped = [value.replace("\\", "\\\\").replace("'", "''") for value in values]
    return [f"'{text}'" for text in escaped]


def _floats(values: Sequence[float], literal: Callable[[Any], str]) -> Sequence[str]:
    texts = list(map(repr, values))
    if "n" in "".join(texts):  # nan or inf, which PyMySQL refuses
        return [literal(value) for value in values]
    return [text if "e" in text else f"{text}e0" for text in texts]
