"""The stall watch: says so when no page of the run was stored for ``RESUME_STALLED_AFTER``.

It looks at this process first, and asks the database only when nothing was stored here for
so long: other processes may be at it. A stall is told once, until something moves again.
"""

from __future__ import annotations

import logging
import shlex
from typing import TYPE_CHECKING, Any

from scrapy.utils.asyncio import call_later
from scrapy.utils.defer import deferred_from_coro
from twisted.python.failure import Failure

from scrapy_resume import clock
from scrapy_resume.exceptions import StoreUnavailable
from scrapy_resume.store import status

if TYPE_CHECKING:
    from scrapy_resume.alerts import Alerts
    from scrapy_resume.claimloop import ClaimLoop

logger = logging.getLogger(__name__)

_SHORTEST = 0.05  # seconds between two looks


class StallWatch:
    """Looks after one claim loop. Make it inside the event loop."""

    def __init__(self, loop: ClaimLoop, alerts: Alerts, after: float) -> None:
        self._loop, self._alerts, self._after = loop, alerts, after
        self._told = self._stopped = False
        self._timer: Any = None

    def start(self) -> None:
        """Begin to look."""
        self._alerts.moved = clock.monotonic()
        self._look_in(self._after)

    def stop(self) -> None:
        """Look no more."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    async def look(self) -> float:
        """Look once, tell a stall; returns in how many seconds to look again."""
        quiet, why = clock.monotonic() - self._alerts.moved, ""
        if quiet >= self._after:
            quiet, why = await self._in_run(quiet)
        if quiet < self._after:
            self._told = False
            return self._after - quiet
        self._tell(quiet, why)
        return self._after

    async def _in_run(self, quiet: float) -> tuple[float, str]:
        """For how long nothing was stored in the whole run, at most since we look; and why."""
        loop, held = self._loop, len(self._loop.flow.shards)
        assert loop.task is not None
        try:
            since = await loop.control.run(status.quiet_for, loop.session.database, loop.task.id)
        except StoreUnavailable:
            return quiet, "the database cannot be reached"
        why = f"this process holds {held} shard(s); `scrapy resume why {_name(loop)}` tells more"
        return min(quiet, since), why

    def _tell(self, quiet: float, why: str) -> None:
        if self._told or self._stopped or self._loop.flow.wished != "run":
            return
        self._told = True
        logger.warning(
            "No page of the run was stored for %.0f s: %s", quiet, why, extra={"action": "stalled"}
        )
        self._alerts.stalled(quiet, why)

    def _look_in(self, seconds: float) -> None:
        if not self._stopped:
            self._timer = call_later(max(seconds, _SHORTEST), self._due)

    def _due(self) -> None:
        self._timer = None
        deferred_from_coro(self.look()).addCallbacks(self._look_in, self._failed)

    def _failed(self, failure: Failure) -> None:
        if not self._stopped:
            logger.error(
                "The stall watch failed", exc_info=failure.value,
                extra={"action": "stall_watch_failed"},
            )  # fmt: skip
        self._look_in(self._after)


def _name(loop: ClaimLoop) -> str:
    return shlex.quote(loop.task.name) if loop.task is not None else ""
