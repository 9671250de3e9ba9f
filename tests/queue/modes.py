"""``python -m tests.queue.modes MODE URL PID``: a link in one kind of event loop, told as JSON.

A process has one reactor, so each mode is a process. PID is the Redis server's, which is
frozen in the middle.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
import time
from typing import Any

from scrapy.settings import Settings
from scrapy.utils.asyncio import call_later
from scrapy.utils.defer import deferred_from_coro
from scrapy.utils.reactor import install_reactor

from scrapy_resume.intake import Intake, Waiting
from scrapy_resume.queuelink import QueueLink
from scrapy_resume.settings import ResumeSettings
from scrapy_resume.threads import Wakeup

REACTORS = {
    "asyncio": "twisted.internet.asyncioreactor.AsyncioSelectorReactor",
    "epoll": "twisted.internet.epollreactor.EPollReactor",
    "reactorless": None,
}


class Ticks:
    """Counts the event loop's lag by a timer of 10 ms."""

    def __init__(self) -> None:
        self.worst, self._last = 0.0, time.monotonic()
        self._timer = call_later(0.01, self._tick)

    def _tick(self) -> None:
        now = time.monotonic()
        self.worst, self._last = max(self.worst, now - self._last - 0.01), now
        self._timer = call_later(0.01, self._tick)

    def stop(self) -> None:
        self._timer.cancel()


async def read(after: int) -> list[Waiting]:
    return [Waiting(number, "s", 0, 0) for number in (1, 2) if number > after]


def link(url: str, wakeup: Wakeup, woken: list[int]) -> QueueLink:
    def wake() -> None:
        woken.append(threading.get_ident())
        wakeup.set()

    made = QueueLink.of(
        ResumeSettings(redis_url=url), Settings(), inc_stat=lambda *stat: None, on_wake=wake
    )
    assert made is not None
    return made


async def scenario(url: str, server: int) -> dict[str, Any]:
    wakeup, woken = Wakeup(), []  # type: ignore[var-annotated]
    one, two = link(url, wakeup, woken), link(url, Wakeup(), [])
    await one.open("modes", 1)
    await wakeup.wait(10)
    await two.open("modes", 1)
    await two.fill(read)
    two.wake()
    await wakeup.wait(10)
    taken = await one.take(1, Intake())
    closed = [await two.close(8)]
    ticks, began = Ticks(), time.monotonic()
    os.kill(server, signal.SIGSTOP)
    frozen = [await one.take(1, Intake()) for _ in range(3)]
    took = time.monotonic() - began
    closed.append(await one.close(8))
    ticks.stop()
    os.kill(server, signal.SIGCONT)
    return {
        "taken": taken, "frozen": frozen, "took": took, "lag": ticks.worst, "closed": closed,
        "wakes": len(woken), "in the loop": set(woken) == {threading.get_ident()},
    }  # fmt: skip


def run(mode: str, url: str, server: int) -> dict[str, Any]:
    reactor_path = REACTORS[mode]
    if reactor_path is None:
        return asyncio.run(scenario(url, server))
    install_reactor(reactor_path)
    from twisted.internet import reactor

    told: list[Any] = []

    def start() -> None:
        ended = deferred_from_coro(scenario(url, server))
        ended.addBoth(told.append)
        ended.addBoth(lambda _: reactor.stop())

    reactor.callWhenRunning(start)
    reactor.run()
    if not isinstance(told[0], dict):
        told[0].raiseException()
    return told[0]


if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1], sys.argv[2], int(sys.argv[3]))))
