"""The committer: groups finished pages into transactions, off the event loop.

Everything an owner says of a shard (page, held page, finish, release) passes here
in order, so a finish cannot overtake its pages. One transaction runs at a time; what
arrives meanwhile forms the next group. A group goes when one of its limits is reached
(pages, items, delay), or when it is pressing: a page keeps its slot until its COMMIT,
so once most slots wait for one, waiting longer would only make the downloader idle.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from scrapy.utils.asyncio import call_later
from scrapy.utils.defer import maybe_deferred_to_future
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from scrapy_resume import faults
from scrapy_resume.commitstats import count_rows
from scrapy_resume.exceptions import StoreUnavailable
from scrapy_resume.outage import Outage
from scrapy_resume.page import Trouble
from scrapy_resume.patience import Patience
from scrapy_resume.store.checkpoints import CommitResult, PageFailure, PageRecord, Record
from scrapy_resume.threads import StoreThread
from scrapy_resume.watermark import Position


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one record: committed, fenced (not ours any more), refused or unstored.

    *trouble* says which row the database refused when the page was left out because
    records hold (``RESUME_ON_FAILED_RECORD="hold"``).
    """

    status: str
    position: Position | None = None
    trouble: Trouble | None = None


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """When a group commit goes; *delay* in seconds."""

    pages: int
    items: int
    delay: float


Commit = Callable[[Sequence[Record], dict[int, Position]], CommitResult]


class Committer:
    """Takes records, stores them in groups, and tells each submitter what became of his."""

    def __init__(
        self,
        thread: StoreThread,
        commit: Commit,
        limits: GroupLimits,
        *,
        pressing: Callable[[int], bool],
        inc_stat: Callable[..., None],
        on_failure: Callable[[BaseException], None],
        patience: float,
        outage: Outage,
    ) -> None:
        self.positions: dict[int, Position] = {}
        self._commit, self._limits = commit, limits
        self._pressing, self._inc, self._on_failure = pressing, inc_stat, on_failure
        self._patience: Patience[CommitResult] = Patience(
            "commits", thread, outage, seconds=patience, inc_stat=inc_stat
        )
        self._queue: deque[tuple[Record, Deferred[Outcome]]] = deque()
        self._pages = self._items = 0
        self._running = self._eager = False
        self._broken_by: BaseException | None = None
        self._timer: Any = None
        self._idle: list[Deferred[None]] = []

    def submit(self, record: Record) -> Deferred[Outcome]:
        """Queue *record*; the Deferred fires once it is durable, or known not to be."""
        deferred: Deferred[Outcome] = Deferred()
        if self._broken_by is not None and isinstance(record, (PageRecord, PageFailure)):
            deferred.callback(Outcome("unstored"))
            return deferred
        self._queue.append((record, deferred))
        if isinstance(record, PageRecord):
            self._pages += 1
            self._items += len(record.rows)
        self.consider()
        return deferred

    def consider(self) -> None:
        """Start a commit if it is time; called again whenever a page stops being read."""
        if self._running or not self._queue:
            return
        limits = self._limits
        full = self._pages >= limits.pages or self._items >= limits.items
        if full or self._eager or limits.delay == 0 or self._pressing(self._pages):
            self._go()
        elif self._timer is None:
            self._timer = call_later(limits.delay, self._go)

    def hurry(self, within: float | None = None) -> None:
        """From now on store without waiting for company: the crawl is stopping.

        An unreachable database is waited for *within* seconds more at most.
        """
        self._eager = True
        if within is not None:
            self._patience.hurry(within)
        self.consider()

    async def drained(self) -> None:
        """Wait until everything submitted is stored or given up."""
        self.hurry()
        if self._running or self._queue:
            waiting: Deferred[None] = Deferred()
            self._idle.append(waiting)
            await maybe_deferred_to_future(waiting)

    def _go(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
        if not self._running and self._queue:
            self._running = True
            self._store(self._take())

    def _take(self) -> list[tuple[Record, Deferred[Outcome]]]:
        group: list[tuple[Record, Deferred[Outcome]]] = []
        pages = 0
        while self._queue and pages < self._limits.pages:
            record, deferred = self._queue.popleft()
            if isinstance(record, PageRecord):
                pages += 1
                self._items -= len(record.rows)
            group.append((record, deferred))
        self._pages -= pages
        return group

    def _store(self, group: list[tuple[Record, Deferred[Outcome]]]) -> None:
        records = [record for record, _ in group]
        positions = {record.shard_id: self.positions[record.shard_id] for record in records}
        started = perf_counter()
        stored = self._patience.call(self._commit, records, positions)
        stored.addCallback(self._stored, group, started)
        stored.addErrback(self._broken, group)

    def _stored(self, result: CommitResult, group: list[Any], started: float) -> None:
        faults.point("commit.acked")
        self._inc("commit/count")
        self._inc("commit/seconds", perf_counter() - started)
        count_rows(self._inc, result)
        self.positions.update(result.positions)
        held = {(shard_id, page): trouble for shard_id, page, trouble in result.held}
        newest: dict[int, int] = {}
        for record, _ in group:
            newest[record.shard_id] = max(record.fencing_token, newest.get(record.shard_id, 0))
        self._running = False
        for record, deferred in group:
            stale = record.fencing_token < newest[record.shard_id]
            outcome = Outcome("fenced") if stale else _outcome(record, result, held)
            deferred.callback(outcome)
        self.consider()
        self._maybe_idle()

    def _broken(self, failure: Failure, group: list[Any]) -> None:
        self._running = False
        lost = [*group, *self._queue]
        self._queue.clear()
        self._pages = self._items = 0
        if self._broken_by is None:
            self._broken_by = failure.value or StoreUnavailable("unknown")
            self._on_failure(self._broken_by)
        for _, deferred in lost:
            if not deferred.called:
                deferred.callback(Outcome("unstored"))
        self._maybe_idle()

    def _maybe_idle(self) -> None:
        if not self._running and not self._queue:
            idle, self._idle = self._idle, []
            for waiting in idle:
                waiting.callback(None)


def _outcome(record: Record, result: CommitResult, held: dict[Any, Trouble]) -> Outcome:
    if record.shard_id in result.fenced:
        return Outcome("fenced")
    if isinstance(record, PageRecord) and (record.shard_id, record.page) in held:
        return Outcome("refused", trouble=held[record.shard_id, record.page])
    return Outcome("committed", result.positions.get(record.shard_id))
