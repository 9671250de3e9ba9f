"""The backlog: what is in the journal and waits for the database, and how much that may be.

At the quota nothing more is asked for, at half of it the crawl goes on. Of the pages that
wait only the first ones are kept in memory too.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from scrapy_resume.submission import Submission

logger = logging.getLogger(__name__)

IN_MEMORY, IN_MEMORY_BYTES = 100, 4 * 1024 * 1024  # pages and their size in the journal


@dataclass(frozen=True, slots=True)
class Quota:
    """How many pages, and bytes of them, may wait for the database."""

    pages: int
    size: int


class Backlog:
    """Counts what waits; *full* says that the quota was reached, and half of it not yet again."""

    def __init__(
        self, quota: Quota, path: str, *, wake: Callable[[], None], inc_stat: Callable[..., None]
    ) -> None:
        self.full = False
        self.pages = self.size = self.records = 0
        self.of_shard: Counter[int] = Counter()
        self._quota, self._path, self._wake, self._inc = quota, path, wake, inc_stat
        self._in_memory = self._in_memory_size = 0

    def add(self, one: Submission) -> None:
        """*one* is in the journal now; its rows stay in memory as well if there is room."""
        self.records += 1
        self._inc("journal/pages", one.pages)
        self._inc("journal/bytes", one.size)
        self._inc("journal/pending", one.pages)
        self.of_shard[one.shard_id] += 1
        self.pages += one.pages
        self.size += one.size
        room = self._in_memory < IN_MEMORY and self._in_memory_size < IN_MEMORY_BYTES
        if one.pages and not room:
            one.record = None
        else:
            one.in_memory = True
            self._in_memory += one.pages
            self._in_memory_size += one.size

    def remove(self, one: Submission) -> None:
        """*one* is settled."""
        self.records -= 1
        self._inc("journal/pending", -one.pages)
        self.of_shard[one.shard_id] -= 1
        if not self.of_shard[one.shard_id]:
            del self.of_shard[one.shard_id]
        self.pages -= one.pages
        self.size -= one.size
        if one.in_memory:
            self._in_memory -= one.pages
            self._in_memory_size -= one.size

    def look(self) -> None:
        """Say when the quota is reached, and when half of it is free again."""
        quota = self._quota
        if not self.full and (self.pages >= quota.pages or self.size >= quota.size):
            self.full = True
            self._inc("journal/full")
            tell_full(self.pages, self.size, self._path, "half of it is stored")
        elif self.full and 2 * self.pages <= quota.pages and 2 * self.size <= quota.size:
            self.full = False
            logger.info(
                "The journal has room again: %d pages are left in it, and the crawl goes on",
                self.pages, extra={"action": "journal_has_room"},
            )  # fmt: skip
            self._wake()


def tell_full(pages: int, size: int, path: str, until: str) -> None:
    """Say that the journal at *path* is full, and *until* when nothing more is asked for."""
    logger.warning(
        "The journal is full: %d pages with %.1f MB wait for the database in %s"
        " (RESUME_JOURNAL_MAX_PAGES, RESUME_JOURNAL_MAX_BYTES); nothing more is asked for until"
        " %s", pages, size / 1e6, path, until, extra={"action": "journal_full"},
    )  # fmt: skip
