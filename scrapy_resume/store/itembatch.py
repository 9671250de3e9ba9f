"""Sending the rows of one table: merged by key, sorted, in few statements.

Rows are merged by key (as if stored one by one, in their order), grouped by their set
of fields, and each group is sorted by key: writers that take their locks in the same
order do not deadlock. A row that the database refuses is found by halving and handed
back; the others are stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any, NamedTuple

from sqlalchemy.engine import Connection

from scrapy_resume.store.columns import KEY_LENGTH
from scrapy_resume.store.engine import Database
from scrapy_resume.store.errors import describe, error_kind
from scrapy_resume.store.itemtable import Rejection, Row, Values
from scrapy_resume.store.itemtargets import Target

_ROWS = 1000  # of one statement at most
_ESCAPED = 8  # bytes that one character may need in a statement


class _Entry(NamedTuple):
    """One key: the places of the rows merged into it, what is sent, and its size."""

    key: tuple[Any, ...]
    places: list[int]
    values: Values
    characters: int


class Batch:
    """Rows of one table on their way into it."""

    def __init__(
        self, conn: Connection, db: Database, target: Target, rows: Sequence[Row], now: datetime
    ) -> None:
        self._conn, self._db, self._target, self._rows = conn, db, target, rows
        names = ("fetched_at", "first_seen_at", "updated_at") if target.is_default else ()
        self._times: Values = dict.fromkeys(
            names, now if target.plain else now.isoformat(" ", "microseconds")
        )
        self.rejected: list[Rejection] = []

    def write(self, places: Sequence[int]) -> int:
        """Store the rows at *places*; returns how many keys were stored."""
        entries = self._merge(places)
        missing = 0
        for fields, group in self._by_fields(entries):
            for part in self._parts(group):
                missing += self._send(fields, part)
        return len(entries) - missing

    def _merge(self, places: Sequence[int]) -> list[_Entry]:
        merged: dict[tuple[Any, ...], _Entry] = {}
        rows, times, plain = self._rows, self._times, self._target.plain
        for place in places:
            row = rows[place]
            size = _characters(row.values)
            if (why := self._unfit(row, size)) is not None:
                self.rejected.append(Rejection(place, *why))
                continue
            values = {**times, **(row.values if plain else _for_sqlite(row.values))}
            before = merged.get(row.key)
            if before is None:
                merged[row.key] = _Entry(row.key, [place], values, size)
            else:
                values = self._target.meet(before.values, values)
                both = before.characters + size
                merged[row.key] = _Entry(row.key, [*before.places, place], values, both)
        return list(merged.values())

    def _unfit(self, row: Row, characters: int) -> tuple[str, str] | None:
        """What no database may take, decided here so that all decide alike."""
        if None in row.key:
            columns = zip(self._target.declared.key, row.key, strict=False)
            empty = [name for name, value in columns if value is None]
            return "NoKey", f"the key field {empty[0] if empty else '?'} is empty"
        if self._target.is_default and len(row.key[1]) > KEY_LENGTH:
            return "KeyTooLong", f"the key has {len(row.key[1])} characters, {KEY_LENGTH} are kept"
        limit = self._db.row_bytes
        if limit and characters * _ESCAPED > limit and (size := _bytes(row.values)) > limit:
            return "RowTooLarge", f"the row has {size} bytes, the server takes {limit}"
        return None

    def _by_fields(self, entries: list[_Entry]) -> Iterator[tuple[frozenset[str], list[_Entry]]]:
        known: dict[tuple[str, ...], frozenset[str]] = {}
        groups: dict[frozenset[str], list[_Entry]] = {}
        for entry in entries:
            names = tuple(entry.values)
            fields = known.get(names)
            if fields is None:
                fields = known[names] = frozenset(names)
            groups.setdefault(fields, []).append(entry)
        for fields in sorted(groups, key=sorted):
            yield fields, _sorted(groups[fields])

    def _parts(self, entries: list[_Entry]) -> Iterator[list[_Entry]]:
        limit = self._db.statement_bytes
        part: list[_Entry] = []
        size = 0
        for entry in entries:
            if part and (len(part) >= _ROWS or size + entry.characters > limit):
                yield part
                part, size = [], 0
            part.append(entry)
            size += entry.characters
        if part:
            yield part

    def _send(self, fields: frozenset[str], part: list[_Entry]) -> int:
        """Send *part* with as few statements as its bad rows allow; returns how many are bad."""
        try:
            statement = self._target.statement(fields)
            rows = [statement.parameters(entry.values) for entry in part]
            self._conn.exec_driver_sql(statement.text, rows)
        except Exception as exc:
            if error_kind(exc) != "row":
                raise
            if len(part) == 1:
                return self._refuse(part[0], exc)
            half = len(part) // 2
            return self._send(fields, part[:half]) + self._send(fields, part[half:])
        return 0

    def _refuse(self, entry: _Entry, exc: Exception) -> int:
        if len(entry.places) == 1:
            why = (type(getattr(exc, "orig", None) or exc).__name__, describe(exc))
            self.rejected.append(Rejection(entry.places[0], *why))
            return 1
        # Some of the rows merged may be good: store them one by one, in their order.
        return min(self._alone(place) for place in entry.places)

    def _alone(self, place: int) -> int:
        (entry,) = self._merge([place])
        return self._send(frozenset(entry.values), [entry])


def _sorted(entries: list[_Entry]) -> list[_Entry]:
    try:
        return sorted(entries, key=lambda entry: entry.key)
    except TypeError:  # keys of several types
        return sorted(entries, key=lambda entry: repr(entry.key))


def _characters(values: Values) -> int:
    size = 0
    for value in values.values():
        if type(value) is str or type(value) is bytes:
            size += len(value)
    return size


def _bytes(values: Values) -> int:
    size = 0
    for value in values.values():
        if isinstance(value, (str, bytes)):
            raw = value.encode("utf-8", "replace") if isinstance(value, str) else value
            size += len(raw) + sum(raw.count(sign) for sign in b"\\'\"\0\n\r\x1a")
    return size


def _for_sqlite(values: Values) -> Values:
    for value in values.values():
        if isinstance(value, (date, Decimal)):  # a datetime is a date
            return {name: _plain(value) for name, value in values.items()}
    return values


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat(" ")
    return str(value) if isinstance(value, (date, Decimal)) else value
