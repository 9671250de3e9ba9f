"""Redis beside the event loop: how fast a thrown-away queue is back, and that nothing waits.

A run of 100,000 shards on ten sites waits in a private MariaDB (or SQLite file). Measured are:

- *rebuild*: from a ``FLUSHALL`` until the queue is whole again, read from the database and
  written through the link in the event loop, as a worker does it;
- *hand out*: shards handed out and settled, by eight askers at once, one hundred a time;
- *lag*: the longest time for which the event loop was held up, while Redis is frozen and a
  worker asks it all the time; and while the queue is rebuilt, which has no bar: 100,000 rows
  become objects meanwhile, and Python's garbage collector then stops every thread.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from scrapy.settings import Settings

from benchmarks.services import DATABASES, Databases
from scrapy_resume.intake import Intake, Waiting
from scrapy_resume.page import Shard
from scrapy_resume.queuelink import QueueLink
from scrapy_resume.redisclient import RedisClient
from scrapy_resume.settings import ResumeSettings
from scrapy_resume.shardqueue import ShardQueue
from scrapy_resume.store import backlog, migrate, tasks
from scrapy_resume.store.engine import Database
from scrapy_resume.threads import StoreThread
from tests.services import Redis

REBUILT = 2.0  # seconds in which the queue must be whole again
LAG = 0.1  # seconds for which the event loop may be held up
_AT_ONCE = 5000  # shards read from the database at once, as the claimer does
_ASKERS = 8


class Lag:
    """The event loop's lag, by a timer of 5 ms."""

    def __init__(self) -> None:
        self.worst = 0.0
        self._task = asyncio.ensure_future(self._watch())

    async def _watch(self) -> None:
        last = time.monotonic()
        while True:
            await asyncio.sleep(0.005)
            now = time.monotonic()
            self.worst, last = max(self.worst, now - last - 0.005), now

    def stop(self) -> float:
        self._task.cancel()
        return self.worst


def planned(db: Database, shards: int) -> int:
    """A planned run of so many shards; gives its id."""
    migrate.ensure_schema(db)
    task = tasks.open_run(db, name="queue", spider="queue", args="{}", run="new", actor="benchmark")
    token = tasks.claim_planning(db, task.id, worker="w", instance="i", lease=600)
    assert token is not None
    plan = [Shard(f"s{n}", 1, 10, site=f"site{n % 10}", priority=n % 3) for n in range(shards)]
    tasks.store_plan(db, task.id, token, plan, default_site="site")
    return task.id


async def rebuild(server: Redis, db: Database, task: int, shards: int) -> dict[str, float]:
    """Rebuild a queue that was thrown away."""
    thread, link = StoreThread("control"), linked(server)
    await link.open("benchmark", task)
    server.client().flushall()
    lag, began = Lag(), time.monotonic()

    async def read(after: int) -> list[Waiting]:
        return await thread.run(backlog.waiting, db, task, after=after, limit=_AT_ONCE)

    assert await link.fill(read) == shards
    took = time.monotonic() - began
    worst = lag.stop()
    await link.close(5)
    await thread.stop(5)
    return {"rebuild_s": took, "rebuild_lag_s": worst}


async def frozen(server: Redis, seconds: float) -> dict[str, float]:
    """Ask a frozen Redis for *seconds*."""
    link = linked(server)
    await link.open("benchmark", 0)
    server.freeze()
    lag, began, answers, slowest = Lag(), time.monotonic(), 0, 0.0
    while time.monotonic() - began < seconds:
        asked = time.monotonic()
        link.beat("i", 15)
        link.wake()
        await link.take(8, Intake())
        await link.alive(["i"])
        answers, slowest = answers + 1, max(slowest, time.monotonic() - asked)
        await asyncio.sleep(0.05)
    closing = time.monotonic()
    await link.close(8)
    result = {"frozen_lag_s": lag.stop(), "slowest_answer_s": slowest}
    server.thaw()
    return {**result, "close_s": time.monotonic() - closing}


def linked(server: Redis) -> QueueLink:
    link = QueueLink.of(
        ResumeSettings(redis_url=server.url), Settings(),
        inc_stat=lambda name, count: None, on_wake=lambda: None,
    )  # fmt: skip
    assert link is not None
    return link


def hand_out(server: Redis, task: int, shards: int) -> dict[str, float]:
    """Have all shards handed out and settled by several askers."""
    counts = [0] * _ASKERS

    def ask(number: int) -> None:
        client = RedisClient.of(ResumeSettings(redis_url=server.url), Settings())
        assert client is not None
        queue, request = ShardQueue(client, "benchmark", task, str(number)), 0
        while entries := queue.take(str(request), 100, Intake()):
            queue.settle(entries)
            counts[number] += len(entries)
            request += 1
        client.close()

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(_ASKERS)]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(counts) == shards
    return {"handed_out_per_s": shards / (time.monotonic() - began)}


def measure(url: str, server: Redis, shards: int, seconds: float) -> dict[str, Any]:
    """All figures with the database at *url*."""
    db = Database.connect(url)
    try:
        task = planned(db, shards)
        result: dict[str, Any] = dict(asyncio.run(rebuild(server, db, task, shards)))
        result["redis_mb"] = server.client().info("memory")["used_memory"] / 1e6
        result |= hand_out(server, task, shards)
        result |= asyncio.run(frozen(server, seconds))
    finally:
        db.close()
    return {name: round(value, 4) for name, value in result.items()}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--shards", type=int, default=100_000)
    parser.add_argument("--frozen", type=float, default=10.0, help="seconds that Redis is frozen")
    parser.add_argument("--database", choices=DATABASES, nargs="*", default=list(DATABASES))
    given = parser.parse_args(argv)
    missed: list[str] = []
    with Databases() as databases, tempfile.TemporaryDirectory() as home:
        server = Redis(Path(home))
        server.start()
        for kind in given.database:
            with databases.fresh(kind) as url:
                url = url or f"sqlite:///{home}/queue.db"
                figures = measure(url, server, given.shards, given.frozen)
            print(json.dumps({"database": kind, "shards": given.shards, **figures}))
            missed += _missed(kind, figures)
        server.discard()
    print("\n".join(missed) or "every bar is met")
    return 1 if missed else 0


def _missed(kind: str, figures: dict[str, float]) -> list[str]:
    bars: dict[str, Callable[[float], bool]] = {
        "rebuild_s": lambda value: value < REBUILT,
        "frozen_lag_s": lambda value: value < LAG,
    }
    return [f"{kind}: {name} is {figures[name]}" for name in bars if not bars[name](figures[name])]


if __name__ == "__main__":
    sys.exit(main())
