"""Wake-ups: a thread that listens to what the run's other workers tell through Redis.

It looks for a message with a time limit and never pops anything, so no limit can lose
one. A wake-up that is lost all the same costs at most a heartbeat: every worker asks
the database that often without one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from scrapy_resume.exceptions import ResumeError
from scrapy_resume.presence import Presence

if TYPE_CHECKING:
    from scrapy_resume.shardqueue import ShardQueue, Subscription

LOOK = 1.0  # seconds the thread waits for a message before it looks whether to end


class WakeupListener:
    """Calls *on_wake*, on its own thread, for every wake-up of another worker."""

    def __init__(
        self, queue: ShardQueue, presence: Presence, on_wake: Callable[[], None], look: float
    ) -> None:
        self._queue, self._presence, self._on_wake, self._look = queue, presence, on_wake, look
        self._stop = threading.Event()
        self._anew = threading.Event()
        self._thread = threading.Thread(
            target=self._listen, name="scrapy_resume-wakeups", daemon=True
        )

    def start(self) -> None:
        """Begin to listen."""
        self._thread.start()

    def renew(self) -> None:
        """Redis is back: the old connection may be dead without a word."""
        self._anew.set()

    def stop(self) -> None:
        """Listen no more; the thread ends within its limit, or at our next wake-up."""
        self._stop.set()

    def join(self, within: float) -> bool:
        """Wait for the thread; False if it did not end *within* seconds."""
        if self._thread.is_alive():
            self._thread.join(within)
        return not self._thread.is_alive()

    def _listen(self) -> None:
        while not self._stop.is_set():
            if not self._presence.present.wait(self._look) or self._stop.is_set():
                continue
            try:
                self._follow()
            except ResumeError as error:
                if not self._stop.is_set():
                    self._broken(error)

    def _follow(self) -> None:
        """Listen on one connection until it breaks or there is reason for another."""
        self._anew.clear()
        subscription = self._queue.subscribe()
        try:
            self._on_wake()  # what was told before we listened is not known
            while not (self._stop.is_set() or self._anew.is_set() or self._presence.away):
                self._hear(subscription)
        finally:
            subscription.close()

    def _broken(self, error: ResumeError) -> None:
        """Only this connection, or Redis as a whole?"""
        try:
            self._queue.probe()
            self._stop.wait(self._look)
        except ResumeError:
            self._presence.fail(error)

    def _hear(self, subscription: Subscription) -> None:
        teller = subscription.next(self._look)
        if teller is not None and teller != self._queue.asker:
            self._on_wake()
