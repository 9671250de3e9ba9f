"""Errbacks, and statuses that lead to them."""

from __future__ import annotations

from typing import Any

from scrapy import Request

from tests.ledger.harness import PathSpider
from tests.ledger.paths_downloads import NO_RETRY, REFUSED, OneDetail
from tests.ledger.table import failed, path


@path(items=1, children=1)
class ErrbackNothing(OneDetail):
    custom_settings = NO_RETRY
    detail_url = REFUSED

    def errback(self, failure: Any) -> None:
        return None


@path(items=3, children=2)
class ErrbackYields(OneDetail):
    custom_settings = NO_RETRY
    detail_url = REFUSED

    def errback(self, failure: Any) -> Any:
        yield self.item(1, "rescued")
        yield self.detail(1, "other")


@path(items=3, children=2)
class ErrbackAsyncGenerator(OneDetail):
    custom_settings = NO_RETRY
    detail_url = REFUSED

    async def errback(self, failure: Any) -> Any:
        yield self.item(1, "rescued")
        yield self.detail(1, "other")


@path(items=1, children=1, troubles=("request:code:KeyError",))
class ErrbackRaises(OneDetail):
    custom_settings = NO_RETRY
    detail_url = REFUSED

    def errback(self, failure: Any) -> Any:
        raise KeyError("a bug")


@path(items=2, children=1, troubles=("request:code:KeyError",))
class ErrbackYieldsThenRaises(OneDetail):
    custom_settings = NO_RETRY
    detail_url = REFUSED

    def errback(self, failure: Any) -> Any:
        yield self.item(1)
        raise KeyError("a bug")


@path(items=1, children=1, troubles=("request:retryable:DownloadConnectionRefusedError",))
class ErrbackReturnsFailure(OneDetail):
    custom_settings = NO_RETRY
    detail_url = REFUSED

    def errback(self, failure: Any) -> Any:
        return failure


@path(items=1, children=1, troubles=("request:retryable:DownloadConnectionRefusedError",))
class ErrbackReraises(OneDetail):
    custom_settings = NO_RETRY
    detail_url = REFUSED

    def errback(self, failure: Any) -> Any:
        failure.raiseException()


@path(**failed("page:permanent:HttpError", items=1))
class ListErrback(PathSpider):
    """A failed list is no page, whatever the errback makes of it."""

    def list_request(self, number: int) -> Request:
        return Request(self.url(number, "list", "status=404"), errback=self.errback)

    def errback(self, failure: Any) -> Any:
        yield self.item(1)


@path(**failed("page:code:KeyError", "page:permanent:HttpError"))
class ListErrbackRaises(PathSpider):
    def list_request(self, number: int) -> Request:
        return Request(self.url(number, "list", "status=404"), errback=self.errback)

    def errback(self, failure: Any) -> Any:
        raise KeyError("a bug")


@path(items=1, children=1, troubles=("request:permanent:HttpError",))
class Status404(OneDetail):
    query = "status=404"


@path(items=2, children=1)
class Status404Errback(OneDetail):
    query = "status=404"

    def errback(self, failure: Any) -> Any:
        yield self.item(1)


@path(items=2, children=1)
class Status404Handled(OneDetail):
    handle_httpstatus_list = (404,)
    query = "status=404"


@path(**failed("page:permanent:HttpError"))
class Status404List(PathSpider):
    list_query = "status=404"


@path(**failed("page:permanent:HttpError"))
class Status403List(PathSpider):
    list_query = "status=403"


@path(**failed("page:retryable:HttpError"))
class Status429List(PathSpider):
    custom_settings = NO_RETRY
    list_query = "status=429&after=7"

    def commit(self, page: Any) -> Any:
        if page.troubles[0].retry_after != 7.0 or page.troubles[0].status != 429:
            self.crawler.recorder.wrong.append(f"misread: {page.troubles}")
        return super().commit(page)


@path(items=1)
class Status404ListHandled(PathSpider):
    handle_httpstatus_list = (404,)
    list_query = "status=404"
