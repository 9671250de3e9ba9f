"""Requests that never get to the downloader: refusals, offsite, robots, limits."""

from __future__ import annotations

from typing import Any

from scrapy import Request, signals
from scrapy.exceptions import IgnoreRequest
from scrapy.http import Response
from scrapy.utils.request import request_from_dict

from tests.ledger.harness import PathSpider, TableScheduler
from tests.ledger.table import failed, path

OFFSITE = "http://offsite.invalid/x"


class Refusing(TableScheduler):
    def store(self, request: Request) -> bool:
        return "refused" not in request.url and super().store(request)


class Raising(TableScheduler):
    def store(self, request: Request) -> bool:
        if "refused" in request.url:
            raise RuntimeError("the queue is broken")
        return super().store(request)


@path(items=1, filtered=1)
class EnqueueFalse(PathSpider):
    custom_settings = {"SCHEDULER": Refusing}

    def parse(self, response: Response) -> Any:
        yield self.item(response)
        yield self.detail(response, "refused")


@path(
    decision="failed",
    troubles=("page:code:RuntimeError",),
    items=2,
    children=1,
    ignored=1,
    read=None,
)
class EnqueueRaises(PathSpider):
    custom_settings = {"SCHEDULER": Raising}

    def parse(self, response: Response) -> Any:
        yield self.item(response)
        yield self.detail(response, "refused")
        yield self.detail(response)


@path(**failed(*["page:code:RuntimeError"] * 120, items=1, ignored=120))
class EnqueueRaisesOften(PathSpider):
    """More failures than the scraper has workers."""

    custom_settings = {"SCHEDULER": Raising}

    def parse(self, response: Response) -> Any:
        for number in range(120):
            yield self.detail(response, f"refused-{number}")
        yield self.item(response)


@path(**failed("page:permanent:PageError"))
class EnqueueFalseForList(PathSpider):
    custom_settings = {"SCHEDULER": Refusing}
    list_query = "refused"


@path(**failed("page:code:RuntimeError"))
class EnqueueRaisesForList(PathSpider):
    custom_settings = {"SCHEDULER": Raising}
    list_query = "refused"


class Pickled(TableScheduler):
    """What a disk queue does: another object comes out."""

    def store(self, request: Request) -> bool:
        spider = self.crawler.spider
        return super().store(request_from_dict(request.to_dict(spider=spider), spider=spider))


@path(items=3, children=2)
class PickledQueue(PathSpider):
    custom_settings = {"SCHEDULER": Pickled}

    def parse(self, response: Response) -> Any:
        yield self.item(response)
        yield self.detail(response, "a")
        yield self.detail(response, "b", query="fails=1")


@path(items=1, ignored=1)
class OffsiteDirect(PathSpider):
    allowed_domains = ("127.0.0.1",)

    def parse(self, response: Response) -> Any:
        yield self.item(response)
        yield Request(OFFSITE)


@path(items=1, children=1, ignored=1)
class OffsiteRedirect(PathSpider):
    allowed_domains = ("127.0.0.1",)

    def parse(self, response: Response) -> Any:
        yield self.item(response)
        yield self.detail(response, query=f"to={OFFSITE}")


@path(**failed("page:permanent:PageError"))
class OffsiteList(PathSpider):
    allowed_domains = ("example.com",)


@path(**failed("page:permanent:PageError"))
class OffsiteListRedirect(PathSpider):
    allowed_domains = ("127.0.0.1",)
    list_query = f"to={OFFSITE}"


class Shrinking(TableScheduler):
    def store(self, request: Request) -> bool:
        if "/d" in request.url:
            self.crawler.spider.allowed_domains = ("example.com",)
        return super().store(request)


@path(items=1, children=1, troubles=("request:permanent:IgnoreRequest",))
class OffsiteInDownloader(PathSpider):
    """allowed_domains shrinks while the request waits in the queue."""

    custom_settings = {"SCHEDULER": Shrinking}
    allowed_domains = ("127.0.0.1",)

    def parse(self, response: Response) -> Any:
        yield self.item(response)
        yield self.detail(response)


class Robots(PathSpider):
    custom_settings = {"ROBOTSTXT_OBEY": True}
    query_errback: Any = None

    def parse(self, response: Response) -> Any:
        yield self.item(response)
        yield self.detail(response, "private", errback=self.query_errback)


@path(items=1, children=1, troubles=("request:permanent:IgnoreRequest",))
class RobotsDetail(Robots):
    pass


@path(items=2, children=1)
class RobotsDetailErrback(Robots):
    def query_errback(self, failure: Any) -> Any:
        yield self.item(1)


@path(**failed("page:permanent:IgnoreRequest"))
class RobotsList(PathSpider):
    custom_settings = {"ROBOTSTXT_OBEY": True}

    def list_request(self, number: int) -> Request:
        return Request(self.url(number, "private"))


@path(items=3, children=2, ignored=1)
class DepthLimit(PathSpider):
    custom_settings = {"DEPTH_LIMIT": 2}

    def parse(self, response: Response) -> Any:
        yield self.item(response)
        if response.meta["depth"] < 3:
            yield self.detail(response, f"d{response.meta['depth']}", callback=self.parse)


@path(items=1, ignored=1)
class UrlLength(PathSpider):
    custom_settings = {"URLLENGTH_LIMIT": 200}

    def parse(self, response: Response) -> Any:
        yield self.item(response)
        yield self.detail(response, "x" * 300)


class OnScheduled(PathSpider):
    error: Exception

    async def start(self) -> Any:
        self.crawler.signals.connect(self.scheduled, signals.request_scheduled)
        yield self.open(1)

    def scheduled(self, request: Request) -> None:
        if "detail" in request.url:
            raise self.error

    def parse(self, response: Response) -> Any:
        yield self.item(response)
        yield self.detail(response, "detail")


@path(items=1, ignored=1)
class ScheduledHandlerIgnores(OnScheduled):
    error = IgnoreRequest("not this one")


@path(items=2, children=1)
class ScheduledHandlerRaises(OnScheduled):
    error = ValueError("a bug in a handler is only logged")


@path(items=2, children=1, ignored=1)
class ScheduledHandlerCrawls(OnScheduled):
    """A handler crawls another request while one is being scheduled, then refuses that."""

    def scheduled(self, request: Request) -> None:
        if "detail" in request.url:
            self.crawler.engine.crawl(self.detail(1, "other"))
            raise IgnoreRequest
