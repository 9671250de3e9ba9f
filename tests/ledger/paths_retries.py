"""Requests that become other requests: retries, redirects, middlewares that replace them."""

from __future__ import annotations

from typing import Any

from scrapy import Request
from scrapy.downloadermiddlewares.retry import get_retry_request
from scrapy.http import Response

from tests.ledger.harness import PathSpider
from tests.ledger.table import failed, path


class OneDetail(PathSpider):
    query = ""

    def parse(self, response: Response) -> Any:
        yield self.item(response)
        yield self.detail(response, query=self.query)


@path(items=2, children=1)
class RetryStatus(OneDetail):
    query = "fails=1"


@path(items=2, children=1)
class RetryException(OneDetail):
    query = "breaks=1"


@path(items=1, children=1, troubles=("request:retryable:HttpError",))
class RetriesExhaustedStatus(OneDetail):
    query = "fails=9"


@path(items=1)
class RetryList(PathSpider):
    list_query = "fails=1"


@path(items=1)
class RetryListException(PathSpider):
    list_query = "breaks=1"


@path(**failed("page:retryable:HttpError"))
class RetriesExhaustedList(PathSpider):
    list_query = "fails=9"


@path(items=2, children=1)
class Redirect(OneDetail):
    query = "to=/Redirect/p1/target"


@path(items=2, children=1)
class RedirectChain(OneDetail):
    query = "to=/RedirectChain/p1/b%3Fto%3D/RedirectChain/p1/c"


@path(items=1)
class RedirectList(PathSpider):
    list_query = "to=/RedirectList/p1/target"


@path(items=2, children=1)
class RedirectThenRetry(OneDetail):
    query = "to=/RedirectThenRetry/p1/target%3Ffails%3D1"


@path(items=2, children=2, filtered=1)
class RedirectToDuplicate(PathSpider):
    """A redirect to what the page asked for already is a duplicate."""

    def parse(self, response: Response) -> Any:
        yield self.detail(response, "target")
        yield self.item(response)
        yield self.detail(response, "a", query="to=/RedirectToDuplicate/p1/target")


@path(items=2, children=1)
class RedirectToItself(OneDetail):
    """As after a cookie was set: it is the same record, not a duplicate of it."""

    query = "once=1"


@path(items=1, children=1, troubles=("request:permanent:IgnoreRequest",))
class MaxRedirects(PathSpider):
    custom_settings = {"REDIRECT_MAX_TIMES": 1}

    def parse(self, response: Response) -> Any:
        yield self.item(response)
        yield self.detail(response, query="to=/MaxRedirects/p1/b%3Fto%3D/MaxRedirects/p1/c")


@path(items=2, children=1)
class MetaRefresh(OneDetail):
    query = "refresh=/MetaRefresh/p1/target"


class Replacing:
    """A downloader middleware that answers with a request, once per target."""

    def process_request(self, request: Request) -> Request | None:
        if "by-request" in request.url:
            return request.replace(url=request.url.replace("by-request", "target"))
        return None

    def process_response(self, request: Request, response: Response) -> Request | Response:
        if "fresh" in request.url:
            return Request(request.url.replace("fresh", "target"), request.callback)
        if "same" in request.url and not request.meta.get("tried"):
            request.meta["tried"] = True
            return request
        if "cleared" in request.url:
            return request.replace(url=request.url.replace("cleared", "target"), meta={})
        return response

    def process_exception(self, request: Request, exception: Exception) -> Request | None:
        if "excused" in request.url:
            return request.replace(url=self.excused(request), dont_filter=True)
        return None

    def excused(self, request: Request) -> str:
        return request.url.replace("excused", "target").partition("?")[0]


class Replaced(PathSpider):
    custom_settings = {"DOWNLOADER_MIDDLEWARES": {Replacing: 900}}
    detail_name = ""
    query = ""

    def parse(self, response: Response) -> Any:
        yield self.item(response)
        yield self.detail(response, self.detail_name, query=self.query)


@path(items=2, children=1)
class ReplacedInRequest(Replaced):
    detail_name = "by-request"


@path(items=2, children=1)
class ReplacedByFreshRequest(Replaced):
    detail_name = "fresh"


@path(items=2, children=1)
class ReplacedBySameObject(Replaced):
    detail_name = "same"


@path(items=2, children=1)
class ReplacedWithMetaCleared(Replaced):
    detail_name = "cleared"


@path(items=2, children=1)
class ReplacedInException(Replaced):
    custom_settings = {"DOWNLOADER_MIDDLEWARES": {Replacing: 900}, "RETRY_ENABLED": False}
    detail_name = "excused"
    query = "breaks=9"


class ReplacedList(PathSpider):
    custom_settings = {"DOWNLOADER_MIDDLEWARES": {Replacing: 900}}
    list_name = ""

    def list_request(self, number: int) -> Request:
        return Request(self.url(number, self.list_name))


@path(items=1)
class ListReplacedByFresh(ReplacedList):
    list_name = "fresh"


@path(items=1)
class ListReplacedBySame(ReplacedList):
    list_name = "same"


@path(items=1)
class ListReplacedInRequest(ReplacedList):
    list_name = "by-request"


@path(items=2, yielded=1, children=1)
class RetryRequestOfList(PathSpider):
    """The list callback asks for its list again: that is the list, and it is read once."""

    checked = 0

    async def check(self, response: Response) -> None:
        self.checked += 1

    def parse(self, response: Response) -> Any:
        if self.checked == 1:
            return get_retry_request(response.request, spider=self, reason="empty")
        self.crawler.engine.crawl(self.detail(response))
        return [self.item(response)]


@path(items=2, children=2)
class RetryRequestOfDetail(PathSpider):
    def parse(self, response: Response) -> Any:
        yield self.item(response)
        yield self.detail(response)

    def parse_detail(self, response: Response) -> Any:
        if not response.meta.get("retry_times"):
            yield get_retry_request(response.request, spider=self, reason="empty")
        else:
            yield self.item(response)


@path(items=1)
class ListObjectAgain(PathSpider):
    """The list callback yields the very request it answers."""

    times = 0

    def list_request(self, number: int) -> Request:
        return Request(self.url(number, "list"), dont_filter=True)

    def parse(self, response: Response) -> Any:
        self.times += 1
        yield response.request if self.times == 1 else self.item(response)
