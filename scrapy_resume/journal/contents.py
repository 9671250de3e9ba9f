"""What a journal holds, as values: its entries, its counts and its notes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

Given: TypeAlias = "tuple[int, int, str, int | None, bytes]"
"""What is appended: shard id, fencing token, kind, page and body."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One record as it was appended; *kind* and *body* are the codec's."""

    seq: int
    shard_id: int
    token: int
    kind: str
    page: int | None
    body: bytes


class Live:
    """Number, is-a-page and bytes of each record that is not settled, and their sums."""

    def __init__(self) -> None:
        self.records = self.pages = self.size = 0
        self._all: deque[tuple[int, bool, int]] = deque()

    def add(self, seq: int, is_page: bool, size: int) -> None:
        """Count one more record, behind all others."""
        self._all.append((seq, is_page, size))
        self._count(1, is_page, size)

    def forget(self, upto: int) -> None:
        """Count the records up to number *upto* no more."""
        while self._all and self._all[0][0] <= upto:
            _, is_page, size = self._all.popleft()
            self._count(-1, is_page, -size)

    @property
    def last(self) -> int | None:
        """The number of the latest record, None if there is none."""
        return self._all[-1][0] if self._all else None

    def _count(self, by: int, is_page: bool, size: int) -> None:
        self.records += by
        self.pages += by * is_page
        self.size += size


class Notes:
    """Values by name, and which of them the file does not have yet (None: is to lose)."""

    def __init__(self, known: dict[str, bytes]) -> None:
        self._known = known
        self.unwritten: dict[str, bytes | None] = {}

    def put(self, name: str, value: bytes | None) -> None:
        """Keep *value* under *name*; None drops the name."""
        if self._known.get(name) == value:
            return
        self.unwritten[name] = value
        if value is None:
            del self._known[name]
        else:
            self._known[name] = value

    def named(self, prefix: str) -> Iterator[tuple[str, bytes]]:
        """What is kept under names that begin with *prefix*, without it."""
        for name, value in self._known.items():
            if name.startswith(prefix):
                yield name[len(prefix) :], value

    def write_all(self) -> None:
        """Count everything as unwritten: the file is a new one."""
        self.unwritten = {**self._known, **self.unwritten}


@dataclass
class Contents:
    """What a file holds; *tails* are the latest record of each shard.

    *settled* is the highest record that was forgotten, *last* the highest there ever was.
    """

    file_id: int
    settled: int = 0
    last: int = 0
    live: Live = field(default_factory=Live)
    tails: dict[int, int] = field(default_factory=dict)
    notes: dict[str, bytes] = field(default_factory=dict)


def is_another(kept: Mapping[str, str], asked: Mapping[str, str]) -> bool:
    """Whether what is kept of a file names another database than what is asked for.

    By the databases' ids; by their addresses while one of the ids is unknown.
    """
    for name in ("database", "address"):
        its, ours = kept.get(name), asked.get(name)
        if its and ours:
            return its != ours
    return False
