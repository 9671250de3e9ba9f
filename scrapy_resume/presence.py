"""Whether Redis takes part: after a failure it counts as away, and is asked again now and then.

While it is away nobody waits for it: every question is answered at once with what holds
without Redis. One warning says that it went away, one line that it is back; another one is
only given if it answers meanwhile and does not let us work.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from scrapy_resume import clock
from scrapy_resume.exceptions import ResumeError

logger = logging.getLogger(__name__)

RETRY = 5.0  # seconds between two attempts to reach a Redis that is away


class Presence:
    """Whether Redis takes part. For any thread; *on_away* is called by the one that failed."""

    def __init__(self, shown: str, retry: float, on_away: Callable[[], None]) -> None:
        self.shown = shown
        self.present = threading.Event()
        self.present.set()
        self._retry, self._on_away = retry, on_away
        self._since = self._asked = 0.0
        self._told: set[str] = set()
        self._lock = threading.Lock()

    @property
    def away(self) -> bool:
        """Does Redis take no part now?"""
        return not self.present.is_set()

    def asks(self) -> bool:
        """Whether it is time to ask a Redis that is away; says so once in an interval."""
        with self._lock:
            now = clock.monotonic()
            due = self.away and now - self._asked >= self._retry
            if due:
                self._asked = now
            return due

    def fail(self, reason: ResumeError) -> None:
        """It failed. What needs somebody to act is told even if it was away before."""
        with self._lock:
            self._asked = clock.monotonic()
            gone = not self.away
            if gone:
                self.present.clear()
                self._since, self._told = self._asked, set()
            if not gone and (getattr(reason, "heals", False) or str(reason) in self._told):
                return
            self._told.add(str(reason))
        logger.warning(
            "Redis at %s is %s: %s; the crawl goes on without it, and asks it again every %g s",
            self.shown, "away" if gone else "still away", reason, self._retry,
            extra={"action": "redis_away"},
        )  # fmt: skip
        if gone:
            self._on_away()

    def recover(self) -> None:
        """It answered, and takes writes again."""
        with self._lock:
            if not self.away:
                return
            self.present.set()
            gone = clock.monotonic() - self._since
        logger.info(
            "Redis at %s is back after %.0f s", self.shown, gone, extra={"action": "redis_back"}
        )
