"""The thread on which one crawl speaks to Redis, so that the event loop never waits for it.

redis-py blocks. Steps are made in order, by one thread, on one connection; whoever waits
for one waits PATIENCE at most. After a failure Redis counts as away, and steps then are
not made at all: the asker gets at once what holds without Redis.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from scrapy.utils.asyncio import call_later
from scrapy.utils.defer import maybe_deferred_to_future

from scrapy_resume.exceptions import ConfigurationError, QueueUnavailable
from scrapy_resume.presence import RETRY, Presence
from scrapy_resume.threads import StoreThread, loop_caller

T = TypeVar("T")

PATIENCE = 3.0  # seconds that anything waits for Redis at most


class RedisThread:
    """Makes steps that speak to Redis. Create it inside the event loop.

    *meet* is made on the thread, first of all and whenever Redis may be back: it raises if
    Redis cannot take part. *on_back* is then called on the thread, *on_away* in the event loop.
    """

    def __init__(
        self,
        shown: str,
        *,
        meet: Callable[[], None],
        on_back: Callable[[], None],
        on_away: Callable[[], None],
    ) -> None:
        self.presence = Presence(shown, RETRY, lambda: self.in_loop(on_away))
        self.live = False  # between the first meeting and the end
        self._meet, self._on_back = meet, on_back
        self._thread = StoreThread("redis")
        self._loop_caller = loop_caller()
        self._posted: set[str] = set()
        self._closed = False

    async def open(self) -> None:
        """Meet Redis; one that is merely down goes away with a warning.

        Raises ConfigurationError if it refuses us.
        """
        refusal = await self._within(None, self._first_meeting)
        if refusal is not None:
            raise refusal
        self.live = True

    async def before(self, without: T, step: Callable[[], T]) -> T:
        """What *step* returns before Redis was met; *without* if it fails or is too slow."""

        def attempt() -> T:
            with suppress(Exception):  # whatever it is, the meeting says it
                return step()
            return without

        return await self._within(without, attempt)

    async def ask(self, without: T, step: Callable[[], T]) -> T:
        """What *step* returns; *without* if Redis is away or too slow."""
        if not self._asks():
            return without
        return await self._within(without, lambda: self._guarded(without, step))

    def post(self, name: str | None, step: Callable[[], object]) -> None:
        """Have *step* made and wait for nothing; a *name* that waits already is not repeated.
        For any thread."""
        if not self._asks() or name in self._posted:
            return
        if name is not None:
            self._posted.add(name)

        def work() -> None:
            self._posted.discard(name or "")
            self._guarded(None, step)

        self._make(work)

    def in_loop(self, call: Callable[..., object], *args: Any) -> None:
        """Make a call in the event loop, unless that is gone. For any thread."""
        with suppress(RuntimeError):
            self._loop_caller(call, *args)

    async def close(self, last: Callable[[], None], within: float) -> bool:
        """Make *last* and end; False if *within* seconds are not enough."""
        if self._closed:
            return True
        self._thread.call(last)
        self.live, self._closed = False, True
        return await self._thread.stop(within)

    def _asks(self) -> bool:
        """Whether Redis takes part. Nobody waits while one that is away is asked again."""
        if self.live and self.presence.asks():
            self._make(self._meet_again)
        return self.live and not self.presence.away

    def _make(self, work: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # closed meanwhile
            self._thread.call(work)

    async def _within(self, without: T, call: Callable[[], T]) -> T:
        deferred = self._thread.call(call)

        def give_up() -> None:
            if not deferred.called:
                deferred.callback(without)

        timer = call_later(PATIENCE, give_up)
        try:
            return await maybe_deferred_to_future(deferred)
        finally:
            timer.cancel()

    # On the thread

    def _first_meeting(self) -> ConfigurationError | None:
        try:
            self._meet()
        except ConfigurationError as error:
            return error
        except Exception as error:
            self._failed(error)
        return None

    def _meet_again(self) -> None:
        try:
            self._meet()
        except Exception as error:
            self._failed(error)
        else:
            self.presence.recover()
            self._on_back()

    def _guarded(self, without: Any, step: Callable[[], Any]) -> Any:
        try:
            return without if self.presence.away else step()
        except Exception as error:  # whatever redis-py raises, the crawl goes on
            self._failed(error)
            return without

    def _failed(self, error: Exception) -> None:
        if not isinstance(error, (QueueUnavailable, ConfigurationError)):
            error = QueueUnavailable(type(error).__name__)
        self.presence.fail(error)
