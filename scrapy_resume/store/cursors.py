"""PyMySQL's cursor with a faster way to write many rows as one statement.

PyMySQL turns ``executemany`` of an INSERT into multi-row statements; so does this cursor,
with literals made faster. Every single statement is PyMySQL's own business.
A row may hold DEFAULT for a column, which stands for what a new row has there by itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from pymysql.constants import CLIENT
from pymysql.cursors import RE_INSERT_VALUES, Cursor

from scrapy_resume.store import literals
from scrapy_resume.store.items.upserts import Default

_DUPLICATES = re.compile(rb"Duplicates: (\d+)")


class BulkCursor(Cursor):  # type: ignore[misc]
    """A cursor whose multi-row statements have at most ``max_stmt_length`` bytes.

    *duplicates* says of how many rows sent last the key was there; None: not known. The
    server counts those that did not change only for clients with FOUND_ROWS.
    """

    duplicates: int | None = None

    def __init__(self, connection: Any) -> None:
        super().__init__(connection)
        connection.encoders.setdefault(Default, lambda value, mapping=None: "DEFAULT")

    def executemany(self, query: str, args: Sequence[Sequence[Any]]) -> int | None:
        """Send *query* for all rows of *args*: an INSERT with as few statements as may be."""
        parts = RE_INSERT_VALUES.match(query) if args else None
        if parts is None:
            count: int | None = super().executemany(query, args)
            return count
        encoding = self.connection.encoding
        texts = literals.rows(self.connection, parts[2].rstrip(), args)
        return self._insert(
            (parts[1] % ()).encode(encoding),
            (text.encode(encoding) for text in texts),
            ((parts[3] or "") % ()).encode(encoding),
        )

    def _insert(self, head: bytes, rows: Iterable[bytes], tail: bytes) -> int:
        """Send *rows*, each with its values in brackets, between *head* and *tail*."""
        part: list[bytes] = []
        bare = size = len(head) + len(tail)
        count = self.duplicates = 0
        for row in rows:
            if part and size + len(row) > self.max_stmt_length:
                count += self._execute_counted(head + b",".join(part) + tail)
                part, size = [], bare
            part.append(row)
            size += len(row) + 1
        count += self._execute_counted(head + b",".join(part) + tail)
        self.rowcount = count
        return count

    def _execute_counted(self, statement: bytes) -> int:
        count: int = self.execute(statement)
        told = _DUPLICATES.search(getattr(self._result, "message", None) or b"")
        if told is None or not self.connection.client_flag & CLIENT.FOUND_ROWS:
            self.duplicates = None
        elif self.duplicates is not None:
            self.duplicates += int(told[1])
        return count


def sized(limit: int) -> type[BulkCursor]:
    """The cursor class for statements of at most *limit* bytes."""
    return type("BulkCursor", (BulkCursor,), {"max_stmt_length": limit})
