"""Duplicates: on the own page, on pages in flight, on committed pages; the same object twice."""

from __future__ import annotations

from typing import Any

from scrapy import Request
from scrapy.http import Response

from tests.ledger.harness import PathSpider, page_of
from tests.ledger.table import Expected, path


@path(items=2, children=1, filtered=1, yielded=3)
class DuplicateOfOwnPage(PathSpider):
    def parse(self, response: Response) -> Any:
        yield self.item(response)
        yield self.detail(response)
        yield self.detail(response)


@path(items=3, children=2)
class DontFilter(PathSpider):
    def parse(self, response: Response) -> Any:
        yield self.item(response)
        yield self.detail(response)
        yield self.detail(response, dont_filter=True)


@path(items=1, children=1, filtered=1)
class SameRequestObjectTwice(PathSpider):
    def parse(self, response: Response) -> Any:
        request = self.detail(response)
        yield request
        yield request


@path(items=2, children=2)
class SameRequestObjectTwiceUnfiltered(PathSpider):
    def parse(self, response: Response) -> Any:
        request = self.detail(response, dont_filter=True)
        yield request
        yield request


@path(items=2, children=2)
class OwnRequestObjectAgain(PathSpider):
    """A detail yields the very request it answers, while that is still in progress."""

    again = True

    def parse(self, response: Response) -> Any:
        yield self.detail(response, dont_filter=True)

    def parse_detail(self, response: Response) -> Any:
        yield self.item(response)
        if self.again:
            self.again = False
            yield response.request


@path(items=1, filtered=1)
class OwnListAsDetail(PathSpider):
    def parse(self, response: Response) -> Any:
        yield self.item(response)
        yield Request(response.url, callback=self.parse_detail)


@path(Expected(items=1, children=1), items=1, children=1)
class DuplicateOfPageInFlight(PathSpider):
    """Both pages ask for the same URL at once; each gets it."""

    def parse(self, response: Response) -> Any:
        number = page_of(response)
        url = self.url(0, "shared", "wait=0.5")
        yield Request(url, self.shared, cb_kwargs={"page": number})

    def shared(self, response: Response, page: int) -> Any:
        yield self.item(page)


class Committed(PathSpider):
    """Page 2 is opened once page 1 is committed."""

    second: dict[str, Any] = {}
    repair = False

    async def start(self) -> Any:
        yield self.open(1)

    def committed(self, page: Any, done: Any) -> None:
        super().committed(page, done)
        if page.page.number == 1:
            opened, request = self.open_second()
            self.crawler.recorder.open[2] = opened
            self.crawler.engine.crawl(request)

    def open_second(self) -> Any:
        request = self.open(2, **self.second)
        page = self.crawler.recorder.open[2]
        page.repair = self.repair
        return page, request

    def parse(self, response: Response) -> Any:
        yield self.item(response)
        yield Request(self.url(0, "shared"), self.shared)

    def shared(self, response: Response) -> Any:
        return None


@path(Expected(items=1, filtered=1), items=1, children=1)
class DuplicateOfCommittedPage(Committed):
    pass


@path(Expected(items=1, children=1), items=1, children=1)
class RetryIgnoresCommitted(Committed):
    second = {"attempt": 2}


@path(Expected(items=1, children=1), items=1, children=1)
class RepairIgnoresCommitted(Committed):
    repair = True


@path(items=2, children=2)
class BaseDupeFilter(PathSpider):
    custom_settings = {"DUPEFILTER_CLASS": "scrapy.dupefilters.BaseDupeFilter"}

    def parse(self, response: Response) -> Any:
        yield self.detail(response)
        yield self.detail(response)
