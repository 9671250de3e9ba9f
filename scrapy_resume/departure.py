"""How a process leaves its run: politely within ``RESUME_GRACE``, with its shards given back."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from scrapy.utils.asyncio import call_later
from scrapy.utils.defer import deferred_from_coro

from scrapy_resume import clock, ownjournal
from scrapy_resume.exceptions import ResumeError

if TYPE_CHECKING:
    from scrapy_resume.claimloop import ClaimLoop

logger = logging.getLogger(__name__)

SPARE = 5.0  # seconds after the grace to store what has ended, and to give back what is held


class Departure:
    """The end of one claim loop."""

    def __init__(self, loop: ClaimLoop) -> None:
        self._loop = loop
        self._began: float | None = None
        self._grace: Any = None
        self._last: Any = None
        self._going: Any = None
        self._releasing: Any = None

    def begin(self) -> None:
        """The crawl closes: what is not stored within the grace is given to others."""
        self._loop.session.hurry()
        if self._began is None:
            self._began = clock.monotonic()
            self._grace = call_later(self._loop.settings.grace, self._out_of_grace)
            self._last = call_later(self._loop.settings.grace + SPARE, self._out_of_time)

    def over(self) -> None:
        """Nothing of the crawl is left: say how long its end took."""
        if self._began is not None:
            self._last.cancel()
            took = clock.monotonic() - self._began
            self._loop.crawler.stats.set_value("resume/stop/seconds", round(took, 3))

    def outdated(self, error: Exception) -> None:
        """Another version of the tables is in force now: end politely, once."""
        loop = self._loop
        if self._going is not None or loop.flow.stopping:
            return
        logger.error(
            "The crawl stops, since the tables were changed meanwhile: %s", error,
            extra={"action": "outdated"},
        )  # fmt: skip
        loop.crawler.stats.set_value("resume/error", str(error))
        closing = loop.crawler.engine.close_spider_async(reason="resume_refused")
        self._going = deferred_from_coro(closing)

    async def complete(self) -> bool:
        """Give the held shards back and stop every duty; False if a store call still hangs."""
        loop = self._loop
        loop.flow.stop()
        if self._grace is not None:
            self._grace.cancel()
        await loop.flow.release_all(loop.session.failure)
        loop.heartbeat.stop()
        loop.reaper.stop()
        clean = False
        try:
            clean = await self._sign_off()
        finally:
            if loop.link is not None:
                await loop.link.close(loop.settings.grace)
            idle = await loop.control.stop(loop.settings.grace)
            loop.ledger.uninstall()
            loop.slot.free(clean=clean)
        return idle

    def _out_of_grace(self) -> None:
        loop = self._loop
        if any(shard.open for shard in loop.flow.shards.values()):
            logger.warning(
                "Pages in flight did not end within RESUME_GRACE (%g s); they are abandoned and"
                " their shards released", loop.settings.grace, extra={"action": "grace_over"},
            )  # fmt: skip
        loop.flow.abandon()
        self._releasing = deferred_from_coro(loop.flow.release_all(loop.session.failure))
        loop.ledger.abort()

    def _out_of_time(self) -> None:
        logger.warning(
            "The crawl did not end within RESUME_GRACE (%g s) and %g s more; the database is waited"
            " for no longer", self._loop.settings.grace, SPARE, extra={"action": "out_of_time"},
        )  # fmt: skip
        self._loop.session.database.cut()

    async def _sign_off(self) -> bool:
        """Record that this process ends; False if something may still be its worker's on record.

        So it is if the database could not be told, and if it never got so far as to take
        back what its slot's earlier process held.
        """
        loop = self._loop
        await loop.provisional.close()
        left = await ownjournal.end(loop)
        if left or not loop.work.registered:
            return False  # nothing is given back before its pages: they are still in the journal
        try:
            await loop.control.run(loop.work.stopped, loop.session.failure)
            if loop.task is not None:
                if loop.session.verdict is None:
                    await loop.conclude()
                loop.tell_others()
            loop.session.outage.closed()
        except ResumeError as error:
            logger.warning(
                "The end of this process could not be recorded: %s", error,
                extra={"action": "end_unrecorded"},
            )  # fmt: skip
            return False
        return True
