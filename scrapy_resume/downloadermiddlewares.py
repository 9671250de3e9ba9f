"""SiteHealthMiddleware: what the sites answer, told to the crawl's watch.

It stands between Scrapy's RetryMiddleware (550) and its MetaRefreshMiddleware (580), so it
sees every answer once, decompressed and with redirects followed, before anything is retried.
Proxies, cookies, the HTTP cache and robots.txt keep their own places: what the cache
answers says nothing of the site, and what robots.txt forbids never comes this far.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from scrapy.exceptions import (
    DownloadTimeoutError,
    IgnoreRequest,
    NotConfigured,
    NotSupported,
    UnsupportedURLSchemeError,
)
from scrapy.utils.asyncio import call_later
from scrapy.utils.defer import maybe_deferred_to_future
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import TimeoutError as TwistedTimeoutError

from scrapy_resume.exceptions import SiteBlocked
from scrapy_resume.health import Signal
from scrapy_resume.session import Session
from scrapy_resume.troubles import BUGS, retry_after

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response

    from scrapy_resume.visits import Visit

_TIMEOUTS = (DownloadTimeoutError, TwistedTimeoutError, TimeoutError, asyncio.TimeoutError)
_NOT_THE_SITES = (IgnoreRequest, NotSupported, UnsupportedURLSchemeError, CancelledError)
_LOOK = 1.0  # seconds between two looks whether a waiting request is still wanted


class SiteRests(SiteBlocked, IgnoreRequest):
    """The site is to be left alone now. No line is logged for each request that meets it."""

    def __init__(self, reason: str, seconds: float | None = None) -> None:
        super().__init__(reason)
        self.retry_after = seconds


class SiteHealthMiddleware:
    """Feeds the health of the sites, and leaves those alone that asked for it.

    A site that answered with ``Retry-After`` is asked nothing before that is over; one that
    was judged blocked is asked nothing at all by the pages that are still open. Who waits
    takes a place in the downloader, so only a quarter of them is given to one site's requests
    while others are read.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._statuses = session.settings.health_limits.statuses
        self._longest = session.settings.max_wait
        self._places = max(1, session.crawler.settings.getint("CONCURRENT_REQUESTS") // 4)
        self._waiting = 0

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> SiteHealthMiddleware:
        """Share the crawl's session. Raises NotConfigured if RESUME_HEALTH is False."""
        session = Session.of(crawler, "SiteHealthMiddleware")
        if not (session.settings.enabled and session.settings.health):
            raise NotConfigured("RESUME_HEALTH is False")
        return cls(session)

    def process_request(self, request: Request) -> Awaitable[None] | None:
        """Wait while the site rests; refuse what it would not answer anyway."""
        visit, site = self._whose(request)
        if visit is None or site is None:
            return None
        watch = self._session.watch
        if watch.is_blocked(site) and not self._is_check(visit):
            raise SiteRests(f"site {site} is blocked: {watch.judgement(site).reason}")
        rest = watch.resting(site)
        if not rest:
            return None
        if rest > self._longest or (self._waiting >= self._places and self._reads_others(site)):
            raise SiteRests(f"site {site} asked for {rest:.0f} s of rest", rest)
        return self._wait(visit, site)

    def process_response(self, request: Request, response: Response) -> Response:
        """Note the answer; one with Retry-After is not repeated at once."""
        visit, site = self._whose(request)
        if visit is None or site is None or "cached" in response.flags:
            return response
        bad = response.status in self._statuses
        after = retry_after(response) if response.status >= 400 else None
        if after is not None:
            self._session.watch.rest(site, after)
            if after > self._longest:
                words = f"HTTP {response.status}, and it asked for {after:.0f} s of rest"
                self._session.watch.note(site, Signal.BLOCKED, words)
            if visit.is_list:
                request.meta["dont_retry"] = True  # the page is, once the time is over
        words = f"HTTP {response.status}"
        signal = Signal.STATUS if bad else Signal.OK
        self._session.watch.note(site, signal, words, request.url)
        return response

    def process_exception(self, request: Request, exception: Exception) -> None:
        """Note a timeout or a lost connection."""
        visit, site = self._whose(request)
        if visit is None or site is None or isinstance(exception, (*_NOT_THE_SITES, *BUGS)):
            return
        if visit.page is not None and visit.page.closed:
            return
        signal = Signal.TIMEOUT if isinstance(exception, _TIMEOUTS) else Signal.CONNECTION
        self._session.watch.note(site, signal, type(exception).__name__, request.url)

    def _whose(self, request: Request) -> tuple[Visit | None, str | None]:
        """The visit of a request of a page, and the page's site."""
        session = self._session
        visit = None if session.ledger is None else session.ledger.visit_of(request)
        if visit is None or visit.page is None or session.loop is None:
            return None, None
        return visit, session.loop.flow.site_of(visit.page)

    def _is_check(self, visit: Visit) -> bool:
        loop, page = self._session.loop, visit.page
        return (
            loop is not None and page is not None and loop.flow.doubts.checks.of(page) is not None
        )

    def _reads_others(self, site: str) -> bool:
        loop = self._session.loop
        return loop is not None and any(one.site != site for one in loop.flow.shards.values())

    async def _wait(self, visit: Visit, site: str) -> None:
        self._waiting += 1
        try:
            while rest := self._session.watch.resting(site):
                if visit.page is None or visit.page.closed:
                    raise IgnoreRequest("nobody waits for its page any more")
                await _pause(min(rest, _LOOK))
        finally:
            self._waiting -= 1


async def _pause(seconds: float) -> None:
    over: Deferred[Any] = Deferred()
    call_later(seconds, over.callback, None)
    await maybe_deferred_to_future(over)
