"""A link to Redis as a crawl has it, in an event loop of its own."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from scrapy.settings import Settings

from scrapy_resume.intake import Intake, Waiting
from scrapy_resume.queuelink import QueueLink
from scrapy_resume.settings import ResumeSettings

T = TypeVar("T")

ALL = Intake()
ENDS_WITHIN = 60.0  # seconds


class Linked:
    """A link, and what it told: stats, and the threads on which it woke us."""

    def __init__(self, url: str, scrapy_settings: dict[str, Any] | None = None, **settings: Any):
        self.stats: Counter[str] = Counter()
        self.woken: list[int] = []
        self.heard = asyncio.Event()
        link = QueueLink.of(
            ResumeSettings(redis_url=url or None, **settings),
            Settings(scrapy_settings),
            inc_stat=lambda name, count: self.stats.update({name: count}),
            on_wake=self._wake,
        )
        assert link is not None
        self.link = link

    def _wake(self) -> None:
        self.woken.append(threading.get_ident())
        self.heard.set()

    async def wakes(self, within: float = 30.0) -> None:
        """Wait for the next wake-up."""
        self.heard.clear()
        await asyncio.wait_for(self.heard.wait(), within)


@asynccontextmanager
async def linked(
    url: str, database: str, run: int = 1, *, listening: bool = True, **settings: Any
) -> AsyncIterator[Linked]:
    """An open link, closed at the end; it listens unless *listening* is false."""
    one = Linked(url, **settings)
    try:
        await one.link.open(database, run)
        if listening:
            await one.wakes()  # the listener says so when it begins
        yield one
    finally:
        await one.link.close(5)


def in_loop(work: Callable[[], Awaitable[T]]) -> T:
    """Run *work* in an event loop; it must not hang."""

    async def bounded() -> T:
        return await asyncio.wait_for(work(), ENDS_WITHIN)

    return asyncio.run(bounded())


async def until(holds: Callable[[], object], within: float = 60.0) -> None:
    """Wait until *holds*."""
    deadline = time.monotonic() + within
    while not holds():
        assert time.monotonic() < deadline, "it never came true"
        await asyncio.sleep(0.01)


class Lag:
    """The longest time for which the event loop did not get round to its tasks."""

    def __init__(self) -> None:
        self.worst = 0.0

    async def watch(self) -> None:
        last = time.monotonic()
        while True:
            await asyncio.sleep(0.01)
            now = time.monotonic()
            self.worst, last = max(self.worst, now - last - 0.01), now


@asynccontextmanager
async def lag() -> AsyncIterator[Lag]:
    """Measure the event loop's lag meanwhile."""
    meter = Lag()
    task = asyncio.ensure_future(meter.watch())
    try:
        yield meter
    finally:
        task.cancel()


def shelf(*waiting: Waiting, batch: int = 2) -> Callable[[int], Awaitable[list[Waiting]]]:
    """What reads claimable shards from the database, so many at a time."""

    async def read(after: int) -> list[Waiting]:
        return [shard for shard in waiting if shard.id > after][:batch]

    return read
