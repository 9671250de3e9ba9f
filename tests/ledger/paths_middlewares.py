"""What spider middlewares other than ours may do."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.http import Response

from tests.ledger.harness import PathSpider
from tests.ledger.table import failed, path


class Other:
    """A spider middleware between ours and the spider."""

    def __init__(self, crawler: Crawler) -> None:
        self.crawler = crawler

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Other:
        return cls(crawler)


class OneDetail(PathSpider):
    def parse(self, response: Response) -> Any:
        yield self.item(response)
        yield self.detail(response)


class Recovering(Other):
    def process_spider_exception(self, response: Response, exception: Exception) -> Any:
        return [self.crawler.spider.item(response, "recovered")]


@path(**failed("page:code:KeyError", items=2))
class ExceptionRecovered(PathSpider):
    """Recovered by a middleware, but what the callback had still to give is lost."""

    custom_settings = {"SPIDER_MIDDLEWARES": {Recovering: 500}}

    def parse(self, response: Response) -> Any:
        yield self.item(response)
        raise KeyError("a bug")


class RaisingOutput(Other):
    async def process_spider_output(
        self, response: Response, result: AsyncIterator[Any]
    ) -> AsyncIterator[Any]:
        async for output in result:
            yield output
        if self.crawler.spider.broken in response.url:
            raise ValueError("a bug")


@path(items=2, children=1, troubles=("page:code:ValueError",), decision="failed")
class MiddlewareRaisesInOutputOfList(OneDetail):
    custom_settings = {"SPIDER_MIDDLEWARES": {RaisingOutput: 500}}
    broken = "/list"


@path(items=2, children=1, troubles=("request:code:ValueError",))
class MiddlewareRaisesInOutputOfDetail(OneDetail):
    custom_settings = {"SPIDER_MIDDLEWARES": {RaisingOutput: 500}}
    broken = "/d"


class RaisingInput(Other):
    result: Any = None

    def process_spider_input(self, response: Response) -> Any:
        if self.crawler.spider.broken in response.url:
            raise ValueError("a bug")


@path(**failed("page:retryable:ValueError"))
class MiddlewareRaisesInInputOfList(OneDetail):
    custom_settings = {"SPIDER_MIDDLEWARES": {RaisingInput: 500}}
    broken = "/list"


@path(items=1, children=1, troubles=("request:retryable:ValueError",))
class MiddlewareRaisesInInputOfDetail(OneDetail):
    custom_settings = {"SPIDER_MIDDLEWARES": {RaisingInput: 500}}
    broken = "/d"


@path(items=2, children=1)
class MiddlewareRaisesInInputErrback(PathSpider):
    custom_settings = {"SPIDER_MIDDLEWARES": {RaisingInput: 500}}
    broken = "/d"

    def parse(self, response: Response) -> Any:
        yield self.item(response)
        yield self.detail(response, errback=self.errback)

    def errback(self, failure: Any) -> Any:
        yield self.item(1)


class WrongInput(Other):
    def process_spider_input(self, response: Response) -> Any:
        return [] if self.crawler.spider.broken in response.url else None


@path(**failed("page:code:_InvalidOutput"))
class MiddlewareReturnsFromInputOfList(OneDetail):
    custom_settings = {"SPIDER_MIDDLEWARES": {WrongInput: 500}}
    broken = "/list"


@path(items=1, children=1, troubles=("request:code:_InvalidOutput",))
class MiddlewareReturnsFromInputOfDetail(OneDetail):
    custom_settings = {"SPIDER_MIDDLEWARES": {WrongInput: 500}}
    broken = "/d"


class Stopping(Other):
    """Reads one output and no more."""

    async def process_spider_output(
        self, response: Response, result: AsyncIterator[Any]
    ) -> AsyncIterator[Any]:
        async for output in result:
            yield output
            if self.crawler.spider.broken in response.url:
                return


@path(**failed("page:code:PageError", items=1))
class MiddlewareStopsReadingList(OneDetail):
    custom_settings = {"SPIDER_MIDDLEWARES": {Stopping: 500}}
    broken = "/list"


@path(items=2, children=1, troubles=("request:code:PageError",))
class MiddlewareStopsReadingDetail(OneDetail):
    custom_settings = {"SPIDER_MIDDLEWARES": {Stopping: 500}}
    broken = "/d"

    def parse_detail(self, response: Response) -> Any:
        yield self.item(response)
        yield self.item(response)


class Dropping(Other):
    async def process_spider_output(
        self, response: Response, result: AsyncIterator[Any]
    ) -> AsyncIterator[Any]:
        async for output in result:
            if not isinstance(output, Request):
                yield output


@path(items=1, ignored=1)
class MiddlewareDropsRequests(OneDetail):
    custom_settings = {"SPIDER_MIDDLEWARES": {Dropping: 500}}


class Replacing(Other):
    async def process_spider_output(
        self, response: Response, result: AsyncIterator[Any]
    ) -> AsyncIterator[Any]:
        async for output in result:
            yield output.replace(meta={}) if isinstance(output, Request) else output


@path(items=2, children=1)
class MiddlewareReplacesRequests(OneDetail):
    custom_settings = {"SPIDER_MIDDLEWARES": {Replacing: 500}}


class Adding(Other):
    async def process_spider_output(
        self, response: Response, result: AsyncIterator[Any]
    ) -> AsyncIterator[Any]:
        async for output in result:
            yield output
        if "/list" in response.url:
            yield self.crawler.spider.item(response)
            yield self.crawler.spider.detail(response, "added")


@path(items=4, children=2)
class MiddlewareAdds(OneDetail):
    custom_settings = {"SPIDER_MIDDLEWARES": {Adding: 500}}


class Crawling(Other):
    async def process_spider_output(
        self, response: Response, result: AsyncIterator[Any]
    ) -> AsyncIterator[Any]:
        async for output in result:
            if "/list" in response.url and isinstance(output, Request):
                self.crawler.engine.crawl(self.crawler.spider.detail(response, "injected"))
            yield output


@path(items=3, children=2)
class MiddlewareCrawls(OneDetail):
    custom_settings = {"SPIDER_MIDDLEWARES": {Crawling: 500}}
