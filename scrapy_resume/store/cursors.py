"""PyMySQL's cursor with a faster way to write many rows as one statement.

PyMySQL turns ``executemany`` of an INSERT into multi-row statements, and spends most of
the time of a bulk write in making literals. Here text, whole numbers and NULL are made
directly; everything else, and every single statement, is PyMySQL's own business.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from pymysql.constants import SERVER_STATUS
from pymysql.cursors import Cursor


class BulkCursor(Cursor):  # type: ignore[misc]
    """A cursor whose multi-row statements have at most ``max_stmt_length`` bytes."""

    def _do_execute_many(
        self,
        prefix: str,
        values: str,
        postfix: str,
        args: Iterable[tuple[Any, ...]],
        max_stmt_length: int,
        encoding: str,
    ) -> int:
        literal = _literals(self.connection)
        head, tail = prefix.encode(encoding), postfix.encode(encoding)
        rows: list[bytes] = []
        size = 0
        count: int = 0
        for arg in args:
            row = (values % tuple([literal(value) for value in arg])).encode(encoding)
            if rows and len(head) + size + len(row) + len(tail) > max_stmt_length:
                count += self.execute(head + b",".join(rows) + tail)
                rows, size = [], 0
            rows.append(row)
            size += len(row) + 1
        count += self.execute(head + b",".join(rows) + tail)
        self.rowcount = count
        return count


def sized(limit: int) -> type[BulkCursor]:
    """The cursor class for statements of at most *limit* bytes."""
    return type("BulkCursor", (BulkCursor,), {"max_stmt_length": limit})


def _literals(connection: Any) -> Callable[[Any], str]:
    escape: Callable[[Any, Any], str] = connection.escape
    encoders = connection.encoders
    plain = not connection.server_status & SERVER_STATUS.SERVER_STATUS_NO_BACKSLASH_ESCAPES
    last: Any = None
    text = "NULL"

    def literal(value: Any) -> str:
        nonlocal last, text
        if value is last:  # a time that many rows share, or None
            return text
        kind = type(value)
        if kind is str and plain:
            escaped = value.replace("\\", "\\\\").replace("'", "''")
            return f"'{escaped}'"
        if kind is int:
            return str(value)
        last, text = value, "NULL" if value is None else escape(value, encoders)
        return text

    return literal
