"""robots.txt counts for every request, also for those that wait for it together.

Scrapy 2.18 and 2.19 forget it for all but two of the requests that wait for one robots.txt
at the same moment, and let them pass; a crawl that resumes asks for several list pages at
once. So all but the first wait here, and ask once its parser is known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from scrapy.downloadermiddlewares.robotstxt import RobotsTxtMiddleware
from scrapy.utils.defer import maybe_deferred_to_future
from twisted.internet.defer import Deferred

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from scrapy import Request
    from scrapy.crawler import Crawler


def obey(crawler: Crawler) -> None:
    """Have the crawl's RobotsTxtMiddleware, if it has one, asked in turn."""
    middleware = crawler.get_downloader_middleware(RobotsTxtMiddleware)
    if middleware is not None:
        turns = _Turns(middleware.robot_parser)
        middleware.robot_parser = turns.robot_parser  # type: ignore[method-assign]


class _Turns:
    """Asks for the parser of each host once, and then for everybody."""

    def __init__(self, ask: Callable[[Request], Awaitable[Any]]) -> None:
        self._ask = ask
        self._waiting: dict[str, list[Deferred[None]]] = {}
        self._known: set[str] = set()

    async def robot_parser(self, request: Request) -> Any:
        """What Scrapy's middleware calls with each request."""
        host = urlsplit(request.url).netloc
        if host in self._waiting:
            turn: Deferred[None] = Deferred()
            self._waiting[host].append(turn)
            await maybe_deferred_to_future(turn)
        elif host not in self._known:
            return await self._first(request, host)
        return await self._ask(request)

    async def _first(self, request: Request, host: str) -> Any:
        self._waiting[host] = []
        try:
            return await self._ask(request)
        finally:
            self._known.add(host)
            for turn in self._waiting.pop(host):
                turn.callback(None)
