"""Opening the journal's file in whatever state it is found.

A sound file is used as it is. Of any other, what can be read is copied into a new one, and the
old one is set aside beside it, never deleted.
"""

from __future__ import annotations

import logging
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from scrapy_resume.exceptions import JournalFailed
from scrapy_resume.journal import beside, copying, file, wal
from scrapy_resume.journal.contents import Contents
from scrapy_resume.journal.file import UNREADABLE, Damaged

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Damage:
    """What was wrong with a journal, and what became of it.

    *path* is where it, or its log, was set aside; None if nothing was left of it to keep. *kept*
    records are used; *lost* is how many are known not to be, which may not be all.
    """

    reason: str
    path: Path | None
    kept: int
    lost: int

    def __str__(self) -> str:
        aside = "" if self.path is None else f"; set aside as {self.path}"
        lost = f"at least {self.lost}" if self.lost else "an unknown number"
        return f"journal damaged ({self.reason}): {self.kept} records used, {lost} lost{aside}"


@dataclass
class Found:
    """An open file, what it holds, and what was wrong with it."""

    conn: sqlite3.Connection
    contents: Contents
    damage: Damage | None = None


def open_file(path: Path) -> Found:
    """The journal at *path*, made if it is missing. Raises JournalFailed."""
    with _failing(path):
        beside.put_in_place(path)
        if not any(beside.family(path)):
            return _replace(None, path)
        if wal.is_foreign(path):
            return _without_its_log(path)
        missing = wal.is_missing(path)
        found = _sound(path)
        if missing and found.damage is None:
            found.damage = _told("its log has gone", None, found.contents.live.records, 0)
        return found


def renew(path: Path, conn: sqlite3.Connection, reason: str) -> Found:
    """A new file with what can be read through *conn*. Raises JournalFailed."""
    with _failing(path):
        return _replace(conn, path, reason)


def empty(path: Path, conn: sqlite3.Connection) -> Found:
    """A new file instead of one that has no record in it, which goes. Raises JournalFailed."""
    with _failing(path):
        conn.close()
        for one in beside.family(path):
            one.unlink()
        return _replace(None, path)


def begin_anew(path: Path) -> Found:
    """A new file in place of one of another database, which is set aside. Raises JournalFailed."""
    with _failing(path):
        aside = beside.set_aside(path, beside.FOREIGN)
        logger.warning(
            "The journal %s is of another database; it is set aside as %s and a new one begun."
            " 'scrapy resume relay --journal' can store what is in it.",
            path,
            aside,
            extra={"action": "journal_foreign"},
        )
        return _replace(None, path)


def _sound(path: Path) -> Found:
    """The file at *path*; a new one with what can be read of it, if it is not sound."""
    conn = None
    if path.is_file() and not wal.is_writable(path):
        return _from_a_copy(path)
    try:
        try:
            conn = file.connect(path)
            _take_hold(conn)
            contents = file.inspect(conn)
            return Found(conn, contents, _torn(path, conn, contents))
        except (Damaged, *UNREADABLE) as error:
            if "locked" in str(error):  # others use it
                raise
            return _replace(conn, path, str(error))
    except BaseException:
        if conn is not None:
            conn.close()
        raise


def _from_a_copy(path: Path) -> Found:
    """A new file instead of one that may only be read; SQLite cannot read it where it is."""
    with tempfile.TemporaryDirectory(dir=path.parent) as place:
        copy = Path(place, path.name)
        for one in beside.family(path):
            shutil.copyfile(one, copy.with_name(one.name))
        conn = None
        with suppress(*UNREADABLE):
            conn = file.connect(copy)
        return _replace(conn, path, "it may only be read")


def _take_hold(conn: sqlite3.Connection) -> None:
    """Lock the file, for as long as it is open."""
    conn.execute("BEGIN EXCLUSIVE")
    conn.execute("ROLLBACK")


def _opened(path: Path) -> Found:
    conn = file.connect(path)
    try:
        _take_hold(conn)
        return Found(conn, file.inspect(conn))
    except BaseException:
        conn.close()
        raise


def _torn(path: Path, conn: sqlite3.Connection, contents: Contents) -> Damage | None:
    """What became of a log that SQLite could read a part of only; the part is used."""
    log = wal.log_of(path)
    try:
        whole = conn.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()[1]
    except sqlite3.OperationalError:  # no room to move it into the file: it is read where it is
        return None
    if not wal.is_torn(log, max(0, whole)):
        return None
    aside = wal.log_of(beside.free_name(path, beside.DAMAGED))
    shutil.copyfile(log, aside)  # the next append overwrites it
    return _told("its log is broken", aside, contents.live.records, 0)


def _without_its_log(path: Path) -> Found:
    """The file alone: the log beside it would destroy it."""
    log = wal.log_of(path)
    aside = wal.log_of(beside.free_name(path, beside.DAMAGED))
    log.rename(aside)
    found = _sound(path) if path.exists() and path.stat().st_size else _replace(None, path)
    if found.damage is None:
        reason = "the log beside it is not its own"
        found.damage = _told(reason, aside, found.contents.live.records, 0)
    return found


def _replace(conn: sqlite3.Connection | None, path: Path, reason: str | None = None) -> Found:
    """Put a new file at *path*, with what can be read through *conn*; closes that."""
    part = beside.part_of(path)
    lost = copying.copy(conn, part)
    if conn is not None:
        with suppress(sqlite3.Error):
            conn.close()
    aside = beside.put_in_place(path, part)
    found = _opened(path)
    if reason is not None:
        found.damage = _told(reason, aside, found.contents.live.records, lost)
    return found


def _told(reason: str, aside: Path | None, kept: int, lost: int) -> Damage:
    damage = Damage(reason, aside, kept, lost)
    logger.warning(
        "The journal could not be read as a whole. It is a %s."
        " Pages that were only in it are read again.",
        damage,
        extra={"action": "journal_damaged"},
    )
    return damage


@contextmanager
def _failing(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, Damaged, *UNREADABLE) as error:
        advice = "make room on its disk, and see that this process may write to its directory"
        if "locked" in str(error):
            advice = "close the program that has it open"
        raise JournalFailed(
            f"the journal {path} can neither be used nor set aside: {error}; {advice}"
        ) from error
