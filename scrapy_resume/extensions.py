"""CheckpointExtension: the duties around the claim loop, and the verdict at the end."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any

from scrapy import signals
from scrapy.exceptions import CloseSpider
from scrapy.utils.asyncio import create_looping_call
from scrapy.utils.defer import deferred_from_coro
from twisted.internet.defer import Deferred

from scrapy_resume.progress import ProgressLine
from scrapy_resume.session import Session

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

    from scrapy_resume.claimloop import ClaimLoop

logger = logging.getLogger(__name__)

_PROGRESS_SECONDS = 1.0


class CheckpointExtension:
    """Shows the progress line, gives the finish reason, closes the session."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._progress: ProgressLine | None = None
        self._ticker: Any = None
        self._asking: Deferred[None] | None = None
        session.on_loop.append(self._loop_opened)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> CheckpointExtension:
        """Share the crawl's session."""
        extension = cls(Session.of(crawler, "CheckpointExtension"))
        crawler.signals.connect(extension._spider_opened, signals.spider_opened)
        crawler.signals.connect(extension._spider_idle, signals.spider_idle)
        crawler.signals.connect(extension._spider_closed, signals.spider_closed)
        return extension

    def _spider_opened(self) -> None:
        session = self._session
        if "PageMiddleware" in session.components:
            return  # it says so when the crawl begins, which ``scrapy shell`` never does
        if session.mistake is not None:
            session.refuse(session.mistake)
        if session.settings.enabled and hasattr(session.crawler.spider, "parse_list_page"):
            session.is_whole()

    def _loop_opened(self, loop: ClaimLoop) -> None:
        if self._session.settings.progress and sys.stderr.isatty():
            self._progress = ProgressLine(sys.stderr)
            self._ticker = create_looping_call(self._tick)
            self._ticker.start(_PROGRESS_SECONDS, now=False)

    def _tick(self) -> None:
        if self._asking is None:
            self._asking = deferred_from_coro(self._show_progress())
            self._asking.addBoth(self._asked)

    def _asked(self, result: Any) -> None:
        self._asking = None

    async def _show_progress(self) -> None:
        loop = self._session.loop
        if loop is None or self._progress is None:
            return
        done, total = await loop.progress()
        stats = self._session.crawler.stats
        items: Any = stats.get_value("resume/items/written", 0)
        self._progress.update(done, total, int(items))

    def _spider_idle(self) -> None:
        verdict = self._session.verdict
        if verdict is not None and verdict not in ("complete", "complete_with_rejects"):
            raise CloseSpider(f"resume_{verdict}")

    async def _spider_closed(self, reason: str) -> None:
        if self._ticker is not None:
            self._ticker.stop()
        if self._progress is not None:
            self._progress.close()
        await self._session.end(reason)
