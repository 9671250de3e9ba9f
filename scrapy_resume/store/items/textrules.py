"""Values for columns of text, of bytes, of JSON, and of one word of a few.

Nothing is ever cut, not even spaces at the end, which MySQL cuts without an error. What
UTF-8 or the column's character set cannot write is refused, never replaced by ``?``.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from ipaddress import IPv4Address, IPv6Address
from typing import Any, NoReturn
from uuid import UUID

from scrapy_resume.store.items.columntypes import ColumnType, Convert
from scrapy_resume.store.items.daterules import clock_text
from scrapy_resume.store.items.numberrules import NUMBER, for_sqlite, number

_JSON_DEPTH = 31  # MariaDB refuses what is nested deeper
_MAYBE_HALF = re.compile(r"\\u[dD][89a-fA-F]")  # of a surrogate pair
_INTEGER = re.compile(r"-?[1-9][0-9]*|0")
_BEYOND_BMP = re.compile("[\U00010000-\U0010ffff]")
_PARSERS: dict[str, Callable[[str], Any]]
_PARSERS = {"uuid": UUID, "inet4": IPv4Address, "inet6": IPv6Address}


def as_text(value: Any) -> str:
    """*value* as text: numbers as Python writes them, dates as ISO text."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, (int, float, Decimal)):
        return str(number(value))
    if isinstance(value, datetime):
        return value.isoformat(" ")
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, timedelta):
        return clock_text(value, 6 if value.microseconds else 0)
    raise ValueError(f"a value of the type {type(value).__name__} is no text")


def encoded(value: str) -> bytes:
    """*value* in UTF-8. Raises ValueError for half of a surrogate pair."""
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise ValueError("it holds half of a surrogate pair, which is no character") from None


def is_whole(value: str) -> bool:
    """Whether UTF-8 can write *value*."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def text(declared: ColumnType, charset: str | None) -> Convert:
    """How a value becomes text of the column's size."""
    size, in_bytes, fixed = declared.size, declared.in_bytes, declared.fixed
    measure = _MEASURES.get(charset or "utf8mb4")

    def convert(value: Any) -> str:
        whole = as_text(value)
        kept = whole.rstrip(" ") if fixed else whole  # a CHAR gives none of them back
        raw = encoded(kept)
        length = len(kept) if measure is None else measure(kept, raw)
        if size is not None:
            if in_bytes and measure is not None and length > size:
                raise ValueError(f"it has {length} bytes, the column takes {size}")
            if not in_bytes and len(kept) > size:
                raise ValueError(f"it has {len(kept)} characters, the column takes {size}")
        return kept

    return convert


def _utf8mb3(value: str, raw: bytes) -> int:
    if _BEYOND_BMP.search(value):
        raise ValueError("it has a character that the column's character set does not have")
    return len(raw)


def _ascii(value: str, raw: bytes) -> int:
    if len(raw) != len(value):
        raise ValueError("it has a character that the column's character set does not have")
    return len(raw)


# Of other character sets the server says what they take: its sessions are strict.
_MEASURES: dict[str, Callable[[str, bytes], int]] = {
    "utf8mb4": lambda value, raw: len(raw), "utf8mb3": _utf8mb3, "utf8": _utf8mb3,
    "ascii": _ascii,
}  # fmt: skip


def binary(declared: ColumnType) -> Convert:
    """How a value becomes bytes; text is written in UTF-8."""
    size, fixed = declared.size, declared.fixed

    def convert(value: Any) -> bytes:
        if isinstance(value, str):
            raw = encoded(value)
        elif isinstance(value, (bytes, bytearray, memoryview)):
            raw = bytes(value)
        else:
            raise ValueError(
                f"a value of the type {type(value).__name__} is neither bytes nor text"
            )
        if size is not None and len(raw) > size:
            raise ValueError(f"it has {len(raw)} bytes, the column takes {size}")
        return raw.ljust(size, b"\0") if fixed and size else raw

    return convert


def json_text(dialect: str) -> Convert:
    """How a value becomes JSON text, of which text has to be some already."""
    shifting = dialect == "sqlite"

    def convert(value: Any) -> str:
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, (int, float, Decimal)):
            document = str(number(value))
        elif isinstance(value, str):
            document = str.__str__(value)
            _check_json(document)
        else:
            raise ValueError(f"a value of the type {type(value).__name__} is no JSON")
        if shifting and NUMBER.match(document.strip()) and not _is_plain(document):
            raise ValueError("SQLite would change this number; declare the column as TEXT")
        return document

    return convert


def _is_plain(document: str) -> bool:
    """Whether a number alone stays as it is in a column declared JSON, which SQLite counts
    among the numbers."""
    return len(document) < 19 and _INTEGER.fullmatch(document) is not None


def _check_json(document: str) -> None:
    encoded(document)
    try:
        read = json.loads(document, parse_constant=_refuse)
        if _MAYBE_HALF.search(document):
            json.dumps(read, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        raise ValueError("it is no JSON text") from None
    if read == math.inf or read == -math.inf:  # 1e400
        raise ValueError("it is not a finite number")
    if document.count("[") + document.count("{") > _JSON_DEPTH and _depth(read) > _JSON_DEPTH:
        raise ValueError(f"it is nested deeper than {_JSON_DEPTH} levels")


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


def _depth(document: Any) -> int:
    depth, level = 0, [document]
    while level := [one for one in level if isinstance(one, (list, dict))]:
        depth += 1
        level = [
            inner for one in level for inner in (one.values() if isinstance(one, dict) else one)
        ]
    return depth


def choice(declared: ColumnType) -> Convert:
    """One of an ENUM's words, exactly; MySQL takes ``1`` for the first of them."""
    words = frozenset(declared.words)

    def convert(value: Any) -> str:
        word = as_text(value) if isinstance(value, (str, int)) else ""
        if word not in words or isinstance(value, bool):
            raise ValueError("it is none of the column's words")
        return word

    return convert


def choices(declared: ColumnType) -> Convert:
    """Some of a SET's words with commas between them, in the order of the declaration."""

    def convert(value: Any) -> str:
        if not isinstance(value, str):
            raise ValueError("it is no text")
        given = set(value.split(",")) if value else set()
        if not given <= set(declared.words):
            raise ValueError("it has another word than the column's")
        return ",".join(word for word in declared.words if word in given)

    return convert


def untyped(declared: ColumnType, dialect: str) -> Convert:
    """For a type that is not known: what the driver takes, as long as it stays what it is."""
    shifting = declared.kind == "guessed"

    def convert(value: Any) -> Any:
        if isinstance(value, (bytes, bytearray, memoryview)):
            return bytes(value)
        if isinstance(value, (int, float, Decimal)):
            return for_sqlite(number(value)) if dialect == "sqlite" else number(value)
        kept = as_text(value)
        encoded(kept)
        if shifting and NUMBER.match(kept.strip()):
            raise ValueError("SQLite would make a number of this text; declare the column as TEXT")
        return kept

    return convert


def parsed(declared: ColumnType) -> Convert:
    """A UUID or an address, in its usual spelling."""
    parse = _PARSERS[declared.words[0]]

    def convert(value: Any) -> str:
        try:
            if isinstance(value, str):  # a number would be taken for an address
                return str(parse(value))
        except ValueError:
            pass
        raise ValueError(f"it is no {declared.words[0].upper()}")

    return convert
