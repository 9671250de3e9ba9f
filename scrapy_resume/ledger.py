"""Exact completion of a page, by counting its requests inside Scrapy's engine.

The engine keeps a dequeued request in progress until every output of its callback
was handled: child requests were scheduled, items went through all pipelines. So a
page is complete when none of its requests is queued or in progress. The count goes
up when the scheduler accepts a request and down when the engine is done with it; a
child, a retry or a redirect is counted before the request it came from is given up,
so zero is reached exactly once. Items need no count, only an audit.

With asyncio, outputs are handled in the context of their callback. Without, Twisted
handles them in any context: there every output is tagged with its page instead.

Only this file and :mod:`~scrapy_resume.wraps` wrap what Scrapy does not document, and they
refuse at the start what they do not know. Whatever goes past the wraps makes the page fail.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import partial
from typing import Any

from pydispatch.dispatcher import getAllReceivers, liveReceivers
from scrapy import Request, signals
from scrapy.core.engine import ExecutionEngine
from scrapy.crawler import Crawler
from scrapy.exceptions import DropItem, IgnoreRequest
from scrapy.extensions.corestats import CoreStats
from scrapy.http import Response
from scrapy.utils.asyncgen import as_async_generator
from scrapy.utils.asyncio import call_later, is_asyncio_available
from scrapy.utils.defer import aiter_errback, maybe_deferred_to_future
from twisted.internet.defer import CancelledError, Deferred
from twisted.python.failure import Failure

from scrapy_resume import faults, wraps
from scrapy_resume.arrivals import Arrivals
from scrapy_resume.cancellation import Abandoned, Interrupted, PageCode
from scrapy_resume.openpage import (
    CURRENT,
    NOWHERE,
    EndOfShard,
    NextPage,
    OpenPage,
    PageListener,
    Place,
    WaitlessPipeline,
    current_item_no,
    current_page,
)
from scrapy_resume.page import Where
from scrapy_resume.refuseditem import RefusedItem
from scrapy_resume.troubles import trouble_from
from scrapy_resume.visits import Output, Visit

__all__ = [
    "EndOfShard",
    "Ledger",
    "NextPage",
    "OpenPage",
    "PageListener",
    "current_item_no",
    "current_page",
]

_logger = logging.getLogger(__name__)

_TURN = 64  # outputs
_PAUSE = 0.1  # seconds between two looks whether we are sure again
_CANCELLED = (CancelledError, asyncio.CancelledError)


class Ledger(Arrivals):
    """Counts the requests of open pages and tells *listener* when a page is complete.

    *seen_max* bounds the memory of committed pages' request fingerprints. *waitless* is a
    pipeline that never waits: where it is the only one, a page's outputs are handled one
    after the other instead of by ``CONCURRENT_ITEMS`` tasks for every response.
    """

    def __init__(
        self,
        crawler: Crawler,
        listener: PageListener,
        *,
        seen_max: int = 100_000,
        waitless: WaitlessPipeline | None = None,
    ) -> None:
        super().__init__(crawler, listener, seen_max)
        self._waitless = waitless
        self._direct: Callable[[Any], Coroutine[Any, Any, Any]] | None = None
        self._wrapped: list[tuple[Any, str, Any]] = []
        self._aborting = False
        self._code = PageCode()
        self.unsure: Callable[[], bool] = lambda: False  # may our pages be others' by now?

    def install(self, engine: ExecutionEngine) -> None:
        """Wrap *engine*, once its spider is open; raises UnsupportedScrapy."""
        hooks = self._hooks(engine)
        for owner, name, parameters, _ in hooks:
            wraps.check(owner, name, parameters)
        self.needs_tags = not is_asyncio_available()
        if self.needs_tags or not _is_only_pipeline(engine.scraper.itemproc, self._waitless):
            hooks = [hook for hook in hooks if hook[3] != self._handle_output]
        else:
            self._direct = None if self._waitless is None else self._waitless.process_item
        for owner, name, _, hook in hooks:
            original = getattr(owner, name)
            self._wrapped.append((owner, name, original))
            setattr(owner, name, partial(hook, original))
        self._crawler.signals.connect(self._spider_error, signals.spider_error)

    def _hooks(
        self, engine: ExecutionEngine
    ) -> list[tuple[Any, str, tuple[str, ...], Callable[..., Any]]]:
        scraper = getattr(engine, "scraper", None)
        downloader = getattr(engine, "downloader", None)
        pipelines = getattr(scraper, "itemproc", None)
        handlers = getattr(downloader, "handlers", None)
        return [
            (engine, "crawl", ("request",), self._crawl),
            (engine, "close_spider_async", ("reason",), self._close_spider),
            (downloader, "fetch", ("request",), self._fetch),
            (handlers, "download_request_async", ("request",), self._download),
            (scraper, "enqueue_scrape", ("result", "request"), self._enqueue_scrape),
            (scraper, "call_spider_async", ("result", "request"), self._call_spider),
            (
                scraper,
                "handle_spider_output_async",
                ("result", "request", "response"),
                self._handle_output,
            ),
            (scraper, "start_itemproc_async", ("item", "response"), self._start_item),
            (pipelines, "process_item_async", ("item",), self._process_item),
        ]

    def uninstall(self) -> None:
        """Take the wraps off again and forget every page."""
        for owner, name, original in self._wrapped:
            setattr(owner, name, original)
        if self._wrapped:
            self._crawler.signals.disconnect(self._spider_error, signals.spider_error)
        self._wrapped.clear()
        self.forget()

    def drop(self, page: OpenPage) -> None:
        """Abandon *page*, and ask the site for nothing more of it: others read it now.

        What waits for its turn to be downloaded is taken out of the downloader's queues, so
        that it costs no delay; what is being downloaded ends without its callback.
        """
        self.abandon(page)
        for slot in getattr(self._crawler.engine.downloader, "slots", {}).values():
            ours = [entry for entry in slot.queue if self._is_of(page, entry[0])]
            for entry in ours:
                slot.queue.remove(entry)
                entry[1].errback(IgnoreRequest("its shard was taken over"))

    def _is_of(self, page: OpenPage, request: Request) -> bool:
        visit = self._visits.get(request)
        return visit is not None and visit.page is page

    def abort(self) -> None:
        """Cancel what is being downloaded for pages and end their code, so that a closing engine
        need not wait.

        Their pages fail and are read again by whoever has their shard next.
        """
        self._aborting = True
        self._code.end()
        for visit in list(self._visits.values()):
            if visit.download is not None:
                visit.download.cancel()

    # The wraps, in the order in which a request meets them.

    async def _close_spider(
        self, close: Callable[..., Coroutine[Any, Any, None]], *, reason: str = "cancelled"
    ) -> None:
        """Around ``engine.close_spider_async``: from here on nothing queued is asked for."""
        try:
            self._listener.closing()
        except Exception:
            _logger.exception(
                "The crawl closes although its session could not prepare for it",
                extra={"action": "closing"},
            )
        await close(reason=reason)

    def _crawl(self, crawl: Callable[[Request], None], request: Request) -> None:
        """Around ``engine.crawl``: what was ignored on its way, and what was replaced."""
        before = CURRENT.get(), self._crawling
        self._reached, self._crawling = None, True
        if self.needs_tags:
            CURRENT.set(self._place_of(request))
        try:
            crawl(request)
        except BaseException as exc:
            page = self._current(request)
            if page is None or not self._stops(exc):
                raise
            page.add_trouble(trouble_from(Where.PAGE, exc, url=request.url))
        finally:
            if self._reached is not request:
                self._ignored(request)
            if self._continued and (visit := self._continued.pop(request, None)) is not None:
                self._finish(visit)
            CURRENT.set(before[0])
            self._crawling = before[1]

    def _fetch(
        self, fetch: Callable[..., Deferred[Any]], request: Request, *args: Any
    ) -> Deferred[Any]:
        """Around ``downloader.fetch``: which request became which."""
        visit = self._visits.get(request)
        if visit is None:
            return fetch(request, *args)
        visit.fetched = True
        CURRENT.set(visit.place)
        try:
            download = fetch(request, *args)
            visit.download = download.addCallbacks(self._fetched, self._not_fetched, (visit,))
            return visit.download
        finally:
            CURRENT.set(None)

    async def _download(
        self, download: Callable[[Request], Coroutine[Any, Any, Response]], request: Request
    ) -> Response:
        """Around ``handlers.download_request_async``: may the site still be asked?"""
        visit = self._visits.get(request)
        page = None if visit is None else visit.page
        if page is not None:
            while self.unsure() and not page.closed:
                await _pause()
            if page.closed:
                raise IgnoreRequest("nobody waits for its page any more")
        return await download(request)

    def _fetched(self, result: Any, visit: Visit) -> Any:
        if isinstance(result, Request) and not visit.called:  # else code fetched it again
            self._continued[result] = visit
        return result

    def _not_fetched(self, failure: Failure) -> Failure:
        if self._aborting and isinstance(failure.value, _CANCELLED):
            raise IgnoreRequest("the crawl was stopped") from failure.value
        return failure

    def _enqueue_scrape(
        self,
        enqueue_scrape: Callable[[Response | Failure, Request], Deferred[None]],
        result: Response | Failure,
        request: Request,
    ) -> Deferred[None]:
        """Around ``scraper.enqueue_scrape``: the engine is done when its Deferred fires."""
        visit = self._visits.get(request)
        if visit is None:
            return enqueue_scrape(result, request)
        if id(result) in self._results and isinstance(result, Response):
            result = result.copy()  # one response for two requests: tell them apart
        visit.result, visit.download = result, None
        self._results[id(result)] = visit
        before = CURRENT.get()
        CURRENT.set(visit.place)
        try:
            return enqueue_scrape(result, request).addBoth(self._scraped, visit)
        finally:
            CURRENT.set(before)

    def _scraped(self, result: Any, visit: Visit) -> Any:
        visit.conclude(result)
        held = self._finish(visit)
        return result if held is None else held

    async def _call_spider(
        self,
        call_spider: Callable[[Response | Failure, Request], Coroutine[Any, Any, Output]],
        result: Response | Failure,
        request: Request,
    ) -> Output:
        """Around ``scraper.call_spider_async``: callbacks and errbacks, on every path."""
        visit = self._visits.get(request)
        if visit is None or (visit.page is None and not self.needs_tags):
            return await call_spider(result, request)
        visit.called = True
        if visit.page is not None and visit.page.closed:
            visit.exhausted = True
            return ()  # it was dropped meanwhile: what it yields would be nobody's
        try:
            if isinstance(result, Failure):
                visit.cause = result.value
                if visit.is_list:
                    visit.fail(result.value)
            elif visit.is_list and visit.page is not None:
                with self._code:
                    await self._before_callback(visit.page, result)
            with self._code:
                output = await call_spider(result, request)
        except BaseException as exc:
            if (shown := visit.stop(exc, self._stops)) is not None:
                raise shown  # noqa: B904 (it is exc, or has it as its cause)
            return ()
        tag = self._tag if self.needs_tags else None
        return visit.watch(output, self._exhausted, self._stops, tag, self._code)

    async def _before_callback(self, page: OpenPage, response: Response) -> None:
        page.response_url, page.status = response.url, response.status
        faults.point("page.response")
        await self._listener.before_callback(page, response)

    def _exhausted(self, visit: Visit) -> None:
        page = visit.page
        if page is not None and visit.is_list and visit.cause is None and not visit.asked_again:
            page.callback_done = True
            self._read(page)

    async def _handle_output(
        self,
        handle: Callable[[Output, Request, Any], Coroutine[Any, Any, None]],
        result: Output,
        request: Request,
        response: Response | Failure,
    ) -> None:
        """Instead of ``scraper.handle_spider_output_async``, where no pipeline ever waits."""
        visit = self._visits.get(request)
        if visit is None or self._waitless is None:
            return await handle(result, request, response)
        engine, page = self._crawler.engine, visit.page
        take = self._waitless.take if page is not None and self._nobody_listens() else None
        scraper, handled, taken = engine.scraper, 0, 0
        outputs = as_async_generator(result)
        async for output in aiter_errback(outputs, scraper.handle_spider_error, request, response):
            if isinstance(output, Request):
                engine.crawl(output)
            elif take is not None and page is not None and take(page, output):
                taken += 1
            elif output is not None:
                await scraper.start_itemproc_async(output, response=response)
            handled += 1
            if handled % _TURN == 0:
                await asyncio.sleep(0)  # let others have a turn, however long the page is
        if taken:
            self._crawler.stats.inc_value("item_scraped_count", taken)

    def _nobody_listens(self) -> bool:
        """Would nobody but Scrapy's own counter notice that an item was scraped?"""
        if not getattr(self._crawler.logformatter, "silent", False):
            return False
        receivers = getAllReceivers(self._crawler, signals.item_scraped)
        return all(
            isinstance(getattr(receiver, "__self__", None), CoreStats)
            for receiver in liveReceivers(receivers)
        )

    async def _start_item(
        self, start_item: Callable[..., Coroutine[Any, Any, None]], item: Any, *, response: Any
    ) -> None:
        """Around ``scraper.start_itemproc_async``: the page of an item, by its response."""
        visit = self._results.get(id(response))
        page = current_page() if visit is None else visit.page
        if page is None:
            CURRENT.set(NOWHERE)
            return await start_item(item, response=response)
        page.items_in += 1
        url = page.response_url if visit is None else visit.request.url
        before = CURRENT.get()
        CURRENT.set(Place(page.place.home, page.items_in, url))
        try:
            await start_item(item, response=response)
        except BaseException as exc:
            page.add_trouble(trouble_from(Where.PAGE, exc, url=url))
            if not self._stops(exc):
                raise
        finally:
            CURRENT.set(before)

    async def _process_item(
        self, process_item: Callable[[Any], Coroutine[Any, Any, Any]], item: Any
    ) -> Any:
        """Around ``itemproc.process_item_async``: what the pipelines made of an item."""
        place = CURRENT.get()
        if place is None or not place.item_no:
            for page in [place.home.page] if place is not None else list(self._open.values()):
                self._bypassed(page, "an item reached the pipelines unseen")
            return await process_item(item)
        page = place.home.page
        if page is None:
            return await process_item(item)
        try:
            with self._code:
                output = await (self._direct or process_item)(item)
        except Abandoned as exc:
            page.items_dropped += 1
            raise DropItem(f"{exc}; its page is read again") from exc
        except Exception as exc:
            if isinstance(exc, DropItem) and not isinstance(exc, RefusedItem):
                page.items_dropped += 1
                raise
            page.items_failed += 1
            trouble = trouble_from(Where.ITEM, exc, url=place.url)
            page.add_trouble(replace(trouble, item_key=self._listener.item_key(item)))
            raise
        except BaseException as exc:
            page.items_failed += 1
            if not self._stops(exc):
                raise
            failed = Interrupted(f"{type(exc).__name__} came out of a pipeline")
            page.add_trouble(trouble_from(Where.PAGE, failed, url=place.url))
            raise failed from exc
        page.items_scraped += 1
        return output

    def _spider_error(self, failure: Failure, response: Any) -> None:
        """On the signal ``spider_error``: what the spider middlewares raised."""
        visit = self._results.get(id(response))
        if visit is not None:
            visit.fail(failure.value)


async def _pause() -> None:
    over: Deferred[None] = Deferred()
    call_later(_PAUSE, over.callback, None)
    await maybe_deferred_to_future(over)


def _is_only_pipeline(itemproc: Any, pipeline: object | None) -> bool:
    methods = list(getattr(itemproc, "methods", {}).get("process_item", ()))
    owners = [getattr(method, "__self__", None) for method in methods]
    return pipeline is not None and owners == [pipeline]
