"""Rows of one table on their way into it: judged one by one, then sent together.

What is stored is what storing them one by one, in their order, would have stored. Rows
of one key are merged where that comes to the same; else they go in turns, the second
row of every key after the first ones. Each turn is sorted by key: writers that take
their locks in the same order do not deadlock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy.engine import Connection

from scrapy_resume.store.columns import KEY_LENGTH
from scrapy_resume.store.items.alikekeys import folded
from scrapy_resume.store.items.judging import Judge
from scrapy_resume.store.items.rowerrors import explain
from scrapy_resume.store.items.sending import Entry, Sender
from scrapy_resume.store.items.table import Rejection, Row, Values
from scrapy_resume.store.items.targets import Target

_ESCAPED = 8  # bytes that one character may need in a statement

Key = tuple[Any, ...]


class Batch:
    """Rows of one table, to be stored in the caller's transaction.

    With *keep* those whose key is there are left out, and counted in :attr:`kept`; the table
    is then one that updates nothing, since somebody else may be faster.
    """

    def __init__(
        self,
        conn: Connection,
        target: Target,
        rows: Sequence[Row],
        now: datetime | None,
        *,
        keep: bool = False,
    ) -> None:
        self._target, self._rows, self._keep = target, rows, keep
        self.kept = 0
        self._sender = Sender(conn, target)
        self._times: Values = {}
        if target.is_default:
            assert now is not None
            time = now if target.is_mysql else _for_sqlite(now)
            self._times = dict.fromkeys(("fetched_at", "first_seen_at", "updated_at"), time)
        self._judge = Judge(target, rows)
        self.respelt: dict[int, Key] = {}  # places whose key a column's rule has changed

    def write(self, places: Sequence[int]) -> int:
        """Store the rows at *places*; returns how many keys were stored.

        Raises Outdated if the table has changed since it was looked at, ConfigurationError
        for a field without a column where that is to stop the crawl.
        """
        entries = self._entries(places)
        if self._keep:
            entries = self._absent(entries)
        in_order = self._target.in_order or self._target.brings_id(e.fields for e in entries)
        if self._target.merges and not in_order:
            entries = self._merged(entries)
        # Entries of each key that were not refused.
        left = dict.fromkeys([entry.key for entry in entries], 1)
        if len(left) < len(entries):
            left = Counter(entry.key for entry in entries)
        repeated = self._target.folds or len(left) < len(entries)
        turns = [entries] if in_order else self._turns(entries, repeated=repeated)
        for turn in turns:
            for entry, exc in self._sender.send(turn):
                left[entry.key] -= not self._refuse(entry, exc)
        return sum(map(bool, left.values()))

    @property
    def rejected(self) -> list[Rejection]:
        """The rows that are not stored."""
        return self._judge.rejected

    def _entries(self, places: Sequence[int]) -> list[Entry]:
        """The rows at *places* as what is sent, without those that are rejected."""
        if self._target.is_default:
            found = [self._default_entry(place) for place in places]
        else:
            key = self._target.declared.key
            found = []
            for place, (values, shape) in self._judge.judged(places).items():
                spelt = tuple([values[name] for name in key])
                if spelt != self._rows[place].key:
                    self.respelt[place] = spelt
                found.append(self._entry(place, spelt, values, shape.fields))
        return [entry for entry in found if entry is not None]

    def _default_entry(self, place: int) -> Entry | None:
        row = self._rows[place]
        if len(row.key[1]) > KEY_LENGTH:
            why = f"the key has {len(row.key[1])} characters, {KEY_LENGTH} are kept"
            self._judge.reject(place, "KeyTooLong", why, "item_key")
            return None
        own = row.values
        if not self._target.is_mysql:
            own = {name: _for_sqlite(value) for name, value in own.items()}
        values = {**self._times, **own}
        return self._entry(place, row.key, values, self._target.shape(tuple(values)).fields)

    def _entry(self, place: int, key: Key, values: Values, fields: frozenset[str]) -> Entry | None:
        size, limit = _characters(values), self._target.db.row_bytes
        if limit and size * _ESCAPED > limit // 2:
            limit -= self._target.statements.overhead(fields)
            if (real := _bytes(values)) > limit:
                why = f"the row has {real} bytes, the server takes {limit}"
                self._judge.reject(place, "RowTooLarge", why, None)
                return None
        return Entry(key, [place], values, fields, size)

    def _absent(self, entries: list[Entry]) -> list[Entry]:
        known = self._sender.known(entries)
        absent = [entry for entry in entries if entry.key not in known]
        self.kept += len({entry.key for entry in entries}) - len({entry.key for entry in absent})
        return absent

    def _merged(self, entries: list[Entry]) -> list[Entry]:
        merged: dict[Key, Entry] = {}
        for entry in entries:
            before = merged.get(entry.key)
            if before is not None:
                entry = self._met(before, entry)
            merged[entry.key] = entry
        return list(merged.values()) if len(merged) < len(entries) else entries

    def _met(self, before: Entry, after: Entry) -> Entry:
        values = self._target.meet(before.values, after.values)
        fields = before.fields if before.fields == after.fields else frozenset(values)
        places = [*before.places, *after.places]
        return Entry(after.key, places, values, fields, before.characters + after.characters)

    def _turns(self, entries: list[Entry], *, repeated: bool) -> list[list[Entry]]:
        turns: list[list[Entry]] = [] if repeated else [entries]
        counts: dict[Key, int] = {}
        for entry in entries if repeated else ():
            key = folded(entry.key) if self._target.folds else entry.key
            turn = counts[key] = counts.get(key, -1) + 1
            if turn == len(turns):
                turns.append([])
            turns[turn].append(entry)
        return [_sorted(turn) for turn in turns]

    def _refuse(self, entry: Entry, exc: Exception) -> bool:
        """Reject what the database refused; True if a part of what was merged is stored."""
        if len(entry.places) == 1:
            found = explain(exc, self._target.facts, entry.fields)
            self._judge.reject(entry.places[0], found.error_class, found.text, found.column)
            return False
        # Some of the rows merged may be good: store them one by one, in their order.
        stored = [self._alone(place) for place in entry.places]
        return any(stored)

    def _alone(self, place: int) -> bool:
        entries = self._entries([place])
        return bool(entries) and all(
            self._refuse(entry, exc) for entry, exc in self._sender.send(entries)
        )


def _sorted(entries: list[Entry]) -> list[Entry]:
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
            more = len(raw) if raw is value else sum(map(raw.count, (b"\\", b"'")))
            size += len(raw) + more
    return size


def _for_sqlite(value: Any) -> Any:
    return value.isoformat(" ", "microseconds") if type(value) is datetime else value
