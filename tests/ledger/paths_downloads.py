"""Downloads that fail or are answered on the way, caches, shared responses."""

from __future__ import annotations

import asyncio
from typing import Any

from scrapy import Request
from scrapy.exceptions import IgnoreRequest
from scrapy.http import HtmlResponse, Response

from tests.ledger.harness import PathSpider
from tests.ledger.table import Expected, failed, path


class OneDetail(PathSpider):
    """A list page with one detail request."""

    detail_url: str | None = None
    query = ""
    errback: Any = None
    meta: dict[str, Any] = {}

    def parse(self, response: Response) -> Any:
        yield self.item(response)
        request = self.detail(response, query=self.query, errback=self.errback, meta=self.meta)
        yield request.replace(url=self.detail_url) if self.detail_url else request


REFUSED = "http://127.0.0.1:9/p1/x"
NO_RETRY = {"RETRY_ENABLED": False}


@path(items=1, children=1, troubles=("request:retryable:DownloadConnectionRefusedError",))
class ConnectionRefused(OneDetail):
    custom_settings = NO_RETRY
    detail_url = REFUSED


@path(items=1, children=1, troubles=("request:retryable:DownloadTimeoutError",))
class Timeout(OneDetail):
    custom_settings = NO_RETRY
    query = "wait=2"
    meta = {"download_timeout": 0.1}


@path(items=1, children=1, troubles=("request:permanent:NotSupported",))
class UnsupportedScheme(OneDetail):
    detail_url = "gopher://127.0.0.1/p1/x"


@path(**failed("page:retryable:DownloadConnectionRefusedError"))
class ListConnectionRefused(PathSpider):
    custom_settings = NO_RETRY

    def list_request(self, number: int) -> Request:
        return Request(REFUSED)


class Failing:
    """A downloader middleware that raises what the URL names."""

    ERRORS = {
        "bug": KeyError("a bug"),
        "ignored": IgnoreRequest("not today"),
        "cancelled": asyncio.CancelledError(),
    }

    def process_response(self, request: Request, response: Response) -> Response:
        for name, error in self.ERRORS.items():
            if name in request.url:
                raise error
        return response


class InDownloader(PathSpider):
    custom_settings = {"DOWNLOADER_MIDDLEWARES": {Failing: 900}}
    detail_name = ""

    def parse(self, response: Response) -> Any:
        yield self.item(response)
        yield self.detail(response, self.detail_name)


@path(items=1, children=1, troubles=("request:code:KeyError",))
class ProcessResponseRaises(InDownloader):
    detail_name = "bug"


@path(items=1, children=1, troubles=("request:permanent:IgnoreRequest",))
class ProcessResponseIgnores(InDownloader):
    detail_name = "ignored"


@path(items=1, children=1, troubles=("request:retryable:CancelledError",))
class DownloadCancelled(InDownloader):
    """A BaseException in the downloader must not hang the crawl."""

    detail_name = "cancelled"


@path(**failed("page:retryable:CancelledError"))
class ListDownloadCancelled(InDownloader):
    def list_request(self, number: int) -> Request:
        return Request(self.url(number, "cancelled"))


class Answering:
    """A downloader middleware that answers itself; "shared" always with one object."""

    def __init__(self) -> None:
        self.shared = HtmlResponse("http://x.invalid/p0/shared", body=b"<html></html>")

    def process_request(self, request: Request) -> Response | None:
        if "answered" in request.url:
            return HtmlResponse(request.url, body=b"<html></html>", request=request)
        return self.shared if "shared" in request.url else None

    def process_exception(self, request: Request, exception: Exception) -> Response | None:
        if "excused" in request.url:
            return HtmlResponse(request.url, body=b"<html></html>", request=request)
        return None


class Answered(PathSpider):
    custom_settings = {"DOWNLOADER_MIDDLEWARES": {Answering: 900}, **NO_RETRY}
    names: tuple[str, ...] = ()
    query = ""

    def parse(self, response: Response) -> Any:
        yield self.item(response)
        for name in self.names:
            yield self.detail(response, name, query=self.query)


@path(items=2, children=1)
class MiddlewareAnswers(Answered):
    names = ("answered",)


@path(items=2, children=1)
class ExceptionAnswered(Answered):
    names = ("excused",)
    query = "breaks=9"


@path(items=3, children=2)
class SharedResponse(Answered):
    """One Response object for two requests: Scrapy calls the first one's callback twice."""

    names = ("shared-1", "shared-2")

    async def parse_detail(self, response: Response) -> Any:
        yield self.item(1)


@path(Expected(items=1, children=1, read=True), items=1, children=1)
class SharedResponseOfTwoPages(Answered):
    names = ("shared-1",)

    def parse(self, response: Response) -> Any:
        yield self.item(response)
        yield self.detail(response, "shared", callback=self.nothing)

    async def nothing(self, response: Response) -> None:
        return None


@path(items=3, children=2)
class HttpCache(PathSpider):
    custom_settings = {"HTTPCACHE_ENABLED": True}

    def parse(self, response: Response) -> Any:
        yield self.item(response)
        yield self.detail(response)

    def parse_detail(self, response: Response) -> Any:
        yield self.item(response)
        if "cached" not in response.flags:
            yield self.detail(response, dont_filter=True)
