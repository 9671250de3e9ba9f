"""The journal's SQLite file: its tables, its checksums, and whether it is sound.

Two tables. ``record`` holds what was said of shards, in the order it was said; ``note``
what goes with it: where each shard stood, which database it is for. Each row has a
checksum that covers all of it and the file's own id: SQLite checks the pages of its log,
but not those of the file, and takes the log of another file for its own. A record names the
one before it, and the one of its shard before it, so a hole is seen whatever made it.

While it is in use the file is in WAL mode and locked against everybody else. One that was
closed in order is not, so it can be told when a log has gone missing.
"""

from __future__ import annotations

import secrets
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scrapy_resume.journal.contents import Contents, Given

UNREADABLE = (sqlite3.Error, UnicodeDecodeError)
"""What reading a damaged file raises; the second for what SQLite quotes of it in its messages."""

SETTLED = "settled"  # the note that names the highest record that was forgotten

_PATIENCE = 5.0  # seconds for another program that looks into the file
_PRAGMAS = (
    "locking_mode = EXCLUSIVE",  # which needs no shared memory, so no room on the disk
    "synchronous = FULL",
    "secure_delete = OFF",
    "trusted_schema = OFF",
    "cell_size_check = ON",
)
_TABLES = (
    "CREATE TABLE record (seq INTEGER PRIMARY KEY, shard_id INTEGER NOT NULL,"
    " token INTEGER NOT NULL, kind TEXT NOT NULL, page INTEGER, prior INTEGER NOT NULL,"
    " before INTEGER NOT NULL, settled INTEGER NOT NULL, crc INTEGER NOT NULL,"
    " body BLOB NOT NULL)",
    "CREATE TABLE note (name TEXT PRIMARY KEY, crc INTEGER NOT NULL, value BLOB NOT NULL)"
    " WITHOUT ROWID",
)
_COLUMNS = "seq, shard_id, token, kind, page, prior, before, settled, crc, body"
_INSERT = f"INSERT INTO record ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_NOTE = "INSERT OR REPLACE INTO note (name, crc, value) VALUES (?, ?, ?)"


class Damaged(Exception):
    """The file is not what was written; the text says how that shows."""


@dataclass(frozen=True, slots=True)
class Record:
    """A row of ``record``.

    *prior* is the record before it, *before* the one of its shard before it, 0 for none;
    *settled* the highest that had been forgotten when it was written.
    """

    seq: int
    shard_id: int
    token: int
    kind: str
    page: int | None
    prior: int
    before: int
    settled: int
    body: bytes

    def crc(self, file_id: int) -> int:
        """Its checksum in the file *file_id*."""
        head = (
            f"{file_id} {self.seq} {self.shard_id} {self.token} {self.kind} {self.page}"
            f" {self.prior} {self.before} {self.settled}"
        )
        return zlib.crc32(self.body, zlib.crc32(head.encode()))


def chained(
    entries: Iterable[Given], last: int, prior: int, settled: int, tails: Mapping[int, int]
) -> list[Record]:
    """*entries* as the records behind number *last*; *tails* are the shards' latest ones."""
    records, latest = [], dict[int, int]()
    for seq, (shard_id, token, kind, page, body) in enumerate(entries, last + 1):
        before = latest.get(shard_id) or tails.get(shard_id, 0)
        records.append(Record(seq, shard_id, token, kind, page, prior, before, settled, body))
        prior = latest[shard_id] = seq
    return records


def connect(path: Path) -> sqlite3.Connection:
    """A connection that any one thread may use. Raises UNREADABLE."""
    conn = sqlite3.connect(path, timeout=_PATIENCE, isolation_level=None, check_same_thread=False)
    try:
        for pragma in _PRAGMAS:
            conn.execute(f"PRAGMA {pragma}")
    except BaseException:
        conn.close()
        raise
    return conn


def create(path: Path) -> tuple[sqlite3.Connection, int]:
    """A new, empty file at *path*, and its id. Raises sqlite3.Error."""
    conn, file_id = connect(path), 1 + secrets.randbelow(2**31 - 1)
    try:
        conn.execute(f"PRAGMA application_id = {file_id}")
        conn.execute("BEGIN IMMEDIATE")
        for statement in _TABLES:
            conn.execute(statement)
        put_notes(conn, file_id, {"file": b"%d" % file_id, SETTLED: b"0"})
        conn.execute("COMMIT")
    except BaseException:
        conn.close()
        raise
    return conn, file_id


def put_records(conn: sqlite3.Connection, file_id: int, records: list[Record]) -> None:
    """Write *records* in the caller's transaction."""
    conn.executemany(
        _INSERT,
        [
            (r.seq, r.shard_id, r.token, r.kind, r.page, r.prior, r.before, r.settled,
             r.crc(file_id), r.body)
            for r in records
        ],
    )  # fmt: skip


def put_notes(conn: sqlite3.Connection, file_id: int, notes: dict[str, bytes]) -> None:
    """Write *notes* in the caller's transaction, over those of the same names."""
    conn.executemany(
        _NOTE, [(name, _note_crc(file_id, name, value), value) for name, value in notes.items()]
    )


def inspect(conn: sqlite3.Connection) -> Contents:
    """What the file holds. Raises Damaged or UNREADABLE if it is not what was written."""
    for (answer,) in conn.execute("PRAGMA quick_check(1)"):
        if answer != "ok":
            raise Damaged(" ".join(str(answer).split()))
    found = Contents(conn.execute("PRAGMA application_id").fetchone()[0])
    found.notes = dict(read_notes(conn, found.file_id, strict=True))
    if not {"file", SETTLED} <= found.notes.keys():
        raise Damaged("a note is missing")
    found.settled = found.last = int(found.notes[SETTLED])
    for row in conn.execute(f"SELECT {_COLUMNS} FROM record ORDER BY seq"):
        record = _checked(row, found.file_id)
        if record is None:
            raise Damaged(f"the checksum of record {row[0]} is wrong")
        if record.prior > found.last or (found.live.records and record.prior < found.last):
            raise Damaged(f"a record before {record.seq} is missing")
        found.last = found.tails[record.shard_id] = record.seq
        found.live.add(record.seq, record.kind == "page", len(record.body))
    return found


def file_id_of(conn: sqlite3.Connection) -> int:
    """The file's id. It is there twice, since without it no checksum says anything."""
    number = 0
    try:
        number = conn.execute("PRAGMA application_id").fetchone()[0]
        for crc, value in conn.execute("SELECT crc, value FROM note WHERE name = 'file'"):
            if _note_crc(int(value), "file", value) == crc:
                return int(value)
    except (*UNREADABLE, TypeError, ValueError):
        pass
    return number


def read_notes(
    conn: sqlite3.Connection, file_id: int, *, strict: bool = False
) -> Iterator[tuple[str, bytes]]:
    """The notes as name and value; a wrong one is left out, if *strict* it raises Damaged."""
    for name, crc, value in conn.execute("SELECT name, crc, value FROM note"):
        if isinstance(value, bytes) and _note_crc(file_id, name, value) == crc:
            yield name, value
        elif strict:
            raise Damaged("the checksum of a note is wrong")


def read(
    conn: sqlite3.Connection, file_id: int, where: str, *values: int
) -> Iterator[Record | None]:
    """The records of ``WHERE`` *where* in order; None for each that is not as it was written."""
    query = f"SELECT {_COLUMNS} FROM record WHERE {where}"
    return (_checked(row, file_id) for row in conn.execute(query, values))


def _checked(row: tuple[Any, ...], file_id: int) -> Record | None:
    try:
        seq, shard_id, token, kind, page, prior, before, settled, crc, body = row
        record = Record(seq, shard_id, token, kind, page, prior, before, settled, body)
        return record if record.crc(file_id) == crc else None
    except (TypeError, ValueError):  # a text where bytes belong
        return None


def _note_crc(file_id: int, name: str, value: bytes) -> int:
    return zlib.crc32(value, zlib.crc32(f"{file_id} {name}".encode()))
