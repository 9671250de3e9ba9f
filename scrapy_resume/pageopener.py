"""From a page's number to its list request, handed to the engine when that has room."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from scrapy import Request, signals
from scrapy.utils.defer import ensure_awaitable

from scrapy_resume import cursor
from scrapy_resume.heldshard import HeldShard
from scrapy_resume.page import Page
from scrapy_resume.walks import ChainWalk

if TYPE_CHECKING:
    from scrapy_resume.claimloop import ClaimLoop

logger = logging.getLogger(__name__)


class PageOpener:
    """Makes the list requests of one claim loop."""

    def __init__(self, loop: ClaimLoop) -> None:
        self._loop, self._spider = loop, loop.spider
        self._room_wanted = self._room_made = False
        loop.crawler.signals.connect(self._made_room, signals.scheduler_empty)

    async def open(self, shard: HeldShard) -> Request | None:
        """The request for the shard's next page, if one may be opened now."""
        flow = self._loop.flow
        if self._loop.heartbeat.unsure or flow.stopping:
            return None
        number = shard.walk.next_page()
        if number is None:
            return None
        try:
            page, request = await self._request(shard, number)
        except Exception as error:
            logger.exception("No request for page %d", number, extra={"action": "page_request"})
            flow.not_opened(shard, number, error)
            return None
        if flow.shards.get(shard.id) is not shard:
            return None
        request.meta.setdefault("is_start_request", True)
        if page.attempt > 1:
            request.meta["dont_cache"] = True  # an HTTP cache would give the same answer again
        opened, request = self._loop.ledger.open(page, request)
        flow.opened(shard, number, opened)
        return request

    async def room(self) -> None:
        """Wait while the engine has all the requests it can take."""
        loop = self._loop
        while loop.crawler.engine.needs_backout() and not loop.flow.stopping:
            self._room_wanted, self._room_made = True, False
            while not (self._room_made or loop.flow.stopping):
                await loop.wakeup.wait(loop.settings.heartbeat)
                if not loop.crawler.engine.needs_backout():
                    break
            self._room_wanted = False

    def _made_room(self) -> None:
        if self._room_wanted:
            self._room_made = True
            self._loop.wakeup.set()

    async def _request(self, shard: HeldShard, number: int) -> tuple[Page, Request]:
        walk, claimed = shard.walk, shard.walk.claimed
        text = walk.cursor_of(number)
        value = claimed.shard.cursor if text is None else cursor.load(text)
        page = Page(number, claimed.shard, value, walk.attempts[number], claimed.resumed)
        followed = shard.following.get(number)
        if followed is not None:
            request = followed.copy()
            request.meta.pop("depth", None)  # DEPTH_LIMIT counts from each list page
        elif isinstance(walk, ChainWalk) and cursor.is_request(value):
            request = cursor.to_request(value, self._spider)
        else:
            request = await ensure_awaitable(self._spider.page_request(page))
        if request.callback is None:
            request.callback = self._spider.parse_list_page
        return page, request
