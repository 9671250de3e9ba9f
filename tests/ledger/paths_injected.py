"""Requests that code crawls by itself, inline downloads, meta that was copied or cleared."""

from __future__ import annotations

from typing import Any

from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.http import Response
from scrapy.spidermiddlewares.depth import DepthMiddleware
from scrapy.utils.asyncio import call_later, sleep

from tests.ledger.harness import PathSpider, page_of
from tests.ledger.table import Expected, failed, path


@path(items=2, children=1)
class CrawlInCallback(PathSpider):
    def parse(self, response: Response) -> Any:
        self.crawler.engine.crawl(self.detail(response))
        yield self.item(response)


@path(items=2, children=1)
class CrawlInCoroutineAfterAwait(PathSpider):
    async def parse(self, response: Response) -> Any:
        await sleep(0.01)
        self.crawler.engine.crawl(self.detail(response))
        return [self.item(response)]


class CrawlingPipeline:
    def __init__(self, crawler: Crawler) -> None:
        self.crawler = crawler

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> CrawlingPipeline:
        return cls(crawler)

    async def process_item(self, item: Any) -> Any:
        if item["name"] == "i":
            await sleep(0.01)
            spider = self.crawler.spider
            self.crawler.engine.crawl(spider.detail(item["page"], callback=spider.last))
        return item


@path(Expected(items=2, children=1), items=2, children=1)
class CrawlInPipeline(PathSpider):
    custom_settings = {"ITEM_PIPELINES": {CrawlingPipeline: 100}}

    def parse(self, response: Response) -> Any:
        yield self.item(response)

    def last(self, response: Response) -> Any:
        yield self.item(response, "last")


@path(items=2, children=2)
class CrawlInErrback(PathSpider):
    def parse(self, response: Response) -> Any:
        yield self.item(response)
        yield self.detail(response, query="status=404", errback=self.errback)

    def errback(self, failure: Any) -> None:
        self.crawler.engine.crawl(self.detail(1, "other"))


class CrawlingDownloader:
    def __init__(self, crawler: Crawler) -> None:
        self.crawler = crawler

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> CrawlingDownloader:
        return cls(crawler)

    def process_request(self, request: Request) -> None:
        if "/list" in request.url:
            number = page_of(request)
            self.crawler.engine.crawl(self.crawler.spider.detail(number))


@path(Expected(items=2, children=1), items=2, children=1)
class CrawlInDownloaderMiddleware(PathSpider):
    custom_settings = {"DOWNLOADER_MIDDLEWARES": {CrawlingDownloader: 500}}


@path(items=1, late=1)
class CrawlAfterCallback(PathSpider):
    """Work that outlives its page belongs to no page; it is told once."""

    crawled = False

    async def start(self) -> Any:
        yield self.open(1)
        while not self.crawled:
            await sleep(0.01)

    def parse(self, response: Response) -> Any:
        call_later(0, self.crawl_late)
        yield self.item(response)

    def crawl_late(self) -> None:
        if self.crawler.recorder.closed[1]:
            self.crawled = True
            self.crawler.engine.crawl(Request(self.url(0, "late"), self.nothing))
        else:
            call_later(0.01, self.crawl_late)

    def nothing(self, response: Response) -> None:
        return None


class Inline(PathSpider):
    query = ""
    meta: dict[str, Any] | None = None

    async def parse(self, response: Response) -> Any:
        yield self.item(response, 1)
        request = self.detail(response, "inline", query=self.query, meta=self.meta)
        answer = await self.crawler.engine.download_async(request)
        yield self.item(answer, 2)
        yield self.detail(answer, "after")


@path(items=3, children=1)
class InlineDownload(Inline):
    pass


@path(items=3, children=1)
class InlineDownloadRedirected(Inline):
    query = "to=/InlineDownloadRedirected/p1/target"


@path(items=3, children=1)
class InlineDownloadRetried(Inline):
    query = "fails=1"


@path(**failed("page:code:DownloadFailedError", items=1))
class InlineDownloadFails(Inline):
    query = "breaks=9"
    custom_settings = {"RETRY_ENABLED": False}

    async def parse(self, response: Response) -> Any:
        from scrapy.exceptions import DownloadFailedError

        yield self.item(response, 1)
        request = self.detail(response, "inline", query=self.query)
        try:
            await self.crawler.engine.download_async(request)
        except Exception as exc:  # its class differs by handler
            raise DownloadFailedError from exc


@path(items=3, children=1)
class InlineDownloadWithCopiedMeta(Inline):
    async def parse(self, response: Response) -> Any:
        self.meta = response.meta
        async for output in super().parse(response):
            yield output


@path(items=3, children=1)
class InlineDownloadOfOwnRequest(Inline):
    """The very request in progress is fetched again, and now redirected."""

    list_query = "later=/InlineDownloadOfOwnRequest/p1/target"

    async def parse(self, response: Response) -> Any:
        yield self.item(response, 1)
        answer = await self.crawler.engine.download_async(response.request)
        yield self.item(answer, 2)
        yield self.detail(answer, "after")


@path(items=3, children=2)
class MetaCopied(PathSpider):
    def parse(self, response: Response) -> Any:
        yield self.item(response)
        yield self.detail(response, "a", meta=response.meta)
        yield response.request.replace(url=self.url(response, "b"), callback=self.parse_detail)


@path(Expected(items=2, children=1), items=2, children=1)
class MetaCopiedIntoNextList(PathSpider):
    """A list request made from an earlier response opens its own page."""

    async def start(self) -> Any:
        yield self.open(1)

    def parse(self, response: Response) -> Any:
        yield self.item(response)
        yield self.detail(response)
        if page_of(response) == 1:
            request = response.request.replace(url=self.url(2, "list"))
            self.crawler.engine.crawl(self.open(2, request))


@path(Expected(items=2, children=1), items=2, children=1)
class MetaOfAnotherPage(PathSpider):
    """Both pages use the meta of whichever came first."""

    saved: dict[str, Any] | None = None

    def parse(self, response: Response) -> Any:
        if self.saved is None:
            self.saved = response.meta
        self.crawler.engine.crawl(self.detail(response, meta=self.saved))
        yield self.item(response)


@path(items=3, children=2)
class MetaCleared(PathSpider):
    custom_settings = {"SPIDER_MIDDLEWARES": {DepthMiddleware: None}}

    def parse(self, response: Response) -> Any:
        response.meta.clear()
        yield self.item(response)
        yield self.detail(response, "a")
        yield self.detail(response, "b", query="fails=1")


@path(items=2, children=1)
class ResponseRequestReplaced(PathSpider):
    custom_settings = {"SPIDER_MIDDLEWARES": {DepthMiddleware: None}}

    def parse(self, response: Response) -> Any:
        response.request = Request("http://x.invalid/")
        yield self.item(response)
        yield self.detail(response)


@path(items=1)
class StartItemsAndRequests(PathSpider):
    """What start() itself yields has no page."""

    async def start(self) -> Any:
        yield self.item(0)
        yield Request(self.url(0, "untracked"), self.untracked)
        yield self.open(1)

    def untracked(self, response: Response) -> Any:
        yield self.item(0)
        yield Request(self.url(0, "child", "to=/StartItemsAndRequests/p0/target"), self.child)

    def child(self, response: Response) -> Any:
        yield self.item(0)


MANY = tuple(Expected(items=11, children=5) for _ in range(7))


@path(*MANY, items=11, children=5)
class ManyPagesAtOnce(PathSpider):
    """Eight pages interleaved: every item finds its own page, after awaits too."""

    async def start(self) -> Any:
        for number in range(20):
            yield Request(self.url(0, f"noise-{number}"), self.noise)
        async for request in super().start():
            yield request

    async def noise(self, response: Response) -> Any:
        yield self.item(0)
        await sleep(0)
        yield Request(self.url(0, "more", "fails=1"), self.nothing, dont_filter=True)

    def nothing(self, response: Response) -> None:
        return None

    async def parse(self, response: Response) -> Any:
        for number in range(5):
            yield self.item(response, number)
            await sleep(0)
            yield self.detail(response, f"d{number}", query=f"fails={number % 2}")
        self.crawler.recorder.wrong += []
        yield self.item(response, "last")

    async def parse_detail(self, response: Response) -> Any:
        await sleep(0)
        yield self.item(response)
