"""Fingerprints of committed pages go from worker to worker of one run, and no further."""

from __future__ import annotations

import asyncio
from typing import Any

from redis import Redis as Client
from scrapy import Request, Spider
from scrapy.crawler import Crawler
from scrapy.utils.test import get_crawler

from scrapy_resume.duplicates import Duplicates
from scrapy_resume.openpage import OpenPage
from scrapy_resume.page import Page, Shard
from tests.queue.links import Linked, in_loop, linked, until
from tests.services import Redis


class Worker:
    """One worker's memory of what is committed."""

    def __init__(self, limit: int = 1000) -> None:
        self.crawler: Crawler = get_crawler(Spider)
        self.crawler._apply_settings()
        self.memory = Duplicates(self.crawler, limit)

    def page(self, number: int = 1, attempt: int = 1) -> OpenPage:
        return OpenPage(f"{number}-{attempt}", Page(number, Shard("s"), None, attempt, False))

    def drops(self, url: str, page: OpenPage | None = None) -> bool:
        return self.memory.drops(page or self.page(9), Request(url), None)

    def commits(self, *urls: str) -> None:
        page = self.page()
        for url in urls:
            assert not self.memory.drops(page, Request(url), None)
        self.memory.remember(page.fingerprints)

    @property
    def shared(self) -> int:
        return self.crawler.stats.get_value("resume/duplicates/shared", 0)


async def heard(one: Linked, worker: Worker, count: int) -> None:
    """Wait until *worker* remembers *count* fingerprints."""

    def beats() -> bool:
        one.link.beat("i", 60)
        return len(worker.memory) >= count

    await until(beats)


def test_red_11_what_another_worker_committed_is_a_duplicate(
    server: Redis, database_id: str
) -> None:
    on: dict[str, Any] = {"shared_fingerprints": True}

    async def work() -> None:
        here, there = Worker(), Worker()
        async with linked(server.url, database_id, **on) as one:
            one.link.exchange(here.memory)
            here.commits("http://x/1", "http://x/2")
            async with linked(server.url, database_id, **on) as two:  # a late comer
                two.link.exchange(there.memory)
                await heard(two, there, 2)
                assert there.drops("http://x/1") and there.drops("http://x/2")
                assert not there.drops("http://x/3")
                assert there.shared == 2
                # A page that failed is tried again with all its requests.
                assert not there.drops("http://x/1", there.page(9, attempt=2))
                there.commits("http://x/4")
                await heard(one, here, 3)
                assert here.drops("http://x/4") and here.shared == 1
                assert here.drops("http://x/1") and here.shared == 1  # our own

    in_loop(work)


def test_what_was_told_before_pages_were_put_back_is_not_heard(
    server: Redis, database_id: str
) -> None:
    on: dict[str, Any] = {"shared_fingerprints": True}

    async def work() -> None:
        here, there = Worker(), Worker()
        async with linked(server.url, database_id, **on) as one:
            one.link.exchange(here.memory)
            here.commits("http://x/1")
            here.memory.forget()
            one.link.exchange(here.memory, "2026-11-30T14:00:00")
            here.commits("http://x/2")
            async with linked(server.url, database_id, **on) as two:
                two.link.exchange(there.memory, "2026-11-30T14:00:00")
                await heard(two, there, 1)
                assert there.drops("http://x/2")
                assert not there.drops("http://x/1")

    in_loop(work)


def test_red_11_the_next_run_knows_nothing_of_it(server: Redis, database_id: str) -> None:
    async def work() -> None:
        here, there = Worker(), Worker()
        async with (
            linked(server.url, database_id, 1, shared_fingerprints=True) as one,
            linked(server.url, database_id, 2, shared_fingerprints=True) as two,
        ):
            one.link.exchange(here.memory)
            two.link.exchange(there.memory)
            here.commits("http://x/1")
            there.commits("http://x/2")
            await heard(one, here, 1)
            await heard(two, there, 1)
            await asyncio.sleep(0.1)
            assert (len(here.memory), len(there.memory)) == (1, 1)
            assert not there.drops("http://x/1")

    in_loop(work)


def test_it_is_opt_in(server: Redis, redis_client: Client, database_id: str) -> None:
    async def work() -> None:
        here = Worker()
        async with linked(server.url, database_id) as one:
            one.link.exchange(here.memory)
            here.commits("http://x/1")
            one.link.share([b"x"])
            one.link.beat("i", 60)
            await one.link.alive(["i"])
            assert not [key for key in redis_client.scan_iter() if key.endswith(b":seen")]

    in_loop(work)


def test_what_is_remembered_is_bounded(server: Redis, database_id: str) -> None:
    async def work() -> None:
        here, there = Worker(50), Worker(50)
        async with (
            linked(server.url, database_id, shared_fingerprints=True, seen_max=50) as one,
            linked(server.url, database_id, shared_fingerprints=True, seen_max=50) as two,
        ):
            one.link.exchange(here.memory)
            two.link.exchange(there.memory)
            here.commits(*(f"http://x/{number}" for number in range(400)))
            await heard(two, there, 50)
            assert (len(here.memory), len(there.memory)) == (50, 50)
            assert sum(there.drops(f"http://x/{number}") for number in range(400)) == 50

    in_loop(work)


def test_sharing_outlives_a_redis_that_forgets(
    server: Redis, redis_client: Client, database_id: str
) -> None:
    async def work() -> None:
        here, there = Worker(), Worker()
        async with (
            linked(server.url, database_id, shared_fingerprints=True) as one,
            linked(server.url, database_id, shared_fingerprints=True) as two,
        ):
            one.link.exchange(here.memory)
            two.link.exchange(there.memory)
            here.commits("http://x/1")
            await heard(two, there, 1)
            redis_client.flushall()
            here.commits("http://x/2")
            await heard(two, there, 2)

    in_loop(work)
