"""Alerts: what a person may want to know at once, as signals and stats.

Whoever wants them told elsewhere connects to :mod:`scrapy_resume.signals`. What is told
is in the database by then. A handler that fails is logged and harms nobody; one that takes
its time is waited for when the crawl ends, for ``RESUME_GRACE``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from scrapy.utils.defer import deferred_from_coro
from twisted.internet.defer import Deferred, DeferredList

from scrapy_resume import clock, signals
from scrapy_resume.health import Judgement, SiteState
from scrapy_resume.page import ErrorKind
from scrapy_resume.stallwatch import StallWatch
from scrapy_resume.store.checkpoints import CommitResult, Finish, PageRecord, Record, Release
from scrapy_resume.threads import Wakeup, loop_caller

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

    from scrapy_resume.claimloop import ClaimLoop
    from scrapy_resume.heldshard import HeldShard
    from scrapy_resume.sitewatch import SiteWatch
    from scrapy_resume.store.quarantine import QuarantineRecord


class Alerts:
    """Sends the signals of one crawl. *shards* are those that it holds, *moved* is when
    a page was stored last."""

    def __init__(
        self,
        crawler: Crawler,
        watch: SiteWatch,
        inc_stat: Callable[..., None],
        stalled_after: float,
    ) -> None:
        self.shards: Mapping[int, HeldShard] = {}
        self.moved = clock.monotonic()
        self._stalled_after = stalled_after
        self._stalls: StallWatch | None = None
        self._crawler, self._watch, self._inc = crawler, watch, inc_stat
        self._in_loop: Callable[..., Any] | None = None
        self._sending: set[Deferred[Any]] = set()
        self._ill: set[str] = set()  # sites of which it was told, and no page stored since
        watch.listeners.append(self._judged)

    def opened(self, loop: ClaimLoop) -> None:
        """The crawl has its run: watch whether it gets on."""
        self.shards = loop.flow.shards
        if self._stalled_after:
            self._stalls = StallWatch(loop, self, self._stalled_after)
            self._stalls.start()

    def begin(self) -> None:
        """Pages and items are about to be stored. Call it in the event loop."""
        self._in_loop = loop_caller()

    def stored(self, records: Sequence[Record], result: CommitResult) -> None:
        """A transaction with *records* was committed. Called on the commit thread."""
        pages = [one for one in records if isinstance(one, PageRecord) and _kept(one, result)]
        if pages:
            self.moved = clock.monotonic()
        for page in pages if self._ill else ():
            shard = self.shards.get(page.shard_id)
            if shard is not None and not self._watch.is_blocked(shard.site):
                self._ill.discard(shard.site)
        told: list[Callable[[], None]] = []
        if aside := [*(row for page in pages for row in page.quarantine), *result.rejected]:
            told.append(lambda: self._quarantined(aside))
        for record in records:
            shard = self.shards.get(record.shard_id)
            if shard is not None and isinstance(record, (Finish, Release)):
                told += self._ended(shard, record, result)
        for tell in told:
            assert self._in_loop is not None
            self._in_loop(tell)

    def stalled(self, seconds: float, reason: str) -> None:
        """No page of the run was stored for so many *seconds*."""
        self._inc("stalled")
        self._send(signals.crawl_stalled, seconds=seconds, reason=reason)

    async def close(self, within: float) -> None:
        """Wait for the handlers that are still at it, *within* seconds."""
        if self._stalls is not None:
            self._stalls.stop()
        if self._sending:
            done = Wakeup()
            DeferredList(list(self._sending)).addCallback(lambda _: done.set())
            await done.wait(within)

    def _ended(
        self, shard: HeldShard, record: Finish | Release, result: CommitResult
    ) -> list[Callable[[], None]]:
        if shard.walk.leaving:
            return []  # as an operator wished
        if result.statuses.get(shard.id) == "failed":
            return [lambda: self._failed(shard, record.reason)]
        blocked = isinstance(record, Release) and record.error_kind == ErrorKind.BLOCKED.value
        return [lambda: self._blocked(shard, record.reason)] if blocked else []

    def _failed(self, shard: HeldShard, reason: str) -> None:
        claimed = shard.walk.claimed
        self._inc("shards/failed")
        number, key = claimed.shard_no, claimed.shard.key
        self._send(signals.shard_failed, shard_no=number, shard_key=key, reason=reason)

    def _blocked(self, shard: HeldShard, reason: str) -> None:
        """A page of the shard is blocked; if its whole site is, that was told already."""
        self._inc("shards/blocked")
        if not self._watch.is_blocked(shard.site):
            self._tell_blocked(shard.site, reason)

    def _judged(self, site: str, judgement: Judgement, retry_after: float) -> None:
        if judgement.state is SiteState.BLOCKED:
            self._tell_blocked(site, judgement.reason)

    def _tell_blocked(self, site: str, reason: str) -> None:
        """Once, however often the site is tried in vain."""
        if site not in self._ill:
            self._ill.add(site)
            self._send(signals.site_blocked, site=site, reason=reason)

    def _quarantined(self, records: Sequence[QuarantineRecord]) -> None:
        self._send(signals.records_quarantined, records=tuple(records))

    def _send(self, signal: Any, **facts: Any) -> None:
        crawler = self._crawler
        sent = deferred_from_coro(
            crawler.signals.send_catch_log_async(signal, spider=crawler.spider, **facts)
        )
        self._sending.add(sent)
        sent.addBoth(lambda _: self._sending.discard(sent))


def _kept(record: PageRecord, result: CommitResult) -> bool:
    """Was the page written, as far as the transaction says?"""
    held = {(shard_id, page) for shard_id, page, _ in result.held}
    return record.shard_id not in result.fenced and (record.shard_id, record.page) not in held
