"""The heartbeat: renews every held lease, and notices when it can no longer be sure.

Every ``RESUME_HEARTBEAT`` seconds one statement renews all held shards by database
time. Between two renewals the holder trusts its own monotonic clock: once the lease
may have ended unseen, no new page is asked for until a renewal succeeds or the
shards turn out to be lost. Whether a commit is legal only the fencing token decides.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from scrapy.utils.asyncio import call_later
from twisted.python.failure import Failure

from scrapy_resume import clock
from scrapy_resume.store.leases import Renewal

if TYPE_CHECKING:
    from scrapy_resume.claimloop import ClaimLoop

logger = logging.getLogger(__name__)


class Heartbeat:
    """Renews the leases of one claim loop."""

    def __init__(self, loop: ClaimLoop) -> None:
        self.planning: int | None = None
        self._loop = loop
        self._interval = loop.settings.heartbeat
        self._lease = loop.settings.lease
        self._renewed = clock.monotonic()
        self._timer: Any = None
        self._stopped = True
        self._running = False

    @property
    def unsure(self) -> bool:
        """Whether the leases may have ended without our knowing."""
        return clock.monotonic() - self._renewed > self._lease - self._interval

    def start(self) -> None:
        """Begin to beat."""
        self._stopped, self._renewed = False, clock.monotonic()
        self._timer = call_later(self._interval, self._tick)

    def stop(self) -> None:
        """Beat no more."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _tick(self) -> None:
        if self._stopped:
            return
        self._timer = call_later(self._interval, self._tick)
        if self._running or self._loop.task is None:
            return
        self._running = True
        held = {shard.id: shard.token for shard in self._loop.flow.shards.values()}
        sent = clock.monotonic()
        beat = self._loop.control.call(
            self._loop.work.beat, self._loop.task.id, held, self.planning
        )
        beat.addCallbacks(self._renewed_at, self._missed, (held, sent))

    def _renewed_at(self, renewal: Renewal, held: dict[int, int], sent: float) -> None:
        self._running = False
        self._renewed = sent
        shards = self._loop.flow.shards
        lost = [
            shard_id for shard_id in renewal.lost
            if shard_id in shards and shards[shard_id].token == held[shard_id]
        ]  # fmt: skip
        self._loop.flow.lose(lost)
        self._loop.claim_again()

    def _missed(self, failure: Failure) -> None:
        self._running = False
        logger.warning(
            "A heartbeat did not reach the database: %s", failure.value,
            extra={"action": "heartbeat_missed"},
        )  # fmt: skip
