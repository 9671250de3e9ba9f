"""Files beside the journal: old ones set aside, and a new one in the making.

A new file is made as a *part*, becomes the *rebuilt* one when it is whole, and then takes
the journal's place. Dying anywhere in between, the next start finds either the old file or
a finished new one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from scrapy_resume import clock

DAMAGED, FOREIGN, REFUSED = "damaged", "foreign", "refused"
"""Why a file was set aside: it is not sound, it is another database's, its records are refused."""


def is_there(path: Path) -> bool:
    """Whether there is a journal at *path*, be it a part of one, or a finished new one for it."""
    return any(family(path)) or _rebuilt(path).exists()


def aside_for(path: Path, why: str) -> list[Path]:
    """The files that were set aside from *path* for that reason, the oldest first."""
    return sorted(path.parent.glob(f"{path.stem}-*-{why}.db"))


def family(path: Path) -> Iterator[Path]:
    """*path* and what SQLite keeps beside it, as far as it is there."""
    for suffix in ("-wal", "-shm", "-journal", ""):
        one = path.with_name(path.name + suffix)
        if os.path.lexists(one):
            yield one


def part_of(path: Path) -> Path:
    """Where a new file for *path* is made; what an earlier try has left there is deleted."""
    part = path.with_name(f"{path.stem}-rebuilt.part")
    for left in family(part):
        left.unlink()
    return part


def put_in_place(path: Path, part: Path | None = None) -> Path | None:
    """Give *part*, or a finished file that was left over, the place of *path*.

    What is there is set aside; returns its new name, None if nothing was.
    """
    rebuilt = _rebuilt(path)
    if part is not None:
        part.replace(rebuilt)
    if not rebuilt.exists():
        return None
    aside = set_aside(path, DAMAGED)
    rebuilt.rename(path)
    _sync(path.parent)
    return aside


def set_aside(path: Path, why: str) -> Path | None:
    """Rename *path* and what belongs to it; returns its new name, None if it was not there."""
    aside, there = free_name(path, why), list(family(path))
    for one in there:
        one.rename(aside.with_name(aside.name + one.name[len(path.name) :]))
    return aside if there else None


def free_name(path: Path, why: str) -> Path:
    """A name for what is set aside, with the time and *why*; nothing has it yet."""
    stem = f"{path.stem}-{clock.utc_now():%Y%m%dT%H%M%S}"
    name, number = f"{stem}-{why}.db", 1
    while any(family(path.with_name(name))):
        number += 1
        name = f"{stem}-{number}-{why}.db"
    return path.with_name(name)


def _rebuilt(path: Path) -> Path:
    return path.with_name(f"{path.stem}-rebuilt.db")


def _sync(directory: Path) -> None:
    """Make the names in *directory* durable, where a system lets that be asked for."""
    if hasattr(os, "O_DIRECTORY"):
        opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)
