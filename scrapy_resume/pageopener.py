"""From a page's number to its list request, handed to the engine when that has room."""

from __future__ import annotations

import logging
import random
from typing import TYPE_CHECKING

from scrapy import Request, signals
from scrapy.utils.defer import ensure_awaitable

from scrapy_resume import cursor
from scrapy_resume.exceptions import StoreUnavailable
from scrapy_resume.heldshard import HeldShard
from scrapy_resume.page import Page
from scrapy_resume.walks import ChainWalk

if TYPE_CHECKING:
    from scrapy_resume.checks import Check
    from scrapy_resume.claimloop import ClaimLoop
    from scrapy_resume.sitewatch import Good

logger = logging.getLogger(__name__)

_STALE = frozenset(
    {
        "depth", "dont_retry", "download_latency", "redirect_reasons", "redirect_times",
        "redirect_ttl", "redirect_urls", "retry_times", "cached_response", "cache_timestamp",
        "_dont_cache",
    }
)  # fmt: skip


class PageOpener:
    """Makes the list requests of one claim loop."""

    def __init__(self, loop: ClaimLoop) -> None:
        self._loop, self._spider = loop, loop.spider
        self._room_wanted = self._room_made = False
        loop.crawler.signals.connect(self._made_room, signals.scheduler_empty)

    async def open(self, shard: HeldShard) -> Request | None:
        """The request for the shard's next page, if one may be opened now."""
        flow = self._loop.flow
        if self._loop.halted or flow.stopping or flow.wished != "run":
            return None
        shard.waits = not flow.doubts.may_open(shard)
        if shard.waits:
            return None
        check = flow.doubts.checks.wanted(shard)
        shard.waits = check is not None or not flow.doubts.has_room(shard)
        if check is not None:
            return await self._check(shard, check)
        if shard.waits:
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
        if page.attempt > 1 or shard.trying:
            request.meta["dont_cache"] = True  # an HTTP cache would give the same answer again
        if shard.trying:
            request.meta["dont_retry"] = True
        opened, request = self._loop.ledger.open(page, request)
        flow.opened(shard, number, opened, request)
        return request

    async def _check(self, shard: HeldShard, check: Check) -> Request | None:
        """The request for a page of the shard's site that is known to have items, if any is."""
        doubts = self._loop.flow.doubts
        try:
            known = await self._known(shard, check)
        except StoreUnavailable:
            raise
        except Exception as error:
            logger.exception("No request for a check", extra={"action": "page_request"})
            words = f"no page known to have items could be asked for: {type(error).__name__}"
            doubts.check_failed(check, words)
            return None
        if known is None:
            return None
        page, request, words = known
        request.meta.update(is_start_request=True, dont_cache=True)
        request.meta.update({"dont_retry": True} if shard.trying else {})
        opened, request = self._loop.ledger.open(page, request)
        if not doubts.checks.opened(check, opened, doubts.opened(request), words):
            self._loop.ledger.abandon(opened)
            return None
        return request

    async def _known(self, shard: HeldShard, check: Check) -> tuple[Page, Request, str] | None:
        """A page that holds items, and words for it: what the spider says, the latest one that
        this process saw, or one that the run stored."""
        loop, facts = self._loop, self._loop.flow.watch.facts(shard.site)
        good = facts.good
        probe = await self._probe(shard)
        if probe is not None:
            return *probe, "the page of probe()"
        if shard.trying and not shard.begun:  # its own next page will do
            loop.flow.doubts.checks.end(check)
            loop.wakeup.set()
            return None
        if good is not None and (good.shard.key, good.number) not in facts.barren:
            return _again(good)
        if loop.task is None or loop.session.outage.away:
            check.begun = False  # later: others of our pages must not wait for it
            return None
        # The page that the last one who tried it asked for may be empty by now.
        elsewhere = shard.trying and random.random() < 0.5
        barren = frozenset(facts.barren)
        found = await loop.ask(loop.work.history, loop.task.id, shard.site, barren, elsewhere)
        known = found.page
        if known is None and good is not None:
            return _again(good)
        if known is None:
            loop.flow.doubts.nothing_known(check, found.stored_before, found.others)
            return None
        page = Page(known.number, known.shard, known.shard.cursor, 1, True)
        if known.ordered and cursor.is_request(page.cursor):
            request = cursor.to_request(page.cursor, self._spider)
        else:
            request = await ensure_awaitable(self._spider.page_request(page))
        request.callback = request.callback or self._spider.parse_list_page
        return page, request, _words(page)

    async def _probe(self, shard: HeldShard) -> tuple[Page, Request] | None:
        if not self._spider.has_probe:
            return None
        request = await ensure_awaitable(self._spider.probe(shard.site))
        if request is None:
            return None
        ours = shard.walk.claimed.shard
        request.callback = request.callback or self._spider.parse_list_page
        return Page(ours.first_page, ours, ours.cursor, 1, True), request

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


def _again(good: Good) -> tuple[Page, Request, str]:
    """A page that this process saw, asked for as it was then."""
    request = good.request.copy()
    for name in _STALE & request.meta.keys():
        del request.meta[name]
    page = Page(good.number, good.shard, good.shard.cursor, 1, True)
    return page, request, _words(page)


def _words(page: Page) -> str:
    return f"page {page.number} of shard {page.shard.key!r}"
