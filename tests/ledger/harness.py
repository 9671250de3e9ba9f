"""What a path's crawl runs with: the smallest users of the ledger, and a recorder.

The recorder watches by means of its own (signals, URLs, the engine's sets), so that
what it finds does not depend on the ledger being right.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any, ClassVar

import scrapy
from scrapy import Request, signals
from scrapy.core.scheduler import Scheduler
from scrapy.crawler import Crawler
from scrapy.http import Response
from scrapy.settings import BaseSettings
from scrapy.utils.asyncio import call_later
from twisted.internet.defer import Deferred

from scrapy_resume.ledger import Ledger, OpenPage, current_item_no, current_page
from scrapy_resume.page import Page, Shard, judge

SHARD = Shard("s")


class TableScheduler(Scheduler):
    """Scrapy's scheduler, with H1 and H2."""

    def enqueue_request(self, request: Request) -> bool:
        return self.crawler.ledger.enqueue(request, self.store)

    def store(self, request: Request) -> bool:
        stored = super().enqueue_request(request)
        if stored:
            self.crawler.recorder.event("stored", request)
        return stored

    def next_request(self) -> Request | None:
        while True:
            request = super().next_request()
            if self.crawler.ledger.dequeued(request):
                if request is not None:
                    self.crawler.recorder.queued[page_of(request)] -= 1
                return request


class TagMiddleware:
    """H9."""

    def __init__(self, crawler: Crawler) -> None:
        self.crawler = crawler

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> TagMiddleware:
        return cls(crawler)

    async def process_spider_output(
        self, response: Response, result: AsyncIterator[Any]
    ) -> AsyncIterator[Any]:
        async for output in result:
            yield self.crawler.ledger.tag(output, response)


class RowsPipeline:
    """The last pipeline: keeps a row per item, and notes items on a wrong page."""

    def __init__(self, crawler: Crawler) -> None:
        self.crawler = crawler

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> RowsPipeline:
        return cls(crawler)

    def process_item(self, item: Any) -> Any:
        page = current_page()
        number = page.page.number if page is not None else 0
        if number != page_of(item):
            self.crawler.recorder.wrong.append(f"{item} on page {number}")
        if page is not None:
            page.add_row(current_item_no())
        return item


class Recorder:
    """The ledger's listener, and an independent witness."""

    ledger_class: ClassVar[type[Ledger]] = Ledger

    def __init__(self, crawler: Crawler) -> None:
        self.crawler = crawler
        self.open: dict[int, OpenPage] = {}
        self.queued: Counter[int] = Counter()
        self.closed: Counter[int] = Counter()
        self.read: Counter[int] = Counter()
        self.wrong: list[str] = []
        self.closings = 0
        self.reason: str | None = None
        self.leaks: dict[str, int] = {}

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Recorder:
        recorder = crawler.recorder = cls(crawler)
        crawler.ledger = cls.ledger_class(crawler, recorder, seen_max=1000)
        connect = crawler.signals.connect
        connect(recorder.opened, signals.spider_opened)
        connect(recorder.spider_closed, signals.spider_closed)
        connect(recorder.item_left, signals.item_scraped)
        connect(recorder.item_left, signals.item_dropped)
        connect(recorder.item_left, signals.item_error)
        return recorder

    def opened(self) -> None:
        self.crawler.ledger.install(self.crawler.engine)

    def spider_closed(self, reason: str) -> None:
        self.reason = reason
        self.leaks = self.crawler.ledger.leaks()
        self.crawler.ledger.uninstall()
        self.leaks_after = self.crawler.ledger.leaks()

    def item_left(self, item: Any) -> None:
        self.event("item", item)

    def event(self, kind: str, thing: Any) -> None:
        number = page_of(thing)
        self.queued[number] += kind == "stored"
        if self.closed[number]:
            self.wrong.append(f"{kind} after page {number} closed: {thing}")

    async def before_callback(self, page: OpenPage, response: Response) -> None:
        await self.crawler.spider.check(response)

    def page_read(self, page: OpenPage) -> None:
        self.read[page.page.number] += 1

    def page_closed(self, page: OpenPage) -> Deferred[None] | None:
        number = page.page.number
        self.closed[number] += 1
        self.wrong += self._outstanding(number)
        return self.crawler.spider.commit(page)

    def closing(self) -> None:
        self.closings += 1

    def item_key(self, item: Any) -> str | None:
        return None

    def _outstanding(self, number: int) -> list[str]:
        engine = self.crawler.engine
        busy = [r for r in engine._slot.inprogress if page_of(r) == number]
        found = [] if len(busy) <= 1 else [f"page {number} closed with {busy} in progress"]
        if self.queued[number]:
            found.append(f"page {number} closed with {self.queued[number]} requests queued")
        if (
            len(self.open) == 1
            and not self.crawler.spider.untidy
            and engine.scraper.slot.itemproc_size
        ):
            found.append(f"page {number} closed with items in the pipelines")
        return found

    def outcome(self) -> dict[str, Any]:
        pages = {str(n): self._page(n, page) for n, page in self.open.items()}
        late = self.crawler._ledger_late = self.crawler.ledger.late_requests
        return {"pages": pages, "reason": self.reason, "late": late, "leaks": self.leaks}

    def _page(self, number: int, page: OpenPage) -> dict[str, Any]:
        decision, _ = judge(page.troubles, hold_records=False, end_statuses=frozenset())
        return {
            "closed": self.closed[number],
            "live": page.live,
            "decision": decision.value,
            "troubles": sorted(
                f"{t.where.value}:{t.kind.value}:{t.error_class}" for t in page.troubles
            ),
            "items": page.items_scraped,
            "dropped": page.items_dropped,
            "failed": page.items_failed,
            "children": page.requests_in,
            "filtered": page.requests_filtered,
            "ignored": page.requests_ignored,
            "yielded": page.yielded,
            "read": bool(self.read[number]),
        }

    def problems(self) -> list[str]:
        """What is wrong whatever the path expects."""
        found = list(self.wrong)
        found += [f"page {n} was read {times} times" for n, times in self.read.items() if times > 1]
        for number, page in self.open.items():
            if page.closed and page.place.home.page is not None:
                found.append(f"page {number} is still reachable")
            if sorted(row for row, _ in page.rows) != sorted(row for _, row in page.rows):
                found.append(f"page {number} has misnumbered rows")
        if self.leaks_after:
            found.append(f"held after uninstall: {self.leaks_after}")
        return found


class PathSpider(scrapy.Spider):
    """Opens its pages in start(); a path overrides what it is about."""

    site: ClassVar[str] = ""
    pages: ClassVar[int] = 1
    list_query: ClassVar[str] = ""
    untidy: ClassVar[bool] = False

    @classmethod
    def update_settings(cls, settings: BaseSettings) -> None:
        super().update_settings(settings)
        add = settings.setdefault_in_component_priority_dict
        add("SPIDER_MIDDLEWARES", TagMiddleware, 0)
        add("ITEM_PIPELINES", RowsPipeline, 900)

    async def start(self) -> AsyncIterator[Any]:
        for number in range(1, self.pages + 1):
            yield self.open(number)

    def open(self, number: int, request: Request | None = None, **page: Any) -> Request:
        request = request or self.list_request(number)
        opened, request = self.crawler.ledger.open(Page(number, SHARD, **page), request)
        self.crawler.recorder.open[number] = opened
        return request

    def list_request(self, number: int) -> Request:
        return Request(self.url(number, "list", self.list_query))

    def url(self, page: int | Response, name: str, query: str = "") -> str:
        number = page if isinstance(page, int) else page_of(page)
        return f"{self.site}/{self.name}/p{number}/{name}" + (query and f"?{query}")

    def detail(self, page: int | Response, name: str = "d", query: str = "", **kw: Any) -> Request:
        kw.setdefault("callback", self.parse_detail)
        return Request(self.url(page, name, query), **kw)

    def item(self, page: int | Response, name: Any = "i") -> dict[str, Any]:
        return {"page": page if isinstance(page, int) else page_of(page), "name": name}

    async def check(self, response: Response) -> None:
        """Called before a list callback."""

    def commit(self, page: OpenPage) -> Deferred[None] | None:
        """Called when a page closes; the page is durable a turn of the loop later."""
        done: Deferred[None] = Deferred()
        call_later(0, self.committed, page, done)
        return done

    def committed(self, page: OpenPage, done: Deferred[None]) -> None:
        self.crawler.ledger.remember(page.fingerprints)
        done.callback(None)

    def parse(self, response: Response) -> Any:
        yield self.item(response)

    def parse_detail(self, response: Response) -> Any:
        yield self.item(response)


_PAGE = re.compile(r"/p(\d+)/")


def page_of(thing: Any) -> int:
    """The page of a request, a response or an item, by what is written in it; else 0."""
    if isinstance(thing, (Request, Response)):
        match = _PAGE.search(thing.url)
        return int(match[1]) if match else 0
    return int(thing["page"] if hasattr(thing, "__getitem__") else thing.page)


logging.getLogger("scrapy_resume").setLevel(logging.INFO)
