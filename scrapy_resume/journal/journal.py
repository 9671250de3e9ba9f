"""The journal: what this worker said of its shards and the database does not hold yet.

A file in the worker's slot. A completed page is appended and is safe from then on, on this
machine; the commit to the database follows, and what is committed is trimmed. Records
keep the order in which they were given, those of all shards together, and are settled in
that order, so a finish cannot overtake its pages. With them goes where each shard stood
after the last of its trimmed records: its base.

Bodies are opaque here: what they mean is the business of ``journalcodec``. Appending is all
or nothing, with one fsync for all that is given at once. A damaged file is no reason not to
start: what can be read of it is kept (``repair``).

Everything but the counts is for one thread at a time.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from scrapy_resume import faults
from scrapy_resume.exceptions import JournalFailed
from scrapy_resume.journal import beside, file, repair
from scrapy_resume.journal.contents import Entry, Given, Notes, is_another
from scrapy_resume.journal.file import Record
from scrapy_resume.journal.repair import Found
from scrapy_resume.journal.writer import Writer

_READ_AT_ONCE = 16 * 1024 * 1024  # bytes of bodies
_TAILS = 5000  # shards whose latest record is remembered although it is settled
_BASE, _META = "shard ", "meta "  # how the names of notes begin


class Journal:
    """The journal of one slot, whose lock the caller holds.

    *damage* says what was wrong with the file that was found, if anything was; *last* is the
    highest number a record ever had.
    """

    def __init__(self, path: Path, found: Found) -> None:
        self.path = path
        self.last, self._lost = found.contents.last, 0  # of _lost: up to which records are
        self._floor, self._closed = found.contents.settled, False
        self._tails = found.contents.tails
        self._notes = Notes(found.contents.notes)
        self._use(found)
        self._written_floor = self._floor

    def _use(self, found: Found) -> None:
        self._writer = Writer(self.path, found.conn, found.contents.file_id)
        self._live, self.damage = found.contents.live, found.damage

    @property
    def records(self) -> int:
        """How many records are not settled."""
        return self._live.records

    @property
    def pages(self) -> int:
        """How many of them are pages."""
        return self._live.pages

    @property
    def size(self) -> int:
        """The bytes of their bodies."""
        return self._live.size

    @classmethod
    def open(cls, path: Path, *, meta: Mapping[str, str]) -> Journal:
        """Open the journal at *path*, made if it is missing.

        *meta* names the ``database`` (its id, "" while unknown) and its ``address``: a file of
        another database is set aside. Raises JournalFailed if the file can neither be used
        nor be set aside; a crawl can do without one.
        """
        journal = cls.find(path, meta=meta)
        if journal is None:
            journal = cls(path, repair.begin_anew(path))
        for name, value in meta.items():
            if value or name not in journal.meta:
                journal.set_meta(name, value)
        return journal

    @classmethod
    def find(cls, path: Path, *, meta: Mapping[str, str]) -> Journal | None:
        """As :meth:`open`, but None for a file of another database, which is left alone."""
        journal = cls(path, repair.open_file(path))
        if is_another(journal.meta, meta):
            journal.close()
            return None
        return journal

    def append(self, entries: Sequence[Given]) -> list[int]:
        """Keep *entries*: shard id, fencing token, kind, page and body of each, in their order.

        Once this returns their numbers, which only ever grow, they are on the disk. Raises
        JournalFailed, and nothing of them is kept.
        """
        prior = self._live.last or self._floor
        records = file.chained(entries, self.last, prior, self._floor, self._tails)
        trimmed = self._write(records)
        for one in records:
            self.last = self._tails[one.shard_id] = one.seq
            self._live.add(one.seq, one.kind == "page", len(one.body))
        faults.point("journal.synced")
        if trimmed:
            faults.point("journal.trimmed")
        return [one.seq for one in records]

    def trim(self, upto: int, bases: Mapping[int, bytes | None] | None = None) -> None:
        """Forget every record up to number *upto*: it is settled. None drops a shard's base.

        Only remembered, and written with the next append. If the process dies before that,
        settled records are found again, and settling them again does nothing.
        """
        self._floor = max(self._floor, min(upto, self.last))
        self._live.forget(self._floor)
        if len(self._tails) > _TAILS:
            self._tails = {shard: seq for shard, seq in self._tails.items() if seq > self._floor}
        for shard_id, base in (bases or {}).items():
            self._notes.put(f"{_BASE}{shard_id}", base)

    def flush(self) -> None:
        """Write what is only remembered. Raises JournalFailed; it stays remembered then."""
        remembered = self._notes.unwritten or self._floor > self._written_floor
        if remembered and not self._closed and self._write([]):
            faults.point("journal.trimmed")

    def entries(self, after: int = 0, limit: int = 1000) -> list[Entry]:
        """At most *limit* records behind number *after*, in order, fewer if they are large.

        Empty only if there are none. Raises JournalFailed.
        """
        found: list[Entry] = []
        size = 0
        for entry in self._read("seq > ? ORDER BY seq LIMIT ?", max(after, self._floor), limit):
            found.append(entry)
            size += len(entry.body)
            if size >= _READ_AT_ONCE:
                break
        return found

    def read(self, seqs: Sequence[int]) -> list[bytes]:
        """The bodies of the records *seqs*. Raises JournalFailed if one cannot be had."""
        bodies = [entry.body for seq in seqs for entry in self._read("seq = ?", seq)]
        if len(bodies) != len(seqs):
            raise self._failure("it has lost records")
        return bodies

    def bases(self) -> dict[int, bytes]:
        """By shard id, where the shards stood that this worker held, as trim() was told."""
        return {int(name): value for name, value in self._notes.named(_BASE)}

    @property
    def meta(self) -> dict[str, str]:
        """What is kept of the file as a whole."""
        return {name: value.decode() for name, value in self._notes.named(_META)}

    def set_meta(self, name: str, value: str) -> None:
        """Keep *value* under *name*; written with the next append."""
        self._notes.put(f"{_META}{name}", value.encode())

    def set_aside(self, why: str) -> Path | None:
        """Close it and give the file a name that says *why*; returns that, None if it is gone."""
        self.close()
        return beside.set_aside(self.path, why)

    def close(self) -> None:
        """Write what is remembered, as far as that can be, and let the file go."""
        with suppress(JournalFailed):
            self.flush()
        self._closed = True
        self._writer.close(is_empty=not self._live.records)

    def _write(self, records: list[Record]) -> bool:
        """Write *records* and what is remembered, all of it or nothing. Raises JournalFailed.

        Returns whether anything was trimmed by it.
        """
        if self._closed:
            raise self._failure("it is closed")
        if self._lost > self._floor:
            raise self._failure("records were lost; it is used again once all others are stored")
        try:
            if self._writer.is_gone() and self._live.records:
                self._renew("it was removed while in use")
            elif self._writer.is_gone():
                self._begin_anew()
            return self._transact(records)
        except sqlite3.Error as error:
            self._remedy(error)
            try:
                return self._transact(records)
            except sqlite3.Error as again:
                raise self._failure(str(again)) from again

    def _remedy(self, error: sqlite3.Error) -> None:
        """Do what may let the transaction that failed with *error* succeed."""
        if type(error) is sqlite3.DatabaseError:  # not a subclass: the file itself is broken
            self._renew(str(error))
        elif self._live.records:
            self._writer.make_room()
        else:
            self._begin_anew()

    def _transact(self, records: list[Record]) -> bool:
        trims = self._floor > self._written_floor
        unwritten = self._notes.unwritten
        self._writer.write(records, unwritten, upto=self._floor if trims else None)
        self._written_floor = self._floor
        unwritten.clear()
        return trims

    def _begin_anew(self) -> None:
        """Give all its room back, since nothing is in it. Raises JournalFailed."""
        self._move_to(repair.empty(self.path, self._writer.conn))

    def _renew(self, reason: str) -> None:
        """Go on in a new file, with all that this one still holds. Raises JournalFailed."""
        known = self._live.records
        self._move_to(repair.renew(self.path, self._writer.conn, reason))
        if self._live.records < known:
            self._lost = self.last
            raise self._failure(f"{known - self._live.records} of its records were lost")

    def _move_to(self, found: Found) -> None:
        """Go on in a new file, which is yet to be told everything but its records."""
        self._use(found)
        self._live.forget(self._floor)
        self._notes.write_all()
        self._written_floor = -1

    def _read(self, where: str, *values: int) -> Iterator[Entry]:
        writer = self._writer
        try:
            for record in file.read(writer.conn, writer.file_id, where, *values):
                if record is None:
                    raise self._failure("a record is damaged")
                one = record
                yield Entry(one.seq, one.shard_id, one.token, one.kind, one.page, one.body)
        except file.UNREADABLE as error:
            raise self._failure(str(error)) from error

    def _failure(self, what: str) -> JournalFailed:
        return JournalFailed(
            f"the journal {self.path} cannot be used now: {what};"
            " make room on its disk or mend what is wrong with it, it is tried again"
        )
