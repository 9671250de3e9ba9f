"""Column types that mean the same on every database.

Text is compared exactly, trailing spaces and case included: SQLite does so by
itself, MySQL and MariaDB each need a collation of their own. Times have
microseconds, ids count by themselves. Every table is InnoDB and utf8mb4 whatever
the server's defaults.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, CheckConstraint, Column, DateTime, String, Text
from sqlalchemy.ext.compiler import compiles

NAME_LENGTH = 190  # characters of a task, spider, run, site or source name
KEY_LENGTH = 512  # characters of an item key; with the source they fill an InnoDB key
SHARD_KEY_LENGTH = 255
REASON_LENGTH = 500

# Reasons of a pending shard that a claim looks at.
DIED = "its process died; taken back on its machine"
LAPSED = "its lease ran out"

OPTIONS: dict[str, Any] = {
    "mysql_engine": "InnoDB",
    "mysql_charset": "utf8mb4",
    "mysql_collate": "utf8mb4_bin",
    "mysql_row_format": "DYNAMIC",
}
COUNTED: dict[str, Any] = OPTIONS | {"sqlite_autoincrement": True}  # ids are never used twice


class Exact(String):
    """Text of at most *length* characters, compared exactly."""

    inherit_cache = True


class LongText(Text):
    """Text of any length: JSON kept byte for byte, page ranges, messages."""

    inherit_cache = True


class Moment(DateTime):
    """A time in UTC, naive, with microseconds."""

    inherit_cache = True


class Serial(BigInteger):
    """A 64-bit id that the database counts up."""

    inherit_cache = True


@compiles(Exact, "mysql")
def _exact(element: Exact, compiler: Any, **kw: Any) -> str:
    return f"VARCHAR({element.length}) {_exactly(compiler)}"


@compiles(LongText, "mysql")
def _long_text(element: LongText, compiler: Any, **kw: Any) -> str:
    return f"LONGTEXT {_exactly(compiler)}"


@compiles(Moment, "mysql")
def _moment(element: Moment, compiler: Any, **kw: Any) -> str:
    return "DATETIME(6)"


@compiles(Serial, "sqlite")
def _serial(element: Serial, compiler: Any, **kw: Any) -> str:
    return "INTEGER"  # the only type that SQLite counts up


def _exactly(compiler: Any) -> str:
    return f"CHARACTER SET utf8mb4 COLLATE {exact_collation(compiler.dialect)}"


def exact_collation(dialect: Any) -> str:
    """The collation of the connected server that compares text exactly."""
    if getattr(dialect, "is_mariadb", False):
        return "utf8mb4_nopad_bin"
    version = getattr(dialect, "server_version_info", None)
    # Older ones know none that tells "a" from "a ".
    return "utf8mb4_bin" if version and version < (8, 0, 17) else "utf8mb4_0900_bin"


def checks(table: str, **rules: str) -> list[CheckConstraint]:
    """CHECKs by name; the table's name goes before it, since MySQL has one space of them."""
    return [CheckConstraint(rule, name=f"{table}_{name}") for name, rule in rules.items()]


def one_of(column: str, *values: str) -> str:
    """The rule that *column* holds one of *values* (or NULL, where it may)."""
    return f"{column} IN ({', '.join(repr(value) for value in values)})"


def times(*names: str) -> list[Column[Any]]:
    """Columns for times that are always known."""
    return [Column(name, Moment, nullable=False) for name in names]
