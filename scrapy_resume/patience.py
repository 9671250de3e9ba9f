"""Patience: a store call is repeated until the database is back.

The store itself repeats a transaction for a few seconds. Here is what comes after them:
waits that grow and are partly random, for ``RESUME_STORE_PATIENCE`` seconds altogether, or
until the crawl that is being stopped has used up its grace. What is stored waits by
:class:`Patience`, what is only asked by :class:`Questions`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from scrapy.utils.asyncio import call_later
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from scrapy_resume import clock
from scrapy_resume.commitstats import count_repeats
from scrapy_resume.exceptions import StoreUnavailable
from scrapy_resume.outage import Outage
from scrapy_resume.threads import StoreThread, Wakeup

T = TypeVar("T")

_FIRST_WAIT, _LONGEST_WAIT = 0.5, 5.0  # seconds
_BEHIND = 60.0  # seconds that a call is held back at most for another one to get through first


class Waits:
    """Waits between two tries, in seconds: each twice as long as the last, and partly random."""

    def __init__(self) -> None:
        self._longest = _FIRST_WAIT

    def next(self) -> float:
        """How long to wait now."""
        wait = random.uniform(0.5, 1) * self._longest
        self._longest = min(2 * self._longest, _LONGEST_WAIT)
        return wait


class Patience(Generic[T]):
    """Makes the store calls of one *duty*, one at a time, and repeats those that fail.

    Nothing is repeated while :attr:`holds_back` says that another duty goes first.
    """

    def __init__(
        self,
        duty: str,
        thread: StoreThread,
        outage: Outage,
        *,
        seconds: float,
        inc_stat: Callable[..., None],
    ) -> None:
        self._duty, self._thread, self._outage = duty, thread, outage
        self._seconds, self._inc = seconds, inc_stat
        self._deadline: float | None = None
        self._since: float | None = None
        self._waits = Waits()
        self._timer: Any = None
        self._again: Callable[[], None] | None = None
        self._held_since: float | None = None
        self.holds_back: Callable[[], bool] = lambda: False

    def call(self, func: Callable[..., T], *args: Any) -> Deferred[T]:
        """Call *func* on the thread until the database took it.

        The Deferred fails with what is no outage, or with StoreUnavailable when the
        patience is over.
        """
        done: Deferred[T] = Deferred()
        self._since, self._waits = None, Waits()
        self._again = lambda: self._attempt(done, func, args)
        self._again()
        return done

    def hurry(self, within: float) -> None:
        """The crawl is stopping: be patient for *within* seconds more at most."""
        if self._deadline is None:
            self._deadline = clock.monotonic() + within
            if self._timer is not None:
                self._timer.cancel()
                self._try_again()

    def go_on(self) -> None:
        """The database was heard from: try again at once."""
        if self._timer is not None:
            self._timer.cancel()
            self._try_again()

    def _attempt(self, done: Deferred[T], func: Callable[..., T], args: Any) -> None:
        made = self._thread.call(func, *args)
        made.addCallbacks(self._succeeded, self._failed, (done,), {}, (done,))
        made.addErrback(done.errback)

    def _succeeded(self, result: T, done: Deferred[T]) -> None:
        self._again = None
        self._outage.ended(self._duty)
        done.callback(result)

    def _failed(self, failure: Failure, done: Deferred[T]) -> None:
        error = failure.value
        if not isinstance(error, StoreUnavailable):
            failure.raiseException()
        count_repeats(self._inc, error.repeats)
        now = clock.monotonic()
        self._since = now if self._since is None else self._since
        self._outage.began(self._duty, error)
        late = self._deadline is not None and now >= self._deadline
        if late or now - self._since >= self._seconds:
            failure.raiseException()
        self._timer = call_later(self._next_wait(now), self._try_again)

    def _next_wait(self, now: float) -> float:
        wait = self._waits.next()
        return wait if self._deadline is None else min(wait, max(0.0, self._deadline - now))

    def _try_again(self) -> None:
        self._timer = None
        if self._must_wait():
            self._timer = call_later(_FIRST_WAIT, self._try_again)
            return
        self._held_since = None
        assert self._again is not None
        self._again()

    def _must_wait(self) -> bool:
        """Does another duty go first? The last try, and one of a crawl that is being stopped,
        does not wait for that."""
        now = clock.monotonic()
        late = self._since is not None and now - self._since >= self._seconds
        if late or self._deadline is not None or not self.holds_back():
            return False
        self._held_since = now if self._held_since is None else self._held_since
        return now - self._held_since < _BEHIND


class Questions:
    """Store calls on *thread* that coroutines wait for, *seconds* long if the database is away.

    They are repeated in growing waits, but not once the crawl is *stopping*.
    """

    def __init__(
        self, thread: StoreThread, outage: Outage, *, seconds: float, stopping: Callable[[], bool]
    ) -> None:
        self._thread, self._outage = thread, outage
        self._seconds, self._stopping = seconds, stopping
        self._pauses: set[Wakeup] = set()

    async def ask(self, call: Callable[..., T], *args: Any) -> T:
        """What *call* returns. Raises StoreUnavailable when the patience is over."""
        deadline, waits = clock.monotonic() + self._seconds, Waits()
        while True:
            try:
                answer = await self._thread.run(call, *args)
            except StoreUnavailable as error:
                if self._stopping() or clock.monotonic() > deadline:
                    raise
                self._outage.began("claims", error)
            else:
                self._outage.ended("claims")
                return answer
            await self._pause(waits.next())

    async def _pause(self, seconds: float) -> None:
        pause = Wakeup()
        self._pauses.add(pause)
        try:
            await pause.wait(seconds)
        finally:
            self._pauses.discard(pause)

    def go_on(self) -> None:
        """The database was heard from, or the crawl is stopping: ask again at once."""
        for pause in self._pauses:
            pause.set()
