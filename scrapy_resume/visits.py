"""One request on its way through the engine, and what its callback gave.

A callback's output is read through :meth:`Visit.watch`, innermost, before any spider
middleware: the only place that sees whether it was exhausted, raised, or was left
unfinished by a middleware that stopped reading.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from copy import copy
from typing import Any, TypeAlias

from scrapy import Item, Request
from scrapy.http import Response
from scrapy.utils.asyncgen import as_async_generator
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from scrapy_resume.cancellation import Abandoned, Interrupted, PageCode
from scrapy_resume.exceptions import NotAPage, SiteBlocked
from scrapy_resume.openpage import CURRENT, NEXT, EndOfShard, NextPage, OpenPage, Place
from scrapy_resume.page import Where
from scrapy_resume.troubles import trouble_from

Output: TypeAlias = Iterable[Any] | AsyncIterator[Any]
Done: TypeAlias = Callable[["Visit"], None]
Stops: TypeAlias = Callable[[BaseException], bool]
Tag: TypeAlias = Callable[[Any, "Visit"], None]

_CACHED = "_cached_selector"  # Scrapy's; asking for response.selector again makes a new one


class Visit:
    """A dequeued request that the engine is not done with.

    *page* is None for a request of no page. *cause* is the exception its errback got,
    *error* the last one recorded. *asked_again* says that a list callback yielded its
    own request once more.
    """

    __slots__ = (
        "asked_again", "called", "cause", "download", "error", "exhausted", "fetched",
        "is_list", "page", "request", "result",
    )  # fmt: skip

    def __init__(self, page: OpenPage | None, request: Request, is_list: bool) -> None:
        self.page = page
        self.request = request
        self.is_list = is_list
        self.result: Response | Failure | None = None
        self.download: Deferred[Any] | None = None
        self.fetched = False
        self.called = False
        self.exhausted = False
        self.asked_again = False
        self.cause: BaseException | None = None
        self.error: BaseException | None = None

    @property
    def place(self) -> Place | None:
        """What code runs for while it handles this request."""
        return None if self.page is None else self.page.place

    @property
    def where(self) -> Where:
        """What an error of this request strikes."""
        return Where.PAGE if self.is_list else Where.REQUEST

    def fail(self, exc: BaseException | None) -> None:
        """Record *exc* as the page's trouble, once; a blocking site strikes the whole page."""
        if exc is None or exc is self.error or self.page is None:
            return
        self.error = exc
        downloading = exc is self.cause
        url = self.request.url
        where = Where.PAGE if isinstance(exc, SiteBlocked) else self.where
        self.page.add_trouble(trouble_from(where, exc, url=url, downloading=downloading))

    def stop(self, exc: BaseException, stops: Stops) -> BaseException | None:
        """Record what the callback raised; returns what Scrapy is to see of it, if anything."""
        if isinstance(exc, GeneratorExit):
            return exc
        self.fail(exc)
        if isinstance(exc, (NotAPage, SiteBlocked, Abandoned)):
            return None
        if isinstance(exc, Exception) or not stops(exc):
            return exc
        self.error = Interrupted(f"{type(exc).__name__} came out of a callback or a download")
        self.error.__cause__ = exc
        return self.error

    def conclude(self, result: Any) -> None:
        """Record what shows, now that the engine is done, that something was not seen."""
        if isinstance(result, Failure):
            self.fail(result.value)
        if not self.fetched:
            self._blame(Where.PAGE, "hook bypassed: the request was not seen to be fetched")
        if self.error is not None or self.page is None or self.exhausted:
            return
        if self.called:
            self._blame(self.where, "the output of the callback was not read to its end")
        else:
            self._blame(Where.PAGE, "hook bypassed: the callback was never called")

    def free_response(self) -> None:
        """Break the cycle of the response and its selector, once nobody reads them here.

        Scrapy has each refer to the other. With its tree that is megabytes in few objects.
        While the page waits to be safe they would grow old, and the garbage collector, which
        counts objects, looks through old ones too seldom.
        """
        if getattr(self.result, _CACHED, None) is not None:
            setattr(self.result, _CACHED, None)

    def _blame(self, where: Where, text: str) -> None:
        if self.page is not None:
            self.page.blame(text, where=where, url=self.request.url)

    def watch(
        self,
        output: Output,
        done: Done,
        stops: Stops,
        tag: Tag | None,
        code: PageCode,
    ) -> Output:
        """*output*, watched; *done* is called once it is exhausted without an error."""
        if tag is not None:
            return self._watch_tagging(as_async_generator(output), done, stops, tag, code)
        if isinstance(output, AsyncIterator):
            return self._watch_async(output, done, stops, code)
        return self._watch_sync(output, done, stops)

    def _watch_sync(
        self,
        output: Iterable[Any],
        done: Done,
        stops: Stops,
    ) -> Iterator[Any]:
        try:
            for thing in output:
                if (kept := self._keep(thing)) is not None:
                    yield kept
        except BaseException as exc:
            if (shown := self.stop(exc, stops)) is not None:
                raise shown  # noqa: B904 (it is exc, or has it as its cause)
        else:
            self.exhausted = True
            done(self)

    async def _watch_async(
        self,
        output: AsyncIterator[Any],
        done: Done,
        stops: Stops,
        code: PageCode,
    ) -> AsyncIterator[Any]:
        try:
            async for thing in _within(output, code):
                if (kept := self._keep(thing)) is not None:
                    yield kept
        except BaseException as exc:
            if (shown := self.stop(exc, stops)) is not None:
                raise shown  # noqa: B904 (it is exc, or has it as its cause)
        else:
            self.exhausted = True
            done(self)

    async def _watch_tagging(
        self,
        output: AsyncIterator[Any],
        done: Done,
        stops: Stops,
        tag: Tag,
        code: PageCode,
    ) -> AsyncIterator[Any]:
        CURRENT.set(self.place)
        async for thing in self._watch_async(output, done, stops, code):
            tag(thing, self)
            yield thing
            CURRENT.set(self.place)

    def _keep(self, thing: Any) -> Any:
        """What of an output goes on; an item as a copy, since Scrapy reads ahead.

        A spider that yields the same object again, changed, then yields two items.
        """
        page = self.page
        if page is None:
            return thing
        if isinstance(thing, Request):
            self._count(page, thing)
            return thing
        if isinstance(thing, (NextPage, EndOfShard)):
            page.take_position(thing)
            return None
        if self.is_list and thing is not None:
            page.yielded += 1
        return thing.copy() if isinstance(thing, (dict, Item)) else _copied(thing)

    def _count(self, page: OpenPage, request: Request) -> None:
        if NEXT in request.meta:
            page.next_asked += 1
        elif page.is_list_request(request):
            self.asked_again = True
        else:
            page.requests_yielded += 1
            page.yielded += self.is_list


async def _within(output: AsyncIterator[Any], code: PageCode) -> AsyncIterator[Any]:
    """*output*, each step of it run in *code*."""
    while True:
        with code:
            try:
                thing = await anext(output)
            except StopAsyncIteration:
                return
        yield thing


def _copied(thing: Any) -> Any:
    try:
        return copy(thing)
    except Exception:  # no item at all: a pipeline or Scrapy will say so
        return thing
