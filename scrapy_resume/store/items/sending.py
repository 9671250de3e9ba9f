"""Sending rows in as few statements as their fields, their size and bad ones among them allow.

Transactions that write the same keys do not deadlock as long as each takes its locks in
the order of the keys. Rows with different fields need different statements, so where
they lie mixed, every row is first inserted or locked in the order of the keys, whatever
its fields, by one statement that changes no row which is there. After it the rows can
be changed group by group in any order.

A row that the database refuses is found by halving: of n rows, one bad row costs at
most 2 log2(n) + 2 statements more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from sqlalchemy.engine import Connection, CursorResult

from scrapy_resume.exceptions import ConfigurationError
from scrapy_resume.store.errors import error_kind, is_made_up
from scrapy_resume.store.items.rowerrors import is_outdated, may_be_there
from scrapy_resume.store.items.statements import Prepared
from scrapy_resume.store.items.table import Values
from scrapy_resume.store.items.targets import Outdated, Target
from scrapy_resume.store.items.upserts import Default

_ROWS = 1000  # of one statement at most
_IN_LIST = 900  # keys; MariaDB joins a longer list as a table of its own
_WORTH = 20  # rows that take about as long as a statement more
_DEFAULT = Default()


class Entry(NamedTuple):
    """What is sent for a key, the places of the rows it is made of, and its size."""

    key: tuple[Any, ...]
    places: list[int]
    values: Values
    fields: frozenset[str]
    characters: int


Send = Callable[[Sequence[Entry]], None]
Refused = list[tuple[Entry, Exception]]


class Sender:
    """Sends entries to one table, inside the caller's transaction."""

    def __init__(self, conn: Connection, target: Target) -> None:
        self._conn, self._target = conn, target
        self._statements = target.statements
        self._refused: Refused = []

    def send(self, entries: Sequence[Entry]) -> Refused:
        """Store *entries*; returns those that the database refuses, each with its error.

        Raises Outdated if the table or a column is gone, and what befell the transaction.
        """
        self._refused = []
        with_ids = self._target.brings_id(entry.fields for entry in entries)
        if self._target.careful or (with_ids and self._target.is_mysql):
            for part in self._parts(entries):
                self._send_carefully(part)
            return self._refused
        groups: dict[frozenset[str], list[Entry]] = {}
        for entry in entries:
            groups.setdefault(entry.fields, []).append(entry)
        if len(groups) < 2:
            return self._upsert(entries)
        runs = [list(run) for _, run in groupby(entries, lambda entry: entry.fields)]
        if self._target.in_order or with_ids or len(runs) <= len(groups) + len(entries) // _WORTH:
            return self._upsert(*runs)
        if self._target.is_mysql and not self._target.triggered:
            entries = self._lock(entries)
            groups = {fields: [e for e in entries if e.fields == fields] for fields in groups}
        return self._upsert(*(groups[fields] for fields in sorted(groups, key=sorted)))

    def _upsert(self, *groups: Sequence[Entry]) -> Refused:
        """Store each group of *groups*, whose entries have the same fields."""
        for group in groups:
            if group:
                self._store(group, self._statements.upsert(group[0].fields))
        return self._refused

    def _store(self, group: Sequence[Entry], prepared: Prepared) -> None:
        def send(part: Sequence[Entry]) -> None:
            self._run(prepared, [prepared.parameters(entry.values) for entry in part])

        for part in self._parts(group):
            self._try(part, send)

    def _lock(self, entries: Sequence[Entry]) -> list[Entry]:
        """Insert or lock every row; returns those that may still have to be changed."""
        every = frozenset[str]().union(*(entry.fields for entry in entries))
        prepared = self._statements.keep(every)
        defaults: Values = dict.fromkeys(every, _DEFAULT)
        there: list[Entry] = []

        def send(part: Sequence[Entry]) -> None:
            rows = [prepared.parameters(defaults | entry.values) for entry in part]
            if getattr(self._run(prepared, rows).context.cursor, "duplicates", None) != 0:
                there.extend(part)

        for part in self._parts(entries):
            self._try(part, send)
        return there

    def _try(self, part: Sequence[Entry], send: Send) -> None:
        """Send *part* with as few statements as its bad rows allow."""
        error = self._attempt(part, send)
        if error is not None:
            self._halve(part, send, error)

    def _halve(self, part: Sequence[Entry], send: Send, error: Exception) -> None:
        """Send the good rows of *part*, which has a bad one."""
        if len(part) == 1:
            self._refused.append((part[0], error))
            return
        left, right = part[: len(part) // 2], part[len(part) // 2 :]
        found = self._attempt(left, send)
        if found is not None:
            self._halve(left, send, found)
        if found is not None or len(right) == 1:
            self._try(right, send)
        else:  # the bad row is in the right half
            self._halve(right, send, error)

    def _attempt(self, part: Sequence[Entry], send: Send) -> Exception | None:
        """Send *part*; returns the error if it is the fault of a row."""
        try:
            send(part)
        except Exception as exc:
            if is_outdated(exc):
                raise Outdated from exc
            if error_kind(exc) != "row" and not (self._target.triggered and is_made_up(exc)):
                raise
            self._require_transaction()
            return exc
        return None

    def _require_transaction(self) -> None:
        """What follows must not be committed without what went before."""
        driver: Any = self._conn.connection.dbapi_connection
        if not getattr(driver, "in_transaction", True):  # SQLite's driver knows
            raise ConfigurationError(
                f"the item table {self._target.name} undoes the whole transaction where it refuses"
                " a row; its triggers and constraints must ABORT instead of ROLLBACK"
            )

    def _run(self, prepared: Prepared, rows: list[Any]) -> CursorResult[Any]:
        return self._conn.exec_driver_sql(prepared.text, rows)

    def _parts(self, entries: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
        if len(entries) <= _ROWS and sum(e.characters for e in entries) <= self._limit:
            yield entries
            return
        part: list[Entry] = []
        size = 0
        for entry in entries:
            if part and (len(part) >= _ROWS or size + entry.characters > self._limit):
                yield part
                part, size = [], 0
            part.append(entry)
            size += entry.characters
        yield part

    @property
    def _limit(self) -> int:
        return self._target.db.statement_bytes

    def _send_carefully(self, part: Sequence[Entry]) -> None:
        """Insert the new rows and change those that are there, each by its own key.

        Thus no row is struck whose key is another, whichever unique index it offends.
        """
        before = len(self._refused)
        known = self.known(part)
        if len(self._refused) > before:
            refused = {id(entry) for entry, _ in self._refused[before:]}
            part = [entry for entry in part if id(entry) not in refused]
        new: list[Entry] = []
        for entry in part:
            if new and (entry.key in known or entry.fields != new[0].fields):
                known -= self._insert(new)
                new = []
            if entry.key in known:
                self._change(entry)
            else:
                new.append(entry)
                known.add(entry.key)
        if new:
            self._insert(new)

    def known(self, part: Sequence[Entry]) -> set[tuple[Any, ...]]:
        """The keys of *part* that are there; refuses keys that cannot be looked for."""
        known: set[tuple[Any, ...]] = set()

        def look(some: Sequence[Entry]) -> None:
            keys = list({entry.key: None for entry in some})
            found = self._conn.execute(self._statements.locked(keys))
            known.update(map(self._target.key_as_sent, found))

        for at in range(0, len(part), _IN_LIST):
            self._try(part[at : at + _IN_LIST], look)
        return known

    def _insert(self, new: list[Entry]) -> set[tuple[Any, ...]]:
        """Insert *new*; returns the keys of those that the database refuses."""
        before = len(self._refused)
        self._store(new, self._statements.insert(new[0].fields))
        refused, self._refused = self._refused[before:], self._refused[:before]
        for entry, error in refused:
            if may_be_there(error) and self.known([entry]):  # somebody else was faster
                self._change(entry)
            else:
                self._refused.append((entry, error))
        return {entry.key for entry, _ in self._refused[before:]}

    def _change(self, entry: Entry) -> None:
        if self._target.probed:  # a CHECK looks at the whole row, also where it changes nothing
            before = len(self._refused)
            self._store([entry], self._statements.keep(entry.fields))
            if len(self._refused) > before:
                return
        prepared = self._statements.change(entry.fields)
        if prepared is not None:
            self._try([entry], lambda part: self._change_one(prepared, part[0]))

    def _change_one(self, prepared: Prepared, entry: Entry) -> None:
        self._conn.exec_driver_sql(prepared.text, prepared.parameters(entry.values))
