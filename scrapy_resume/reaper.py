"""The reaper: brings dead workers' shards back, and raises shards that fall due.

Every worker runs it. A lease that ended says that its holder may be dead, but after
an outage of the database, or of the reaper itself, every lease has ended: so nothing
is reaped until this reaper has been in contact with the database for a whole lease.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from scrapy.utils.asyncio import call_later
from twisted.python.failure import Failure

from scrapy_resume import clock
from scrapy_resume.store import leases
from scrapy_resume.store.engine import Database

if TYPE_CHECKING:
    from scrapy_resume.claimloop import ClaimLoop

logger = logging.getLogger(__name__)


def reap_once(database: Database, *, actor: str, reclaim: bool) -> tuple[int, int]:
    """One round: returns the numbers of shards reclaimed and fallen due.

    With *reclaim* false expired leases are left alone.
    """
    reclaimed = leases.reap(database, actor=actor) if reclaim else []
    return len(reclaimed), leases.raise_due(database)


class Reaper:
    """Runs :func:`reap_once` every ``RESUME_HEARTBEAT`` seconds for one claim loop."""

    def __init__(self, loop: ClaimLoop, database: Database) -> None:
        self._loop, self._database = loop, database
        self._in_contact_since = clock.monotonic()
        self._running = self._stopped = False
        self._timer: Any = None

    def start(self) -> None:
        """Begin the rounds."""
        self._timer = call_later(self._loop.settings.heartbeat, self._tick)

    def stop(self) -> None:
        """Reap no more."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _tick(self) -> None:
        if self._stopped:
            return
        self._timer = call_later(self._loop.settings.heartbeat, self._tick)
        if self._running:
            return
        self._running = True
        settled = clock.monotonic() - self._in_contact_since > self._loop.settings.lease
        actor = f"reaper of worker {self._loop.slot.worker[:8]}"
        round_ = self._loop.control.call(reap_once, self._database, actor=actor, reclaim=settled)
        round_.addCallbacks(self._reaped, self._out_of_contact)

    def _reaped(self, counts: tuple[int, int]) -> None:
        self._running = False
        reclaimed, due = counts
        if reclaimed:
            logger.warning(
                "Reclaimed %d shard(s) whose lease had ended", reclaimed, extra={"action": "reaped"}
            )
        if reclaimed or due:
            self._loop.claim_again()

    def _out_of_contact(self, failure: Failure) -> None:
        self._running = False
        self._in_contact_since = clock.monotonic()
