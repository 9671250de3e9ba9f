"""The open pages, where their requests are, and how a page is closed.

Counting up, when the scheduler takes a request, is in :mod:`scrapy_resume.arrivals`.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from itertools import count
from weakref import WeakKeyDictionary

from scrapy import Request
from scrapy.crawler import Crawler
from twisted.internet.defer import Deferred

from scrapy_resume import faults
from scrapy_resume.cancellation import is_stray
from scrapy_resume.duplicates import Duplicates
from scrapy_resume.exceptions import InjectedFault
from scrapy_resume.openpage import CURRENT, OpenPage, PageListener
from scrapy_resume.page import Page, Where
from scrapy_resume.troubles import trouble_from
from scrapy_resume.visits import Visit

OPEN = "resume_open"  # in meta until the scheduler is reached: this request opens a page
MARK = "resume_page"  # in meta while queued: the page's token, with a star for its list
STAR = "*"

_logger = logging.getLogger("scrapy_resume.ledger")


class Counts:
    """The open pages and where their requests are.

    *needs_tags* says that contexts do not tell a request's page. *late_requests* counts
    those crawled by code that outlived its page.
    """

    def __init__(self, crawler: Crawler, listener: PageListener, seen_max: int) -> None:
        self.needs_tags = False
        self.late_requests = 0
        self._crawler = crawler
        self._listener = listener
        self.duplicates = Duplicates(crawler, seen_max)
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
        request.meta[OPEN] = open_page.token
        return open_page, request

    def abandon(self, open_page: OpenPage) -> None:
        """Nobody waits for *open_page* any more: refuse what it has queued and will queue."""
        open_page.closed = True
        if not open_page.live:
            self._settle(open_page)

    def visit_of(self, request: Request) -> Visit | None:
        """Where *request* is in the engine; None if it is not, or nobody counts it."""
        return self._visits.get(request)

    def remember(self, fingerprints: Sequence[bytes]) -> None:
        """A page is committed: its requests count as duplicates on other pages."""
        self.duplicates.remember(fingerprints)

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

    def forget(self) -> None:
        """Drop every page, whatever is outstanding."""
        for page in self._open.values():
            page.place.home.page = None
        self._open.clear()
        self._visits.clear()
        self._results.clear()
        self._continued.clear()
        self._tags.clear()

    def _stops(self, exc: BaseException) -> bool:
        return isinstance(exc, Exception) or is_stray(exc, running=self._crawler.engine.running)

    @staticmethod
    def _bypassed(page: OpenPage | None, what: str) -> None:
        if page is not None and not page.failed:
            page.blame(f"hook bypassed: {what}")

    def _read(self, page: OpenPage) -> None:
        if page.is_read() and not page.was_read:
            page.was_read = True
            self._listener.page_read(page)

    def _finish(self, visit: Visit) -> Deferred[None] | None:
        if self._visits.get(visit.request) is visit:
            del self._visits[visit.request]
        if self._results.get(id(visit.result)) is visit:
            del self._results[id(visit.result)]
        visit.free_response()
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
            _logger.exception(
                "A page could not be handed on; its shard will be read again",
                extra={"action": "page_not_handed_on"},
            )
            return None
        finally:
            CURRENT.set(before)

    @staticmethod
    def _pass_fault_point(page: OpenPage) -> None:
        try:
            faults.point("page.complete")
        except InjectedFault as fault:
            page.add_trouble(trouble_from(Where.PAGE, fault))
