"""What SQLite does not tell of a file and its write-ahead log, read from the files themselves.

SQLite uses a log up to its first broken page and does not tell that there was more behind;
and a log that is whole it applies to whatever file it lies beside, which destroys that
file. Both are asked here, of the log's own form: a header, then frames of a page each, with
running checksums (https://www.sqlite.org/fileformat2.html#walformat). Nor does it tell that
a log has gone, or that a file may only be read, before something is to be written.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import IO

_HEADER = struct.Struct(">8I")  # magic, version, page size, sequence, two salts, two sums
_FRAME = struct.Struct(">6I")  # page, size of the file after a commit, two salts, two sums
_BIG = 0x377F0683  # as a magic number says that the sums are big-endian
_FILE_HEADER = 100  # bytes
_ID = slice(68, 72)  # the application id in it
_MODE = 18  # the place of a byte in it that is 2 in WAL mode


def log_of(path: Path) -> Path:
    """Where the log of the database *path* is, if it has one."""
    return path.with_name(path.name + "-wal")


def is_writable(path: Path) -> bool:
    """Whether this process may write to *path*, and SQLite knows how to; else it only reads."""
    try:
        with path.open("r+b") as file:
            head = file.read(_FILE_HEADER)
    except OSError:
        return False
    return len(head) < _FILE_HEADER or head[_MODE] in (1, 2)


def is_missing(path: Path) -> bool:
    """Whether the database *path* was in use to the last, and its log has gone."""
    head = _start(path)
    return len(head) == _FILE_HEADER and head[_MODE] == 2 and not log_of(path).exists()


def is_foreign(path: Path) -> bool:
    """Whether the log beside *path* belongs to another file, or this one has nothing in it."""
    head, log = _start(path), log_of(path)
    if not log.is_file() or log.stat().st_size < _HEADER.size:
        return False
    if not head:
        return True
    with log.open("rb") as file:
        return any(page[_ID] != head[_ID] for page in _first_pages(file))


def is_torn(log: Path, whole: int) -> bool:
    """Whether more was in *log* than the *whole* frames that SQLite made use of.

    A transaction that was not finished does not count: its frames are as they were written, but
    for the last, which a process may have died in. Nobody was told that it is kept.
    """
    if not log.is_file():
        return False
    with log.open("rb") as file:
        head, step, count = _begin(file)
        if not count:
            return False
        sums = _sums(head, head[:24], (0, 0))
        return sums != _HEADER.unpack(head)[6:] or _is_broken(file, head, step, whole, count)


def _is_broken(file: IO[bytes], head: bytes, step: int, whole: int, count: int) -> bool:
    salts = _HEADER.unpack(head)[4:6]
    sums = _HEADER.unpack(head)[6:]
    if whole:
        file.seek(_HEADER.size + (whole - 1) * step)
        sums = _FRAME.unpack(file.read(_FRAME.size))[4:]
    broken = False
    for number in range(whole, count):
        file.seek(_HEADER.size + number * step)
        frame = file.read(step)
        its = _FRAME.unpack(frame[: _FRAME.size])
        if its[2:4] != salts:  # left over from an earlier use of the log, or not as written
            broken = True
        elif broken:
            return True
        else:
            sums = _sums(head, frame[:8] + frame[_FRAME.size :], sums)
            broken = sums != its[4:]
    return False


def _begin(file: IO[bytes]) -> tuple[bytes, int, int]:
    """The log's header, the length of a frame, and how many whole ones there are."""
    head = file.read(_HEADER.size)
    size = os.fstat(file.fileno()).st_size - _HEADER.size
    page = _HEADER.unpack(head)[2] if size > 0 else 0
    if not 512 <= page <= 65536:
        page = 4096
    return head, _FRAME.size + page, max(0, size) // (_FRAME.size + page)


def _first_pages(file: IO[bytes]) -> list[bytes]:
    """The beginning of each frame that holds the database's first page."""
    _, step, count = _begin(file)
    found = []
    for number in range(count):
        file.seek(_HEADER.size + number * step)
        frame = file.read(_FRAME.size + _FILE_HEADER)
        if _FRAME.unpack(frame[: _FRAME.size])[0] == 1:
            found.append(frame[_FRAME.size :])
    return found


def _sums(head: bytes, data: bytes, sums: tuple[int, ...]) -> tuple[int, ...]:
    order = ">" if _HEADER.unpack(head)[0] == _BIG else "<"
    one, two = sums
    for first, second in struct.iter_unpack(f"{order}II", data):
        one = (one + first + two) & 0xFFFFFFFF
        two = (two + second + one) & 0xFFFFFFFF
    return one, two


def _start(path: Path) -> bytes:
    if not path.is_file():
        return b""
    with path.open("rb") as file:
        return file.read(_FILE_HEADER)
