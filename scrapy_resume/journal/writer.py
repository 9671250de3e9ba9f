"""Writing to the journal's open file: transactions that are kept as a whole or not at all."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from scrapy_resume import faults
from scrapy_resume.journal import file
from scrapy_resume.journal.file import SETTLED, Record

_KEPT_SIZE = 16 * 1024 * 1024  # bytes that a file without a record may keep when it is closed


class Writer:
    """Writes through *conn* to the file *path*, whose id is *file_id*."""

    def __init__(self, path: Path, conn: sqlite3.Connection, file_id: int) -> None:
        self.conn, self.file_id = conn, file_id
        self._path = str(path)
        self._inode = os.stat(self._path).st_ino
        self._is_wal = False

    def write(
        self, records: list[Record], notes: Mapping[str, bytes | None], *, upto: int | None
    ) -> None:
        """Forget the records up to number *upto*, change *notes*, and append *records*.

        All of it is on the disk when this returns. Raises sqlite3.Error, and nothing is.
        """
        self._keep_log()
        self.conn.execute("BEGIN IMMEDIATE")
        try:
            self._put(notes, upto)
            if records:
                file.put_records(self.conn, self.file_id, records)
                faults.point("journal.append")
            self.conn.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                self.conn.execute("ROLLBACK")
            raise

    def _put(self, notes: Mapping[str, bytes | None], upto: int | None) -> None:
        kept = {name: value for name, value in notes.items() if value is not None}
        gone = [(name,) for name, value in notes.items() if value is None]
        if upto is not None:
            self.conn.execute("DELETE FROM record WHERE seq <= ?", (upto,))
            kept[SETTLED] = b"%d" % upto
        if kept:
            file.put_notes(self.conn, self.file_id, kept)
        if gone:
            self.conn.executemany("DELETE FROM note WHERE name = ?", gone)

    def _keep_log(self) -> None:
        """Put the file into WAL mode before it is first written to, not before: that writes."""
        if not self._is_wal:
            mode = self.conn.execute("PRAGMA journal_mode = WAL").fetchone()[0]
            if mode != "wal":
                raise sqlite3.OperationalError("SQLite cannot keep a log beside it")
            self._is_wal = True

    def make_room(self) -> None:
        """Give the log's room in the file system back to the log: a full disk has no other."""
        with suppress(sqlite3.Error):
            self.conn.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def is_gone(self) -> bool:
        """Whether the file is no longer where it was, so that no start would find it."""
        try:
            return os.stat(self._path).st_ino != self._inode
        except OSError:
            return True

    def close(self, *, is_empty: bool) -> None:
        """Let the file go, in a state that says that it was closed in order."""
        with suppress(sqlite3.Error, OSError):
            if is_empty and os.stat(self._path).st_size > _KEPT_SIZE:
                self.conn.execute("VACUUM")
            self.conn.execute("PRAGMA journal_mode = DELETE")
        with suppress(sqlite3.Error):
            self.conn.close()
