"""PageMiddleware: the claim loop around ``start()``, and the outermost tag on outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scrapy.utils.asyncio import is_asyncio_available

from scrapy_resume.session import Session

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from scrapy.crawler import Crawler
    from scrapy.http import Response


class PageMiddleware:
    """Must be the outermost spider middleware (lowest number).

    A suspended ``start()`` keeps the spider from being idle, so the claim loop lives
    there: it needs no ``DontCloseSpider`` and ends by returning.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        if not is_asyncio_available():  # with asyncio contexts tell the page of an output
            self.process_spider_output = self._process_spider_output

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> PageMiddleware:
        """Share the crawl's session."""
        return cls(Session.of(crawler, "PageMiddleware"))

    async def process_start(self, start: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """Crawl the run's shards; the spider's own start() becomes their default plan."""
        session = self._session
        outputs = session.crawl(start) if session.resumes else session.plain(start)
        async for output in outputs:
            yield output

    async def _process_spider_output(
        self, response: Response, result: AsyncIterator[Any]
    ) -> AsyncIterator[Any]:
        """Tag requests that other spider middlewares made or replaced."""
        ledger = self._session.ledger
        async for output in result:
            yield output if ledger is None else ledger.tag(output, response)
