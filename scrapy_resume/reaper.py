"""The reaper: brings dead workers' shards back, and raises shards that fall due.

Every worker runs it. A lease that ended says that its holder may be dead, but after
an outage of the database, or of the reaper itself, every lease has ended: so nothing
is reaped until this reaper has heard from the database for a whole lease without a
gap. Holders that give another sign of life, a second heartbeat in Redis or a held
lock of a slot on this machine, are given one more lease at most: a frozen process
still holds its lock.

A process that died on this machine is known to be dead by its unlocked slot; for
that no lease has to end.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Generator
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from scrapy.utils.asyncio import call_later
from scrapy.utils.defer import deferred_from_coro
from twisted.python.failure import Failure

from scrapy_resume import clock, journalreplay
from scrapy_resume.exceptions import SchemaMismatch, StoreUnavailable
from scrapy_resume.store import attendance, finishing, leases, migrate, wishes, workers
from scrapy_resume.store.engine import Database
from scrapy_resume.worker import WorkerSlot

if TYPE_CHECKING:
    from scrapy_resume.claimloop import ClaimLoop

logger = logging.getLogger(__name__)

T = TypeVar("T")

_SHORTEST_GAP = 1.0  # seconds
_PRUNED = 500  # rows of long ended workers that one round deletes
_ROUNDS_TO_PRUNE = 100


@dataclass
class Contact:
    """Since when the database has been heard from without a gap longer than *gap* seconds."""

    gap: float
    since: float = field(default_factory=lambda: clock.monotonic())
    _last: float = field(default_factory=lambda: clock.monotonic())
    _ahead: float | None = None  # seconds from our clock to the database's

    def heard(self) -> float:
        """The database answered just now; returns for how many seconds it has done so."""
        now = clock.monotonic()
        if now - self._last > self.gap:
            self.since = now
        self._last = now
        return now - self.since

    def dated(self, now: datetime) -> None:
        """The database's clock shows *now*. When it jumped, the leases of the living have ended
        too, until they renew them."""
        ahead = (now - datetime.min).total_seconds() - clock.monotonic()
        if self._ahead is not None and abs(ahead - self._ahead) > self.gap:
            self.since = clock.monotonic()
        self._ahead = ahead

    def lost(self) -> None:
        """The database did not answer: the contact begins with its next answer."""
        self._last = float("-inf")


def gap_for(lease: float) -> float:
    """A silence so short that no living holder's lease ended in it.

    Not below a second, or a busy machine would never be in contact: a lease of less than
    two seconds does without this protection.
    """
    return max(_SHORTEST_GAP, lease / 2)


def reap_once(
    db: Database,
    holders: Collection[str],
    *,
    actor: str,
    lease: float,
    alive: Collection[str] = (),
) -> int:
    """Take back the expired leases of *holders* (instances), looked at while in contact.

    Those of them in *alive* keep what expired less than *lease* seconds ago. Returns how
    many shards may be claimed again.
    """
    count = 0
    while came := leases.reap(db, actor=actor, alive=alive, lease=lease, only=holders):
        count += len(came)
    return count


def recover(db: Database, slot: WorkerSlot, *, lease: float) -> int:
    """Take back what processes that died on this machine held; returns how many shards."""
    return sum(recovery(db, slot, lease=lease))


def recovery(db: Database, slot: WorkerSlot, *, lease: float) -> Generator[int, None, None]:
    """The same in steps, none of which takes long, all on one thread; yields shards taken back.

    What a dead process had read and not stored is stored first, under its own tokens.
    """
    for dead in slot.dead_neighbours(lambda worker: workers.on_record(db, worker)):
        for _ in journalreplay.steps(
            db, dead.directory, actor=slot.signature, holders=dead.instances, lease=lease
        ):
            yield 0
        yield len(leases.reclaim_worker(db, worker=dead.worker, instance=slot.instance))
        attendance.ended(db, worker=dead.worker)


class Reaper:
    """Makes a round every ``RESUME_HEARTBEAT`` seconds for one claim loop."""

    def __init__(self, loop: ClaimLoop, database: Database) -> None:
        self._loop, self._database = loop, database
        self._contact = Contact(gap_for(loop.settings.lease))
        self._running = self._stopped = False
        self._rounds = 0
        self._timer: Any = None

    def start(self) -> None:
        """Begin the rounds; the run was just opened, so the database has answered."""
        self._contact.lost()
        self._contact.heard()
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
        if not self._running:
            self._running = True
            deferred_from_coro(self.round()).addCallbacks(self._ended, self._failed)

    def _ended(self, result: None) -> None:
        self._running = False

    def _failed(self, failure: Failure) -> None:
        self._running = False
        self._contact.lost()
        if isinstance(failure.value, SchemaMismatch):
            self._loop.departure.outdated(failure.value)
        elif not (self._stopped or isinstance(failure.value, StoreUnavailable)):
            logger.error(
                "A round of the reaper failed", exc_info=failure.value,
                extra={"action": "reaper_failed"},
            )  # fmt: skip

    async def round(self) -> None:
        """Look who is dead or silent, take back what is lost, raise what is due, end what is over.

        The dead come first: what they had read and not stored is stored under their leases.
        """
        run, db, loop = self._asked, self._database, self._loop
        await run(migrate.still_fits, db)
        recovered = await self._recover()
        holders = await run(leases.expired_holders, db)
        self._contact.dated(await run(db.look, db.now))
        settled = self._contact.heard() > loop.settings.lease
        reclaimed = await self._reclaim(holders) if settled and holders else 0
        due = await run(leases.raise_due, db)
        over = await run(wishes.carry_out, db) + await run(finishing.finish_ended, db)
        self._rounds += 1
        if self._rounds % _ROUNDS_TO_PRUNE == 0:
            await run(workers.prune, db, _PRUNED)
        self._say(reclaimed, recovered)
        if reclaimed or recovered or due or over:
            loop.tell_others()

    async def _asked(self, call: Callable[..., T], *args: Any) -> T:
        """Each answer is a sign of the database: on a busy machine a round takes its time."""
        answer = await self._loop.control.run(call, *args)
        self._contact.heard()
        return answer

    async def _recover(self) -> int:
        """Recover dead neighbours step by step: heartbeats go between, on the same thread."""
        run, lease = self._loop.control.run, self._loop.settings.lease
        steps, count = recovery(self._database, self._loop.slot, lease=lease), 0
        try:
            while not self._stopped and (came := await run(next, steps, None)) is not None:
                count += came
        finally:
            await run(steps.close)
        return count

    async def _reclaim(self, holders: Collection[str]) -> int:
        """Take back what *holders* lost; the lock in Redis only saves double work."""
        loop, lease = self._loop, self._loop.settings.lease
        if loop.link is not None and not await loop.link.lock("reap", loop.settings.heartbeat):
            return 0
        alive = await self._alive(holders)
        return await loop.control.run(
            reap_once, self._database, holders, actor=f"reaper of worker {loop.slot.worker[:8]}",
            alive=alive, lease=lease,
        )  # fmt: skip

    async def _alive(self, holders: Collection[str]) -> set[str]:
        """Which of *holders* give a sign of life; this process does."""
        alive = await self._loop.control.run(self._loop.slot.living_neighbours)
        if self._loop.link is not None:
            alive |= await self._loop.link.alive(holders)
        return alive

    def _say(self, reclaimed: int, recovered: int) -> None:
        if reclaimed:
            logger.warning(
                "Reclaimed %d shard(s) whose lease had ended", reclaimed, extra={"action": "reaped"}
            )
        if recovered:
            logger.warning(
                "Took back %d shard(s) of a process that died on this machine", recovered,
                extra={"action": "recovered"},
            )  # fmt: skip
