"""Who this process is to the others: a slot directory held by a file lock.

Each crawl takes the first free ``<RESUME_HOME>/slot-N/`` by an exclusive lock and
keeps its worker id there. The kernel drops the lock when the process dies, however
it dies, so the next crawl that takes the slot *knows* that its earlier instance is
gone and may take that one's shards back at once. A slot that ended in order says so,
by having no file ``instance`` any more. The lock tells the living too: a process that
is frozen still holds it.
"""

from __future__ import annotations

import os
import re
import socket
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from scrapy_resume.exceptions import ConfigurationError

if sys.platform == "win32":
    import msvcrt

    def _lock(file: IO[bytes]) -> None:
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def _lock(file: IO[bytes]) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


_MAX_SLOTS = 1024
_UNREGISTERED = 20  # instances kept that the database may know
_IDENTITY = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class DeadSlot:
    """A slot whose process died: its *worker*, and the *instances* that have not ended in order."""

    directory: Path
    worker: str
    instances: frozenset[str]


class WorkerSlot:
    """A held slot: *worker* stays the same over restarts, *instance* is this start's.

    *earlier* are the instances that left the slot without ending in order. There are several
    if the later ones never got as far as to tell the database, which was away.
    """

    def __init__(self, directory: Path, lock: IO[bytes]) -> None:
        self.directory = directory
        self.instance = uuid.uuid4().hex
        self.worker = _identity(directory / "worker")
        self.host = socket.gethostname()[:190]
        self.pid = os.getpid()
        self._lock = lock
        file = directory / "instance"
        left = _written(file) if file.exists() else []
        self.earlier = set(left)
        # The first of them is on record with the database; those after it perhaps never were.
        _write(file, [*left[:1], *left[1:][-_UNREGISTERED:], self.instance])

    @classmethod
    def take(cls, home: Path) -> WorkerSlot:
        """Take the first free slot under *home*.

        Raises ConfigurationError if *home* cannot be written or every slot is held.
        """
        try:
            for number in range(_MAX_SLOTS):
                directory = home / f"slot-{number}"
                directory.mkdir(parents=True, exist_ok=True)
                lock = (directory / "lock").open("ab")
                if _try_lock(lock):
                    return cls(directory, lock)
                lock.close()
        except OSError as error:
            raise ConfigurationError(
                f"RESUME_HOME {str(home)!r} cannot be used: {error.strerror or error};"
                " it must be a directory this process can write"
            ) from error
        raise ConfigurationError(f"RESUME_HOME {str(home)!r} has all {_MAX_SLOTS} slots in use")

    @property
    def signature(self) -> str:
        """Who acts, for the record and for people."""
        return f"worker {self.worker[:8]} on {self.host}"

    def registered(self) -> None:
        """The database knows this instance, and what the earlier ones held was taken back."""
        _write(self.directory / "instance", [self.instance])
        self.earlier = set()

    def begin_anew(self) -> None:
        """Take a new identity: this home is a copy of another one that is in use."""
        (self.directory / "worker").unlink(missing_ok=True)
        self.worker = _identity(self.directory / "worker")

    def dead_neighbours(self, known: Callable[[str], bool] = bool) -> Iterator[DeadSlot]:
        """This home's other slots whose processes died, of workers that are *known*: others
        worked with another database, whose processes take back what they held.

        Each slot stays locked while it is handed out, so that it is still dead when the caller
        is done with it; then it counts as ended, once and for all. So of several processes that
        look at the same moment one recovers it.
        """
        for directory in self._neighbours():
            with suppress(OSError), (directory / "lock").open("ab") as lock:
                if _try_lock(lock) and (directory / "instance").exists():
                    worker = _identity(directory / "worker")
                    if known(worker):
                        yield DeadSlot(
                            directory, worker, frozenset(_written(directory / "instance"))
                        )
                        (directory / "instance").unlink(missing_ok=True)

    def living_neighbours(self) -> set[str]:
        """The instances that hold a slot of this home, this one included; some may be frozen."""
        living = {self.instance}
        for directory in self._neighbours():
            with suppress(OSError), (directory / "lock").open("ab") as lock:
                if not _try_lock(lock):
                    living |= set(_written(directory / "instance"))
        return living

    def _neighbours(self) -> Iterator[Path]:
        for directory in sorted(self.directory.parent.glob("slot-*")):
            if directory != self.directory and (directory / "instance").exists():
                yield directory

    def free(self, *, clean: bool = True) -> None:
        """Give the slot back; harmless when repeated.

        Not *clean* means that shards may still be ours on record: it then looks as if the
        process had died, and a neighbour takes them back.
        """
        if not self._lock.closed:
            if clean:
                (self.directory / "instance").unlink(missing_ok=True)
            self._lock.close()


@contextmanager
def holding(directory: Path) -> Iterator[bool]:
    """Hold the lock of the slot in *directory* meanwhile; False if its process lives."""
    with (directory / "lock").open("ab") as lock:
        yield _try_lock(lock)


def _identity(path: Path) -> str:
    """What *path* holds; a new one if that is no identity, as after a loss of power."""
    known = _written(path) if path.exists() else []
    if len(known) == 1:
        return known[0]
    fresh = uuid.uuid4().hex
    _write(path, [fresh])
    return fresh


def _write(path: Path, identities: Iterable[str]) -> None:
    """Have the file hold *identities*; a process that dies meanwhile leaves the old ones."""
    part = path.with_suffix(".part")
    part.write_text("\n".join(identities))
    part.replace(path)


def _written(path: Path) -> list[str]:
    """The identities that a file holds."""
    return [line for line in path.read_text(errors="replace").split() if _IDENTITY.fullmatch(line)]


def _try_lock(lock: IO[bytes]) -> bool:
    try:
        _lock(lock)
    except (BlockingIOError, PermissionError):
        return False
    return True
