"""What a callback says of the next page, pages that are given up, faults, the commit."""

from __future__ import annotations

from typing import Any

from scrapy import Request
from scrapy.http import Response
from scrapy.utils.asyncio import call_later
from twisted.internet.defer import Deferred, fail

from scrapy_resume import faults
from scrapy_resume.ledger import EndOfShard, NextPage, OpenPage
from tests.ledger.harness import PathSpider
from tests.ledger.table import Expected, failed, path


class Chain(PathSpider):
    """Each page names the next; checks what the page then knows of it."""

    knows: tuple[Any, ...] = ()

    def next_page(self, response: Response, url: str | None = None) -> Request:
        url = url or self.url(response, "next")
        return Request(url, meta={"resume_next": True})

    def commit(self, page: OpenPage) -> Any:
        url = page.next_request and page.next_request.url.rpartition("/")[2]
        found = (url, page.next_cursor, page.has_next, page.end_reason)
        if self.knows and found != self.knows:
            self.crawler.recorder.wrong.append(f"the page knows {found}")
        if page.next_request is not None and "resume_next" in page.next_request.meta:
            self.crawler.recorder.wrong.append("the next request still carries its mark")
        return super().commit(page)


@path(items=2, children=1, yielded=2)
class NextRequest(Chain):
    knows = ("next", None, True, None)

    def parse(self, response: Response) -> Any:
        yield self.item(response)
        yield self.next_page(response)
        yield self.detail(response)


@path(items=1)
class NextRequestFirst(Chain):
    knows = ("next", None, True, None)

    async def parse(self, response: Response) -> Any:
        yield self.next_page(response)
        yield self.item(response)


@path(items=1, yielded=1)
class NextCursor(Chain):
    knows = (None, {"after": 7}, True, None)

    def parse(self, response: Response) -> Any:
        yield NextPage({"after": 7})
        yield self.item(response)


@path(items=1, yielded=1)
class EndNamed(Chain):
    knows = (None, None, False, "no more")

    def parse(self, response: Response) -> Any:
        yield self.item(response)
        yield EndOfShard("no more")


@path(**failed("page:code:KeyError", items=1))
class NextThenRaises(Chain):
    def parse(self, response: Response) -> Any:
        yield self.item(response)
        yield self.next_page(response)
        raise KeyError("a bug")


@path(**failed("page:permanent:HttpError"))
class NextByErrback(Chain):
    def list_request(self, number: int) -> Request:
        return Request(self.url(number, "list", "status=404"), errback=self.errback)

    def errback(self, failure: Any) -> Any:
        yield Request(self.url(1, "next"), meta={"resume_next": True})


@path(items=1, decision="failed", troubles=("page:code:PageError",), read=None)
class TwoNextRequests(Chain):
    def parse(self, response: Response) -> Any:
        yield self.item(response)
        yield self.next_page(response)
        yield self.next_page(response, self.url(response, "other"))


@path(**failed("page:code:PageError", items=1))
class NextAndEnd(Chain):
    def parse(self, response: Response) -> Any:
        yield self.item(response)
        yield NextPage(2)
        yield EndOfShard("no more")


@path(**failed("page:code:PageError", items=1))
class NextRefusedOffsite(Chain):
    allowed_domains = ("127.0.0.1",)

    def parse(self, response: Response) -> Any:
        yield self.item(response)
        yield self.next_page(response, "http://offsite.invalid/")


@path(**failed("page:code:PageError", items=1))
class NextRefusedByDepth(Chain):
    custom_settings = {"DEPTH_LIMIT": 1}

    def list_request(self, number: int) -> Request:
        return Request(self.url(number, "list"), meta={"depth": 1})

    def parse(self, response: Response) -> Any:
        yield self.item(response)
        yield self.next_page(response)


@path(decision="failed", troubles=("page:code:PageError",), items=1, children=1)
class NextByDetail(Chain):
    """By then the page was read: nobody would look at it."""

    def parse(self, response: Response) -> Any:
        yield self.item(response)
        yield self.detail(response)

    def parse_detail(self, response: Response) -> Any:
        yield self.next_page(response)


@path(items=1)
class NextWithoutPage(Chain):
    """In a callback of no page it is a request like others."""

    untidy = True  # the item of no page may be in the pipelines when the page closes

    async def start(self) -> Any:
        yield Request(self.url(0, "untracked"), self.untracked)
        yield self.open(1)

    def untracked(self, response: Response) -> Any:
        yield self.next_page(response, self.url(0, "next")).replace(callback=self.after)

    def after(self, response: Response) -> Any:
        if "resume_next" in response.meta:
            self.crawler.recorder.wrong.append("a mark was left")
        yield self.item(0)


@path(closed=0, items=1, children=3)
class Abandoned(PathSpider):
    """A lost shard: what is queued is not asked for, and nobody is told of the page."""

    custom_settings = {"CONCURRENT_REQUESTS": 1}

    def parse(self, response: Response) -> Any:
        yield self.item(response)
        for number in range(3):
            yield self.detail(response, f"d{number}")
        call_later(0, self.lose)

    def lose(self) -> None:
        self.crawler.ledger.abandon(self.crawler.recorder.open[1])

    def parse_detail(self, response: Response) -> Any:
        if not self.crawler.recorder.open[1].closed:
            yield self.item(response)
        yield self.detail(response, "more")


@path(closed=0, read=False)
class AbandonedBeforeStart(PathSpider):
    async def start(self) -> Any:
        request = self.open(1)
        self.crawler.ledger.abandon(self.crawler.recorder.open[1])
        yield request


@path(items=1)
class CommitHoldsRequest(PathSpider):
    """The last request stays in progress until the page is durable, so closing waits."""

    held = False

    def commit(self, page: OpenPage) -> Deferred[None]:
        done: Deferred[None] = Deferred()
        call_later(0.2, self.committed, page, done)
        return done

    def committed(self, page: OpenPage, done: Deferred[None]) -> None:
        slot = self.crawler.engine._slot
        if slot is None or len(slot.inprogress) != 1:
            self.crawler.recorder.wrong.append("nothing was held while the page was committed")
        super().committed(page, done)


@path(items=1)
class CommitFails(PathSpider):
    def commit(self, page: OpenPage) -> Deferred[None]:
        return fail(RuntimeError("the session has a bug"))


@path(items=1)
class ListenerRaises(PathSpider):
    def commit(self, page: OpenPage) -> Deferred[None]:
        raise RuntimeError("the session has a bug")


@path(items=1)
class CommittedAtOnce(PathSpider):
    def commit(self, page: OpenPage) -> None:
        return None


class Armed(PathSpider):
    fault = ""

    async def start(self) -> Any:
        faults.arm(self.fault)
        yield self.open(1)

    def commit(self, page: OpenPage) -> Any:
        faults.arm(None)
        return super().commit(page)


@path(**failed("page:code:InjectedFault"))
class FaultAtResponse(Armed):
    fault = "page.response:1:raise"


@path(items=1, decision="failed", troubles=("page:code:InjectedFault",))
class FaultAtComplete(Armed):
    fault = "page.complete:1:raise"


@path(Expected(items=1), Expected(**failed("page:code:KeyError")), items=1)
class FailedPageAmongOthers(PathSpider):
    def parse(self, response: Response) -> Any:
        if "/p3/" in response.url:
            raise KeyError("a bug")
        yield self.item(response)
