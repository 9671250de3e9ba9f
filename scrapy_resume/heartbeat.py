"""The heartbeat: renews every held lease, and notices when it can no longer be sure.

Every ``RESUME_HEARTBEAT`` seconds one statement renews all held shards by database
time. Between two renewals the holder trusts its own monotonic clock: once the lease
may have ended unseen, no new page is asked for until a renewal succeeds or the
shards turn out to be lost. Whether a commit is legal only the fencing token decides.

With a journal it is enough to know why no renewal came through: while the database does not
answer, reading goes on. As a rule nobody can take a shard then; if we alone cannot reach the
database, others may, and what we read is salvaged. A process that was frozen meanwhile knows
nothing: its beats have a gap.

A thread of its own beats, since a callback that computes for long blocks the event
loop but is alive. A loop that is blocked for ever is not: each beat leaves a mark in
the loop to be set, and once none was set for ``RESUME_LOOP_PATIENCE`` the leases are
left to end. (An extension module that keeps the interpreter lock stops the thread
too; its shards are lost after the lease, which the fence notices at the next commit.)
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from scrapy_resume import clock
from scrapy_resume.exceptions import StoreUnavailable
from scrapy_resume.store.leases import Renewal
from scrapy_resume.threads import loop_caller

if TYPE_CHECKING:
    from scrapy_resume.claimloop import ClaimLoop

logger = logging.getLogger(__name__)

SECOND_BEATS = 3
"""How many heartbeats long the second one, in Redis, is good for.

Less than a lease: it must have ended when the lease of a dead process does.
"""


class Heartbeat:
    """Renews the leases of one claim loop. Make it inside the event loop."""

    def __init__(self, loop: ClaimLoop) -> None:
        self.planning: int | None = None
        self._loop = loop
        self._interval = loop.settings.heartbeat
        self._lease = loop.settings.lease
        self._in_loop = loop_caller()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="scrapy_resume-beat", daemon=True)
        self._running = self._hung = False
        self.missing = False  # whether the last renewal failed, since the database is away
        self._unanswered = False  # whether a beat found the one before it still under way
        self._ticked = clock.monotonic()
        self._renewed = self._loop_seen = clock.monotonic()

    @property
    def unsure(self) -> bool:
        """Whether the leases may have ended without our knowing."""
        now = clock.monotonic()
        if now - self._renewed <= self._lease - self._interval:
            return False
        if self._loop.journalling is None or now - self._ticked > 2 * self._interval:
            return True
        return not (self.missing or self._unanswered)

    def start(self) -> None:
        """Begin to beat."""
        self._renewed = self._loop_seen = self._ticked = clock.monotonic()
        self._thread.start()

    def stop(self) -> None:
        """Beat no more."""
        self._end.set()

    # On the heartbeat's own thread

    def _beat(self) -> None:
        while not self._end.wait(self._interval):
            self._say(self._loop_runs)
            if not self._loop_is_hung():
                self.tick()

    def tick(self) -> None:
        """One beat, unless the last one is still under way."""
        loop, now = self._loop, clock.monotonic()
        frozen = now - self._ticked > 2 * self._interval
        self.missing = self.missing and not frozen
        self._unanswered, self._ticked = self._running and not frozen, now
        if loop.task is None:
            return
        if loop.link is not None:
            loop.link.beat(loop.slot.instance, SECOND_BEATS * self._interval)
        if not self._running:
            self._running = True
            # One step for the interpreter: the loop cannot change the dict meanwhile.
            shards = list(loop.flow.shards.values())
            held = {shard.id: shard.token for shard in shards}
            loop.control.post(self._renew, loop.task.id, held)

    def _loop_is_hung(self) -> bool:
        silent = clock.monotonic() - self._loop_seen
        if silent <= self._loop.settings.loop_patience:
            self._hung = False
        elif not self._hung:
            self._hung = True
            logger.error(
                "The event loop has been blocked for %.0f s (RESUME_LOOP_PATIENCE); the leases are"
                " no longer renewed, and others will take the shards over", silent,
                extra={"action": "loop_hung"},
            )  # fmt: skip
        return self._hung

    def _say(self, call: Callable[..., None], *args: Any) -> None:
        try:
            self._in_loop(call, *args)
        except RuntimeError:  # the loop was closed without our being told
            self._end.set()

    # On the control thread

    def _renew(self, task_id: int, held: dict[int, int]) -> None:
        sent = clock.monotonic()
        try:
            probes = tuple(self._loop.gate.trying)
            renewal = self._loop.work.beat(task_id, held, self.planning, probes)
        except Exception as error:
            self.missing = isinstance(error, StoreUnavailable)
            self._say(self._missed, error)
        else:
            self.missing = self._unanswered = False
            if not renewal.lost:  # else only once the loop has dropped them
                self._renewed = sent  # at once, so that a blocked loop is not unsure afterwards
            self._say(self._learned, renewal, held, sent)
        finally:
            self._running = False

    # In the event loop

    def _loop_runs(self) -> None:
        self._loop_seen = clock.monotonic()

    def _learned(self, renewal: Renewal, held: dict[int, int], sent: float) -> None:
        self._loop.session.outage.ended("heartbeat")
        shards = self._loop.flow.shards
        lost = [
            shard_id for shard_id in renewal.lost
            if shard_id in shards and shards[shard_id].token == held[shard_id]
        ]  # fmt: skip
        self._loop.flow.lose(lost)
        self._renewed = max(self._renewed, sent)
        self._loop.flow.wish(renewal.desired)
        self._loop.gate.learn(renewal.parked)
        self._loop.beaten()

    def _missed(self, error: Exception) -> None:
        self._loop.session.outage.began("heartbeat", error)
