"""Counting a page's requests: up when one is stored, down when the engine is done with it.

A request belongs to a page by *identity* from the moment it is dequeued, and by a
mark in its meta only while it is queued, where nothing copies meta. The mark that
says a request opens a page is removed when it reaches the scheduler, so that no
retry and no copy of meta opens a page again.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from itertools import count
from typing import Any
from weakref import WeakKeyDictionary

from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.http import Response
from twisted.internet.defer import Deferred

from scrapy_resume import faults
from scrapy_resume.cancellation import is_stray
from scrapy_resume.duplicates import Duplicates
from scrapy_resume.exceptions import InjectedFault
from scrapy_resume.openpage import CURRENT, NEXT, NOWHERE, OpenPage, PageListener, Place
from scrapy_resume.page import ErrorKind, Page, Shard, Where
from scrapy_resume.troubles import trouble_from
from scrapy_resume.visits import Visit

_OPEN = "resume_open"  # in meta until the scheduler is reached: this request opens a page
_MARK = "resume_page"  # in meta while queued: the page's token, with a star for its list
_STAR = "*"

_GONE = OpenPage("", Page(0, Shard("")), closed=True)
_UNTAGGED = OpenPage("", Page(0, Shard("")), closed=True)

_logger = logging.getLogger("scrapy_resume.ledger")


class Counts:
    """The open pages and where their requests are.

    Whoever sees what the engine does (the ledger) tells it by the methods below.
    """

    def __init__(self, crawler: Crawler, listener: PageListener, seen_max: int) -> None:
        self.needs_tags = False
        self.late_requests = 0
        self._crawler = crawler
        self._listener = listener
        self._duplicates = Duplicates(crawler, seen_max)
        self._tokens = map(f"{uuid.uuid4().hex[:8]}-{{}}".format, count(1))
        self._open: dict[str, OpenPage] = {}
        self._visits: dict[Request, Visit] = {}
        self._results: dict[int, Visit] = {}
        self._continued: dict[Request, Visit] = {}
        self._tags: WeakKeyDictionary[Request, OpenPage | None] = WeakKeyDictionary()
        self._crawling = False
        self._reached: Request | None = None

    def open(
        self, page: Page, request: Request, *, repair: bool = False
    ) -> tuple[OpenPage, Request]:
        """Open *page*; *request*, now marked, is its list request and has to be crawled.

        With *repair* no request of it is a duplicate of what committed pages fetched.
        """
        open_page = OpenPage(next(self._tokens), page, repair)
        open_page.list_request = request
        self._open[open_page.token] = open_page
        request.meta[_OPEN] = open_page.token
        return open_page, request

    def abandon(self, open_page: OpenPage) -> None:
        """Nobody waits for *open_page* any more: refuse what it has queued and will queue."""
        open_page.closed = True
        if not open_page.live:
            self._settle(open_page)

    def remember(self, open_page: OpenPage) -> None:
        """*open_page* is committed: its requests count as duplicates on other pages."""
        self._duplicates.remember(open_page)

    def leaks(self) -> dict[str, int]:
        """What is still held, by kind; empty once every page is closed."""
        held = {
            "open pages": len(self._open),
            "visits": len(self._visits),
            "results": len(self._results),
            "continued": len(self._continued),
            "tags": len(self._tags),
        }
        return {kind: number for kind, number in held.items() if number}

    def assert_idle(self) -> None:
        """Raise AssertionError if anything is still held."""
        if held := self.leaks():
            raise AssertionError(f"the ledger still holds {held}")

    def forget(self) -> None:
        """Drop every page, whatever is outstanding."""
        for page in self._open.values():
            page.place.home.page = None
        self._open.clear()
        self._visits.clear()
        self._results.clear()
        self._continued.clear()
        self._tags.clear()

    def enqueue(self, request: Request, inner: Callable[[Request], bool]) -> bool:
        """Count *request* in if *inner* stores it; what goes wrong fails the page."""
        self._reached = request
        page = None
        try:
            page, is_list, replaced = self._owner(request)
            if page is None:
                request.meta.pop(NEXT, None)
                request.meta.pop(_MARK, None)
                return inner(request)
            if page.closed:
                return False
            if not self._crawling:
                self._bypassed(page, "a request reached the scheduler unseen")
            if NEXT in request.meta:
                return self._take_next(page, request)
            return self._store(page, request, inner, is_list, replaced)
        except BaseException as exc:
            if not self._stops(exc):
                raise
            if page is None:
                _logger.exception("The scheduler could not store %s", request)
            else:
                page.add_trouble(trouble_from(Where.PAGE, exc, url=request.url))
                self._settle(page)
            return False

    def dequeued(self, request: Request | None) -> bool:
        """*request* leaves the queue; False if it is to be skipped, its page being gone."""
        CURRENT.set(None)
        if request is None:
            return True
        mark = request.meta.pop(_MARK, None)
        if mark is None:
            self._visits[request] = Visit(None, request, False)
            return True
        page = self._open.get(mark.rstrip(_STAR))
        if page is None:
            return False
        if page.closed:
            page.live -= 1
            self._settle(page)
            return False
        self._visits[request] = Visit(page, request, mark.endswith(_STAR))
        return True

    def tag(self, output: Any, response: Response) -> Any:
        """Tie a request that any spider middleware made or replaced to its page."""
        if self.needs_tags and (visit := self._results.get(id(response))) is not None:
            self._tag(output, visit)
        return output

    def _tag(self, output: Any, visit: Visit) -> None:
        if isinstance(output, Request):
            self._tags[output] = visit.page

    def _owner(self, request: Request) -> tuple[OpenPage | None, bool, Visit | None]:
        """Whose is *request*, is it the page's list, and which one does it replace?"""
        token = request.meta.pop(_OPEN, None)
        if token is not None:
            return self._open.get(token, _GONE), True, None
        replaced = self._continued.get(request) if self._continued else None
        if replaced is not None:
            return replaced.page, replaced.is_list, replaced
        page = self._tags.pop(request, _UNTAGGED) if self.needs_tags else _UNTAGGED
        if page is _UNTAGGED:
            page = self._current(request)
        return page, page is not None and page.is_list_request(request), None

    def _current(self, request: Request) -> OpenPage | None:
        place = CURRENT.get()
        if place is None or place is NOWHERE:
            return None
        if place.home.page is None:
            self._late(request)
        return place.home.page

    @staticmethod
    def _bypassed(page: OpenPage | None, what: str) -> None:
        if page is not None and not page.failed:
            page.blame(f"hook bypassed: {what}")

    def _place_of(self, request: Request) -> Place | None:
        """Where *request* comes from, when the context does not tell."""
        if request in self._tags:
            page = self._tags[request]
            return None if page is None else page.place
        visit = self._continued.get(request)
        return CURRENT.get() if visit is None else visit.place

    def _late(self, request: Request) -> None:
        self.late_requests += 1
        if self.late_requests == 1:
            _logger.warning(
                "%s was crawled by code that outlived its page: it belongs to no page now and"
                " is not covered by any checkpoint. Await such work in the callback.",
                request,
            )

    def _store(
        self,
        page: OpenPage,
        request: Request,
        inner: Callable[[Request], bool],
        is_list: bool,
        replaced: Visit | None,
    ) -> bool:
        if _MARK in request.meta or (replaced is None and request in self._visits):
            request = request.copy()  # the same object twice: the engine needs two
        if not is_list and self._duplicates.drops(page, request, replaced):
            page.requests_filtered += 1
            self._crawler.stats.inc_value("dupefilter/filtered")
            return False
        request.meta[_MARK] = page.token + _STAR if is_list else page.token
        if not self._stored(request, inner):
            del request.meta[_MARK]
            self._refused(page, request, is_list)
            return False
        page.live += 1
        if is_list:
            page.list_request = request
        elif replaced is None:
            page.requests_in += 1
        return True

    @staticmethod
    def _stored(request: Request, inner: Callable[[Request], bool]) -> bool:
        dont_filter = request.dont_filter
        request.dont_filter = True
        try:
            return inner(request)
        finally:
            request.dont_filter = dont_filter

    def _refused(self, page: OpenPage, request: Request, is_list: bool) -> None:
        if is_list:
            text = "the scheduler refused the request for the page"
            page.blame(text, kind=ErrorKind.PERMANENT, url=request.url)
            self._settle(page)
        else:
            page.requests_filtered += 1

    def _take_next(self, page: OpenPage, request: Request) -> bool:
        del request.meta[NEXT]
        page.next_reached += 1
        page.take_position(request)
        self._read(page)
        return True

    def _ignored(self, request: Request) -> None:
        page, is_list, replaced = self._owner(request)
        if page is None or NEXT in request.meta:
            return
        if is_list:
            text = "the request for the page was ignored on its way to the scheduler"
            page.blame(text, kind=ErrorKind.PERMANENT, url=request.url)
        else:
            page.requests_ignored += 1
        if replaced is None:
            self._settle(page)

    def _stops(self, exc: BaseException) -> bool:
        return isinstance(exc, Exception) or is_stray(exc, running=self._crawler.engine.running)

    def _read(self, page: OpenPage) -> None:
        if page.is_read() and not page.was_read:
            page.was_read = True
            self._listener.page_read(page)

    def _finish(self, visit: Visit) -> Deferred[None] | None:
        if self._visits.get(visit.request) is visit:
            del self._visits[visit.request]
        if self._results.get(id(visit.result)) is visit:
            del self._results[id(visit.result)]
        if visit.page is None:
            return None
        visit.page.live -= 1
        return self._settle(visit.page)

    def _settle(self, page: OpenPage) -> Deferred[None] | None:
        """Close *page* if nothing of it is outstanding."""
        if page.live:
            return None
        self._open.pop(page.token, None)
        page.place.home.page = None
        if page.closed:
            return None
        page.closed = True
        page.settle()
        before = CURRENT.get()
        CURRENT.set(None)
        try:
            self._pass_fault_point(page)
            return self._listener.page_closed(page)
        except Exception:
            _logger.exception("A page could not be handed on; its shard will be read again")
            return None
        finally:
            CURRENT.set(before)

    @staticmethod
    def _pass_fault_point(page: OpenPage) -> None:
        try:
            faults.point("page.complete")
        except InjectedFault as fault:
            page.add_trouble(trouble_from(Where.PAGE, fault))
