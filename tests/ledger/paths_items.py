"""What pipelines and item handlers may do."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import scrapy
from scrapy import signals
from scrapy.crawler import Crawler
from scrapy.exceptions import DropItem
from scrapy.http import Response
from scrapy.logformatter import LogFormatter
from scrapy.utils.asyncio import sleep
from scrapy.utils.defer import deferred_from_coro

from scrapy_resume.ledger import current_page
from tests.ledger.harness import PathSpider
from tests.ledger.table import path


class Abort(BaseException):
    """What some library may raise."""


class First:
    """A pipeline that does to an item what its name says."""

    async def process_item(self, item: Any) -> Any:
        name = item["name"] if isinstance(item, dict) else ""
        if name == "drop":
            raise DropItem("not wanted")
        if name == "fail":
            raise KeyError("a bug")
        if name == "cancel":
            raise asyncio.CancelledError
        if name == "abort":
            raise Abort("enough")
        if name == "slow":
            await sleep(0.05)
        return item


class Named(PathSpider):
    custom_settings = {"ITEM_PIPELINES": {First: 100}}
    names: tuple[str, ...] = ()

    def parse(self, response: Response) -> Any:
        for name in self.names:
            yield self.item(response, name)
        yield self.detail(response)


@path(items=2, dropped=2, children=1)
class ItemDropped(Named):
    names = ("drop", "i", "drop")


@path(items=2, failed=1, children=1, troubles=("item:code:KeyError",))
class ItemFails(Named):
    names = ("fail", "i")


CANCELLED = "page:retryable:Interrupted"


@path(items=2, failed=1, children=1, troubles=(CANCELLED,), decision="failed", read=None)
class ItemCancelled(Named):
    names = ("cancel", "i")


@path(items=2, failed=120, children=1, troubles=(CANCELLED,) * 120, decision="failed", read=None)
class ItemsCancelledOften(Named):
    """More than the scraper has workers."""

    names = (*("cancel",) * 120, "i")


@path(items=2, failed=1, children=1, troubles=(CANCELLED,), decision="failed", read=None)
class ItemAborts(Named):
    names = ("abort", "i")


@path(items=4, children=1)
class ItemSlow(Named):
    names = ("slow", "slow", "i")


class Returning:
    def process_item(self, item: Any) -> None:
        return None


@path(items=2, children=1)
class PipelineReturnsNone(Named):
    custom_settings = {"ITEM_PIPELINES": {Returning: 950}}
    names = ("i",)


@path(items=2)
class SameItemObjectTwice(PathSpider):
    def parse(self, response: Response) -> Any:
        item = self.item(response)
        yield item
        yield item


class Field(scrapy.Item):
    page = scrapy.Field()


@dataclass
class Data:
    page: int


@dataclass(frozen=True)
class Frozen:
    page: int


class Slotted:
    __slots__ = ("page",)

    def __init__(self, page: int) -> None:
        self.page = page


@path(items=5)
class ItemsOfEveryKind(PathSpider):
    def parse(self, response: Response) -> Any:
        yield self.item(response)
        yield Field(page=1)
        yield Data(1)
        yield Frozen(1)
        yield Slotted(1)


class OnItem(PathSpider):
    async def start(self) -> Any:
        self.crawler.signals.connect(self.on_item, signals.item_scraped)
        yield self.open(1)

    async def on_item(self, item: Any) -> None:
        raise NotImplementedError

    def parse(self, response: Response) -> Any:
        yield self.item(response)
        yield self.detail(response)


@path(items=2, children=1)
class ItemHandlerSlow(OnItem):
    """The page waits for the handlers, and they know it."""

    async def on_item(self, item: Any) -> None:
        await sleep(0.05)
        page = current_page()
        if page is None or page.page.number != 1:
            self.crawler.recorder.wrong.append("a handler has no page")


@path(items=2, children=1)
class ItemHandlerRaises(OnItem):
    async def on_item(self, item: Any) -> None:
        raise KeyError("a bug in a handler is only logged")


@path(items=3, children=2)
class ItemHandlerCrawls(OnItem):
    crawled = False

    async def on_item(self, item: Any) -> None:
        if not self.crawled:
            self.crawled = True
            self.crawler.engine.crawl(self.detail(1, "other"))


class BrokenFormatter(LogFormatter):
    def scraped(self, item: Any, response: Any, spider: Any) -> Any:
        raise KeyError("a bug")


@path(items=2, children=1, troubles=("page:code:KeyError",) * 2, decision="failed", read=None)
class LogFormatterRaises(PathSpider):
    """An exception outside of the pipelines must not cost the scraper a worker."""

    custom_settings = {"LOG_FORMATTER": BrokenFormatter}

    def parse(self, response: Response) -> Any:
        yield self.item(response)
        yield self.detail(response)


class Outliving:
    """Holds the item named "late" until page 1 is closed."""

    def __init__(self, crawler: Crawler) -> None:
        self.crawler = crawler

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Outliving:
        return cls(crawler)

    async def process_item(self, item: Any) -> Any:
        while item["name"] == "late" and not self.crawler.recorder.closed[1]:
            await sleep(0.01)
        return item


@path(decision="failed", troubles=("page:code:PageError",), items=2)
class ItemOutlivesPage(PathSpider):
    """An item handed to the pipelines and not awaited: the audit finds it."""

    custom_settings = {"ITEM_PIPELINES": {Outliving: 100}}
    untidy = True

    def parse(self, response: Response) -> Any:
        engine = self.crawler.engine
        item = {"page": 0, "name": "late"}
        sent = deferred_from_coro(engine.scraper.start_itemproc_async(item, response=response))
        sent.addBoth(lambda _: engine._slot.nextcall.schedule())
        yield self.item(response)
