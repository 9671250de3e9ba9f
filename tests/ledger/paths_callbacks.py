"""Every kind of callback, and where each can fail."""

from __future__ import annotations

import asyncio
from typing import Any

from scrapy.exceptions import CloseSpider
from scrapy.http import Response
from scrapy.utils.asyncio import sleep
from scrapy.utils.defer import deferred_from_coro

from scrapy_resume.exceptions import NotAPage, SiteBlocked
from tests.ledger.harness import PathSpider
from tests.ledger.table import failed, path

CLOSED = "page:retryable:Interrupted"


@path(yielded=0)
class CallbackNone(PathSpider):
    def parse(self, response: Response) -> None:
        return None


@path(items=2, children=1, yielded=2)
class CallbackList(PathSpider):
    def parse(self, response: Response) -> Any:
        return [self.item(response), self.detail(response), None]


@path(items=1, yielded=1)
class CallbackDict(PathSpider):
    def parse(self, response: Response) -> Any:
        return self.item(response)


@path(items=2, children=1, yielded=2)
class CallbackCoroutine(PathSpider):
    async def parse(self, response: Response) -> Any:
        await sleep(0)
        return [self.item(response), self.detail(response)]


@path(items=3, children=1, yielded=3)
class CallbackAsyncGenerator(PathSpider):
    async def parse(self, response: Response) -> Any:
        yield self.item(response, 1)
        await sleep(0.01)
        yield self.detail(response)
        await sleep(0.01)
        yield self.item(response, 2)

    async def parse_detail(self, response: Response) -> Any:
        await sleep(0)
        yield self.item(response)


@path(yielded=0)
class CallbackEmptyGenerator(PathSpider):
    def parse(self, response: Response) -> Any:
        yield from ()


@path(**failed("page:code:KeyError"))
class RaisesInFunction(PathSpider):
    def parse(self, response: Response) -> Any:
        raise KeyError("a bug")


@path(**failed("page:code:KeyError"))
class RaisesBeforeFirst(PathSpider):
    def parse(self, response: Response) -> Any:
        if response:
            raise KeyError("a bug")
        yield self.item(response)


@path(**failed("page:code:KeyError", items=2, children=1))
class RaisesBetween(PathSpider):
    def parse(self, response: Response) -> Any:
        yield self.item(response)
        yield self.detail(response)
        raise KeyError("a bug")
        yield self.item(response)


@path(**failed("page:code:KeyError", items=1))
class RaisesAfterLast(PathSpider):
    def parse(self, response: Response) -> Any:
        yield self.item(response)
        raise KeyError("a bug")


@path(**failed("page:code:KeyError", items=1))
class RaisesInAsyncGenerator(PathSpider):
    async def parse(self, response: Response) -> Any:
        yield self.item(response)
        await sleep(0)
        raise KeyError("a bug")


@path(**failed("page:code:KeyError"))
class RaisesInCoroutine(PathSpider):
    async def parse(self, response: Response) -> Any:
        await sleep(0)
        raise KeyError("a bug")


@path(items=2, children=1, troubles=("request:code:KeyError",))
class RaisesInDetail(PathSpider):
    def parse(self, response: Response) -> Any:
        yield self.item(response)
        yield self.detail(response)

    def parse_detail(self, response: Response) -> Any:
        yield self.item(response)
        raise KeyError("a bug")


@path(**failed("page:code:TypeError"))
class NotIterable(PathSpider):
    """The callback's signature is wrong."""

    def parse(self, response: Response, missing: Any) -> Any:
        yield self.item(response)


@path(**failed("page:retryable:CancelledError", items=1))
class CancelledInGenerator(PathSpider):
    """A BaseException in a callback must not hang the crawl."""

    def parse(self, response: Response) -> Any:
        yield self.item(response)
        raise asyncio.CancelledError


@path(**failed("page:retryable:CancelledError"))
class CancelledInFunction(PathSpider):
    def parse(self, response: Response) -> Any:
        raise asyncio.CancelledError


@path(items=2, children=1, troubles=("request:retryable:CancelledError",))
class CancelledInDetail(PathSpider):
    def parse(self, response: Response) -> Any:
        yield self.item(response)
        yield self.detail(response)

    async def parse_detail(self, response: Response) -> Any:
        yield self.item(response)
        raise asyncio.CancelledError


@path(**failed("page:retryable:NotAPage", items=1))
class NotAPageInCallback(PathSpider):
    def parse(self, response: Response) -> Any:
        yield self.item(response)
        raise NotAPage("a login form")


@path(**failed("page:blocked:SiteBlocked"))
class SiteBlockedInCallback(PathSpider):
    def parse(self, response: Response) -> Any:
        raise SiteBlocked("a captcha")


@path(items=1, children=1, decision="failed", troubles=("page:blocked:SiteBlocked",))
class SiteBlockedInDetail(PathSpider):
    """A site that blocks us spoils the whole page."""

    def parse(self, response: Response) -> Any:
        yield self.item(response)
        yield self.detail(response)

    def parse_detail(self, response: Response) -> Any:
        raise SiteBlocked("a captcha")


class Checked(PathSpider):
    error: Exception

    async def check(self, response: Response) -> None:
        await sleep(0)
        raise self.error


@path(**failed("page:retryable:NotAPage"))
class CheckSaysNotAPage(Checked):
    error = NotAPage("a login form")


@path(**failed("page:blocked:SiteBlocked"))
class CheckSaysBlocked(Checked):
    error = SiteBlocked("a captcha")


@path(**failed("page:code:KeyError"))
class CheckRaises(Checked):
    error = KeyError("a bug")


@path(**failed(CLOSED), reason="enough")
class CloseSpiderInFunction(PathSpider):
    def parse(self, response: Response) -> Any:
        raise CloseSpider("enough")


@path(**failed(CLOSED, items=1), reason="enough")
class CloseSpiderInGenerator(PathSpider):
    def parse(self, response: Response) -> Any:
        yield self.item(response)
        raise CloseSpider("enough")


@path(
    closed=0, live=1, items=3, children=3, reason="enough", decision="failed",
    troubles=(CLOSED, CLOSED), leaks={"open pages": 1},
)  # fmt: skip
class CloseSpiderWithQueuedRequests(PathSpider):
    """What is queued is never asked for: the page stays open, and nothing is committed."""

    custom_settings = {"CONCURRENT_REQUESTS": 1}

    def parse(self, response: Response) -> Any:
        yield self.item(response)
        for number in range(3):
            yield self.detail(response, f"d{number}", "wait=0.3")

    def parse_detail(self, response: Response) -> Any:
        yield self.item(response)
        raise CloseSpider("enough")


@path(
    closed=0, live=3, items=1, children=3, reason="shutdown",
    leaks={"open pages": 1},
)  # fmt: skip
class ShutdownWithQueuedRequests(PathSpider):
    custom_settings = {"CONCURRENT_REQUESTS": 1}

    async def parse(self, response: Response) -> Any:
        yield self.item(response)
        for number in range(3):
            yield self.detail(response, f"d{number}")
        closing = self.crawler.engine.close_spider_async(reason="shutdown")
        self.closing = deferred_from_coro(closing)


@path(items=1 + 3 + 9 + 27, children=3 + 9 + 27)
class NestedDetails(PathSpider):
    """Details of details of details, three of each."""

    def parse(self, response: Response, name: str = "n") -> Any:
        yield self.item(response, name)
        if len(name) < 4:
            for number in range(3):
                child = f"{name}{number}"
                yield self.detail(response, child, callback=self.parse, cb_kwargs={"name": child})


@path(items=101, children=50)
class WidePage(PathSpider):
    def parse(self, response: Response) -> Any:
        for number in range(50):
            yield self.item(response, number)
            yield self.detail(response, f"d{number}")
        yield self.item(response)
