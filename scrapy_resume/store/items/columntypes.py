"""What a column's declared type says: its kind and its bounds, read alike on every database.

The text is MySQL's ``column_type`` or what stands in SQLite's CREATE TABLE, and it means
on SQLite what MySQL means by it. Only SQLite's own storage classes keep their own extent:
INTEGER has 64 bits, REAL is a double, TEXT and BLOB have no length, NUMERIC no digits.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal[
    "integer", "float", "decimal", "text", "binary", "json", "date", "datetime", "timestamp",
    "time", "choice", "choices", "parsed", "guessed", "other",
]  # fmt: skip

Note = Callable[[str], None]  # is told why a value is stored that is not quite the one given
Convert = Callable[[Any], Any]  # gives what is stored of a value; raises ValueError, why not


@dataclass(frozen=True, slots=True)
class ColumnType:
    """A declared type: *low* and *high* bound numbers, *size* characters or bytes.

    *digits* are those after the point, of a number or of a second; *fixed* says that the
    database pads what is shorter; *words* are the members of an ENUM or SET (``choice``,
    ``choices``), or the name of a type with a text form of its own (``parsed``). ``guessed``
    is a type that SQLite does not know: it makes numbers of what looks like one.
    """

    kind: Kind
    low: float | int | None = None
    high: float | int | None = None
    size: int | None = None
    in_bytes: bool = False
    precision: int = 0
    digits: int = 0
    fixed: bool = False
    words: tuple[str, ...] = ()


_SHAPE = re.compile(r"\s*([a-z][a-z0-9_ ]*?)\s*(?:\(\s*([^)]*?)\s*\)\s*(.*))?\Z", re.DOTALL)
_MEMBER = re.compile(r"'((?:[^']|'')*)'")
_ATTRIBUTES = re.compile(r"\b(unsigned|signed|zerofill)\b|/\*.*?\*/")

_BITS = {
    "tinyint": 8, "int1": 8, "bool": 8, "boolean": 8, "smallint": 16, "int2": 16,
    "mediumint": 24, "int3": 24, "middleint": 24, "int": 32, "integer": 32, "int4": 32,
    "bigint": 64, "int8": 64, "big int": 64,
}  # fmt: skip
_FLOATS = {"float": 3.402823466e38, "float4": 3.402823466e38}
_DOUBLES = frozenset({"double", "double precision", "real", "float8"})
_DOUBLE_MAX = 1.7976931348623157e308
_DECIMALS = frozenset({"decimal", "numeric", "dec", "fixed"})
_LETTERS = {"char": True, "character": True, "nchar": True, "national char": True}
_LETTERS |= {"national character": True, "native character": True}
_LETTERS |= dict.fromkeys(
    ("varchar", "character varying", "char varying", "varying character", "nvarchar",
     "national varchar", "national character varying"), False,
)  # fmt: skip
_SIZES = {"tiny": 2**8 - 1, "": 2**16 - 1, "medium": 2**24 - 1, "long": 2**32 - 1}
_TEXTS = {f"{prefix}text": size for prefix, size in _SIZES.items()}
_TEXTS |= {"long": _SIZES["medium"], "long varchar": _SIZES["medium"]}
_BLOBS = {f"{prefix}blob": size for prefix, size in _SIZES.items()}
_SQLITE_OWN = {
    "integer": ColumnType("integer", -(2**63), 2**63 - 1),
    "real": ColumnType("float", -_DOUBLE_MAX, _DOUBLE_MAX),
    "text": ColumnType("text"),
    "clob": ColumnType("text"),
    "blob": ColumnType("binary"),
    "numeric": ColumnType("decimal"),
}
# How SQLite reads a name that it has never heard of.
_SQLITE_HINTS = {
    "int": "integer", "char": "text", "clob": "text", "text": "text", "blob": "blob",
    "real": "real", "floa": "real", "doub": "real",
}  # fmt: skip


def column_type(declared: str, dialect: str) -> ColumnType:
    """What *declared* means; a type that is not known is of the kind ``other``."""
    words = declared.lower()
    if words.lstrip().startswith(("enum", "set")) and "'" in words:
        members = tuple(one.replace("''", "'") for one in _MEMBER.findall(declared))
        return ColumnType("choice" if "enum" in words[:6] else "choices", words=members)
    unsigned = "unsigned" in words or "zerofill" in words
    shape = _SHAPE.match(_ATTRIBUTES.sub("", words))
    if shape is None:
        return _unknown(words, dialect)
    name, arguments = " ".join(shape[1].split()), _numbers(shape[2] or "")
    if dialect == "sqlite" and not arguments and name in _SQLITE_OWN:
        return _SQLITE_OWN[name]
    found = _number(name, arguments, unsigned) or _letters(name, arguments)
    found = found or _rest(name, arguments)
    return _unknown(name, dialect) if found is None else found


def _unknown(name: str, dialect: str) -> ColumnType:
    if dialect != "sqlite" or not name.strip():
        return ColumnType("other")
    for hint, own in _SQLITE_HINTS.items():
        if hint in name:
            return _SQLITE_OWN[own]
    return ColumnType("guessed")


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",") if part.strip().isdecimal()]


def _number(name: str, arguments: list[int], unsigned: bool) -> ColumnType | None:
    if name in _BITS:
        return _integer(_BITS[name], unsigned)
    if name == "serial":
        return _integer(64, True)
    if name == "bit":
        return ColumnType("integer", 0, 2 ** (arguments[0] if arguments else 1) - 1)
    if name == "year":
        return ColumnType("integer", 1901, 2155)
    if name in _DECIMALS:
        precision, digits = (*arguments, *(10, 0)[len(arguments) :])[:2]
        low = 0 if unsigned else None
        return ColumnType("decimal", low, precision=precision, digits=digits)
    if name in _FLOATS or name in _DOUBLES:
        return _float(name, arguments, unsigned)
    return None


def _integer(bits: int, unsigned: bool) -> ColumnType:
    if unsigned:
        return ColumnType("integer", 0, 2**bits - 1)
    return ColumnType("integer", -(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def _float(name: str, arguments: list[int], unsigned: bool) -> ColumnType:
    high, digits = _FLOATS.get(name, _DOUBLE_MAX), 0
    if len(arguments) == 1 and arguments[0] > 24:  # FLOAT(53) is a double
        high = _DOUBLE_MAX
    if len(arguments) == 2:
        digits = arguments[1]
        high = min(high, float(10 ** (arguments[0] - digits)) - 10.0**-digits)
    return ColumnType("float", 0.0 if unsigned else -high, high, digits=digits)


def _letters(name: str, arguments: list[int]) -> ColumnType | None:
    size = arguments[0] if arguments else None
    if name in _LETTERS:
        fixed = _LETTERS[name]
        size = size or (1 if fixed else None)
        return ColumnType("text", size=size, fixed=fixed)
    if name in ("binary", "varbinary"):
        return ColumnType("binary", size=size or 1, in_bytes=True, fixed=name == "binary")
    if name in _TEXTS:
        return ColumnType("text", size=_fitting(_TEXTS[name], 4 * (size or 0)), in_bytes=True)
    if name in _BLOBS:
        return ColumnType("binary", size=_fitting(_BLOBS[name], size or 0), in_bytes=True)
    return None


def _fitting(size: int, wanted: int) -> int:
    """TEXT(100) is the smallest of the four that holds so much."""
    return min(one for one in _SIZES.values() if one >= wanted) if wanted else size


def _rest(name: str, arguments: list[int]) -> ColumnType | None:
    digits = min(arguments[0], 6) if arguments else 0
    if name in ("datetime", "timestamp"):
        return ColumnType("datetime" if name == "datetime" else "timestamp", digits=digits)
    if name in ("json", "date"):
        return ColumnType("json" if name == "json" else "date")
    if name == "time":
        return ColumnType("time", digits=digits)
    if name in ("uuid", "inet4", "inet6"):
        return ColumnType("parsed", words=(name,))
    return None
