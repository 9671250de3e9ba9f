"""The claimer: which shards this process takes, when, and how many.

It takes what it can start soon: no more while one of its shards has not begun, nor
more at once than the downloader could begin with. It asks again once a quarter of
``RESUME_SHARDS`` is free. Hints from Redis are tried first; the database confirms
each, and gives the rest.

An empty queue is not polled: after a claim that found too few, the next one comes
with the next heartbeat, or when there is news (a shard given back, raised, planned).
Even then :data:`SHORTEST` lies between two such claims.

A shard that cannot begin because its site rests, or is being checked, keeps no others from
being taken, but those of its site.

With ``RESUME_SITE_SHARDS`` no hints are asked for: which sites are full is known to the
database alone, and most of what Redis offers would be refused.
"""

from __future__ import annotations

import logging
import random
from typing import TYPE_CHECKING

from scrapy.utils.defer import deferred_from_coro
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from scrapy_resume import clock
from scrapy_resume.intake import Waiting
from scrapy_resume.store.leases import ClaimedShard
from scrapy_resume.walks import walk_for

if TYPE_CHECKING:
    from scrapy_resume.claimloop import ClaimLoop

logger = logging.getLogger(__name__)

SHORTEST = 0.1  # seconds between two claims that find too few, whatever the news
_READ_AHEAD = 5000  # waiting shards read at once for Redis


class Claimer:
    """Fills one claim loop up with shards."""

    def __init__(self, loop: ClaimLoop) -> None:
        self._loop, self._settings = loop, loop.settings
        self._at_once = loop.crawler.settings.getint("CONCURRENT_REQUESTS") or loop.settings.shards
        self._asked = self._not_before = float("-inf")
        self._last_fill = float("-inf")
        self._misses, self._news, self._filling = 0, False, False
        self._looking: Deferred[bool] | None = None
        self._failed: Failure | None = None

    async def look(self) -> bool:
        """Claim, or try a site, if there is reason to; was it asked for?

        Whoever holds shards goes on with them meanwhile, however long the database takes.
        """
        loop = self._loop
        if self._failed is not None:
            self._failed.raiseException()
        if self._looking is not None or not (loop.gate.wanted or self.wanted):
            return False
        if not loop.flow.shards:
            return await self._look()
        self._looking = looking = deferred_from_coro(self._look())
        looking.addCallbacks(self._looked, self._not_looked)
        return False

    async def _look(self) -> bool:
        await self._loop.gate.tend()
        return await self.claim()

    def _looked(self, _: bool) -> None:
        self._looking = None
        self._loop.wakeup.set()

    def _not_looked(self, failure: Failure) -> None:
        """Nothing can be claimed any more: the next look says why. Stopping is no reason."""
        self._looking = None
        if not self._loop.flow.stopping:
            self._failed = failure
        self._loop.wakeup.set()

    async def claim(self) -> bool:
        """Claim if there is room, and if there may be something to claim; was it asked for?"""
        if not self.wanted:
            return False
        wanted = self._room()
        self._asked, self._news = clock.monotonic(), False
        claimed = await self._take(wanted)
        if len(claimed) < wanted:
            self.ask_in(self._settings.heartbeat)
        self._misses = 0 if claimed else self._misses + 1
        self._loop.session.inc_stat("shards/claimed", len(claimed))
        if claimed:
            self._loop.flow.wish("run")  # else there was nothing to be had
            self._loop.put_back(claimed[0].read_again_at)
        for shard in claimed:
            if shard.resumed:
                self._loop.session.inc_stat("pages/resumed_from", shard.position.cur_page)
            self._loop.flow.hold(walk_for(shard, self._loop.policy))
        return True

    @property
    def wanted(self) -> bool:
        """Whether there is room, and it is time to ask."""
        due = clock.monotonic() >= self._not_before and not self._loop.flow.stopping
        return due and self._room() > 0

    def news(self) -> None:
        """There may be something to claim now."""
        self._news = True
        self._not_before = min(self._not_before, self._asked + SHORTEST)

    def again(self) -> None:
        """One of ours has ended: ask without delay, which is no polling."""
        self._news, self._not_before = True, float("-inf")

    def ask_in(self, seconds: float) -> None:
        """Nothing can be had before *seconds* from now, unless there is news.

        News that came since the claim began, while the database was asked, count.
        """
        later = clock.monotonic() + seconds
        self._not_before = min(later, self._asked + SHORTEST) if self._news else later

    @property
    def wait(self) -> float:
        """Seconds until the next claim may be made; at most a heartbeat."""
        left = self._not_before - clock.monotonic()
        return left if 0 < left < self._settings.heartbeat else self._settings.heartbeat

    @property
    def pause(self) -> float:
        """How long to wait when others were quicker: longer each time, at most a heartbeat."""
        pause = SHORTEST * 2.0 ** min(self._misses, 16) * random.uniform(0.5, 1.0)
        return min(pause, self._settings.heartbeat)

    def _room(self) -> int:
        """How many shards to ask for.

        A shard that only waits for its last pages no longer counts: the next one may start.
        Those have a bound too.
        """
        held = self._loop.flow.shards.values()
        if len(held) >= 2 * self._settings.shards:
            return 0
        if any(shard.walk.suspect for shard in held):
            return 0  # it is tried alone, so that a death tells which one it was
        if any(not (shard.begun or shard.waits) and shard.walk.opening for shard in held):
            return 0
        free = self._settings.shards - sum(shard.walk.opening for shard in held)
        if free < max(1, self._settings.shards // 4):
            return 0
        return min(free, max(1, self._at_once - self._loop.flow.read_now))

    async def _take(self, wanted: int) -> list[ClaimedShard]:
        loop = self._loop
        assert loop.task is not None
        link = None if self._settings.site_shards else loop.link
        alone = not loop.flow.shards
        hints = [] if link is None else await link.take(wanted, self._settings.intake)
        if loop.flow.stopping:  # Redis took its time: what we claimed now nobody would give back
            return []
        claim = loop.work.claim
        claimed = await loop.ask(claim, loop.task.id, wanted, alone, hints, self._without())
        if link is not None:
            await link.settle(hints, [shard.id for shard in claimed])
            if len(hints) < wanted and not self._filling:
                self._filling = True
                deferred_from_coro(self._fill()).addBoth(self._filled)
        return claimed

    def _without(self) -> frozenset[str]:
        """The sites whose shards could not begin: one of ours waits, or is still to end since
        the site was blocked."""
        held = self._loop.flow.shards.values()
        return frozenset(one.site for one in held if one.waits or one.walk.blocked is not None)

    async def _fill(self) -> None:
        """Put what waits into Redis, unless it holds some or someone else does; by the way."""
        now, link = clock.monotonic(), self._loop.link
        if link is not None and now - self._last_fill >= self._settings.heartbeat:
            self._last_fill = now
            if await link.fill(self._waiting):
                self.news()

    def _filled(self, result: Failure | None) -> None:
        self._filling = False
        if isinstance(result, Failure):
            logger.warning(
                "The queue in Redis could not be filled: %s", result.value,
                extra={"action": "queue_not_filled"},
            )  # fmt: skip

    async def _waiting(self, after: int) -> list[Waiting]:
        loop = self._loop
        assert loop.task is not None
        return await loop.control.run(loop.work.waiting, loop.task.id, after, _READ_AHEAD)
