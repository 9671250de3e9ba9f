"""Requests on their way to the scheduler and out of its queue, counted to their pages.

A request belongs to a page by *identity* from the moment it is dequeued, and by a
mark in its meta only while it is queued, where nothing copies meta. The mark that
says a request opens a page is removed when it reaches the scheduler, so that no
retry and no copy of meta opens a page again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from scrapy import Request
from scrapy.http import Response

from scrapy_resume.counts import MARK, OPEN, STAR, Counts
from scrapy_resume.openpage import CURRENT, NEXT, NOWHERE, OpenPage, Place
from scrapy_resume.page import ErrorKind, Page, Shard, Where
from scrapy_resume.troubles import trouble_from
from scrapy_resume.visits import Visit

_GONE = OpenPage("", Page(0, Shard("")), closed=True)
_UNTAGGED = OpenPage("", Page(0, Shard("")), closed=True)

_logger = logging.getLogger("scrapy_resume.ledger")


class Arrivals(Counts):
    """Decides whose a request is, and whether it is stored."""

    def enqueue(self, request: Request, inner: Callable[[Request], bool]) -> bool:
        """Count *request* in if *inner* stores it; what goes wrong fails the page."""
        self._reached = request
        page = None
        try:
            page, is_list, replaced = self._owner(request)
            if page is None:
                request.meta.pop(NEXT, None)
                request.meta.pop(MARK, None)
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
                _logger.exception(
                    "The scheduler could not store %s", request, extra={"action": "not_queued"}
                )
            else:
                page.add_trouble(trouble_from(Where.PAGE, exc, url=request.url))
                self._settle(page)
            return False

    def dequeued(self, request: Request | None) -> bool:
        """*request* leaves the queue; False if it is to be skipped, its page being gone."""
        CURRENT.set(None)
        if request is None:
            return True
        mark = request.meta.pop(MARK, None)
        if mark is None:
            self._visits[request] = Visit(None, request, False)
            return True
        page = self._open.get(mark.rstrip(STAR))
        if page is None:
            return False
        if page.closed:
            page.live -= 1
            self._settle(page)
            return False
        self._visits[request] = Visit(page, request, mark.endswith(STAR))
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
        token = request.meta.pop(OPEN, None)
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
                extra={"action": "late_request"},
            )

    def _store(
        self,
        page: OpenPage,
        request: Request,
        inner: Callable[[Request], bool],
        is_list: bool,
        replaced: Visit | None,
    ) -> bool:
        if MARK in request.meta or (replaced is None and request in self._visits):
            request = request.copy()  # the same object twice: the engine needs two
        if not is_list and self.duplicates.drops(page, request, replaced):
            page.requests_filtered += 1
            self._crawler.stats.inc_value("dupefilter/filtered")
            return False
        request.meta[MARK] = page.token + STAR if is_list else page.token
        if not self._stored(request, inner):
            del request.meta[MARK]
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
        if page is None or page.closed or NEXT in request.meta:
            return
        if is_list:
            text = "the request for the page was ignored on its way to the scheduler"
            page.blame(text, kind=ErrorKind.PERMANENT, url=request.url)
        else:
            page.requests_ignored += 1
        if replaced is None:
            self._settle(page)
