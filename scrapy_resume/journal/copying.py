"""What can be read of a damaged journal, copied into a new file.

Of a shard only what came before its first lost record: what its owner said later may build on
what is gone.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from scrapy_resume.journal import file
from scrapy_resume.journal.file import SETTLED, UNREADABLE, Record

_PROBES = 10_000  # records that are asked for one by one behind the last readable one


def copy(conn: sqlite3.Connection | None, part: Path) -> int:
    """Make *part* of what can be read through *conn*; returns how many records are lost."""
    new, file_id = file.create(part)
    try:
        if conn is None:
            return 0
        new.execute("BEGIN IMMEDIATE")
        old_id = file.file_id_of(conn)
        floor, lost = _floor(conn, old_id), 0
        for record in _unbroken(conn, old_id, floor):
            if record is None:
                lost += 1
            else:
                file.put_records(new, file_id, [record])
        notes = _notes(conn, old_id) | {SETTLED: b"%d" % floor}
        file.put_notes(new, file_id, notes)
        new.execute("COMMIT")
        return lost
    finally:
        new.close()


def _unbroken(conn: sqlite3.Connection, file_id: int, floor: int) -> Iterator[Record | None]:
    """The records that may be used, each joined to the one before it; None for one that is lost."""
    prior, tails = floor, dict[int, int]()
    for record in _everything(conn, file_id):
        if record is None:
            yield None
        elif record.seq <= prior:  # settled, or met before in what is left of the file's order
            continue
        elif record.before > floor and tails.get(record.shard_id) != record.before:
            yield None
        else:
            parts = {name: getattr(record, name) for name in Record.__slots__}
            yield Record(**parts | {"prior": prior, "settled": floor})
            prior = tails[record.shard_id] = record.seq


def _floor(conn: sqlite3.Connection, file_id: int) -> int:
    """The highest record known to have been forgotten: by the note, else by later records."""
    known = (one.settled for one in _everything(conn, file_id) if one is not None)
    return max(int(_notes(conn, file_id).get(SETTLED, b"0")), max(known, default=0))


def _notes(conn: sqlite3.Connection, file_id: int) -> dict[str, bytes]:
    notes: dict[str, bytes] = {}
    with suppress(*UNREADABLE):
        for name, value in file.read_notes(conn, file_id):
            if name != "file":
                notes[name] = value
    return notes


def _everything(conn: sqlite3.Connection, file_id: int) -> Iterator[Record | None]:
    """All that can be read of a damaged file, in order; None for what cannot.

    Where reading on fails, the rest is asked for one by one.
    """
    last = 0
    try:
        for record in file.read(conn, file_id, "seq > 0 ORDER BY seq"):
            yield record
            last = record.seq if record else last
        return
    except UNREADABLE:
        yield None
    for seq in range(last + 1, max(last + _PROBES, _highest(conn)) + 1):
        try:
            yield from file.read(conn, file_id, "seq = ?", seq)
        except UNREADABLE:
            continue


def _highest(conn: sqlite3.Connection) -> int:
    try:
        return min(int(conn.execute("SELECT max(seq) FROM record").fetchone()[0]), 2**40)
    except (*UNREADABLE, TypeError, ValueError):
        return 0
