"""Threads of the store, and how their results come back to the event loop.

Database drivers block, so every store call runs on a thread of its own, one call
at a time: a thread is also the owner of one connection. Results arrive as Twisted
Deferreds because those can be awaited under asyncio, under any Twisted reactor
and without a reactor (through ``maybe_deferred_to_future``).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from scrapy.utils.asyncio import call_later, is_asyncio_available
from scrapy.utils.defer import maybe_deferred_to_future
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

T = TypeVar("T")


def loop_caller() -> Callable[..., Any]:
    """A function for other threads that runs a call in this thread's event loop."""
    if is_asyncio_available():
        return asyncio.get_running_loop().call_soon_threadsafe
    from twisted.internet import reactor  # must not be imported before one is installed

    in_loop: Callable[..., Any] = reactor.callFromThread
    return in_loop


class StoreThread:
    """One thread that runs store calls in order. Create it inside the event loop."""

    def __init__(self, name: str) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=f"scrapy_resume-{name}")
        self._in_loop = loop_caller()

    def call(self, func: Callable[..., T], *args: Any, **kwargs: Any) -> Deferred[T]:
        """Run ``func(*args, **kwargs)`` on the thread; the Deferred fires in the loop."""
        deferred: Deferred[T] = Deferred()
        future = self._pool.submit(func, *args, **kwargs)
        future.add_done_callback(lambda done: self._hand_over(deferred, done))
        return deferred

    def post(self, func: Callable[..., None], *args: Any) -> None:
        """Run *func* without waiting for it; for any thread. Nothing happens after the stop."""
        with contextlib.suppress(RuntimeError):
            self._pool.submit(func, *args)

    def _hand_over(self, deferred: Deferred[T], done: Future[T]) -> None:
        error = done.exception()
        fire = deferred.callback if error is None else deferred.errback
        value: Any = done.result() if error is None else Failure(error)  # type: ignore[no-untyped-call]
        with contextlib.suppress(RuntimeError):  # the loop is gone: nobody waits any more
            self._in_loop(_fire, deferred, fire, value)

    async def run(self, func: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Await :meth:`call`."""
        return await maybe_deferred_to_future(self.call(func, *args, **kwargs))

    async def stop(self, within: float) -> bool:
        """Accept no more calls and wait for those made; False if *within* seconds are not enough.

        A connection must not be closed while a call still uses it.
        """
        last = self.call(_nothing)
        self._pool.shutdown(wait=False)
        timer = call_later(within, _fire, last, last.callback, False)
        try:
            return await maybe_deferred_to_future(last)
        finally:
            timer.cancel()


def _nothing() -> bool:
    return True


def _fire(deferred: Deferred[Any], fire: Callable[[Any], None], value: Any) -> None:
    if not deferred.called:
        fire(value)


class Wakeup:
    """An event that one coroutine waits for and anything in the loop sets."""

    def __init__(self) -> None:
        self._set = False
        self._waiting: Deferred[None] | None = None

    def set(self) -> None:
        """Wake the waiter, or let the next wait return at once."""
        self._set = True
        waiting, self._waiting = self._waiting, None
        if waiting is not None and not waiting.called:
            waiting.callback(None)

    async def wait(self, timeout: float | None = None) -> None:
        """Wait until set, at most *timeout* seconds; clears the event."""
        if not self._set:
            self._waiting = Deferred()
            timer = None if timeout is None else call_later(timeout, self.set)
            try:
                await maybe_deferred_to_future(self._waiting)
            finally:
                self._waiting = None
                if timer is not None:
                    timer.cancel()
        self._set = False
