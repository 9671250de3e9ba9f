"""The committer: groups finished pages into transactions, off the event loop.

Everything an owner says of a shard (page, held page, finish, release) passes here
in order, so a finish cannot overtake its pages. One transaction runs at a time; what
arrives meanwhile forms the next group. A group goes when one of its limits is reached
(pages, items, delay), or when it is pressing: without a journal a page keeps its place
until its COMMIT, so once most places wait for one, waiting longer would only make the
downloader idle.

With a journal every record is kept there first. What is in it need not be committed by this
process: if the crawl stops before the database took everything, it is left for the next start.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from time import perf_counter
from typing import Any

from scrapy.utils.asyncio import call_later
from scrapy.utils.defer import maybe_deferred_to_future
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from scrapy_resume import clock, faults
from scrapy_resume.commitqueue import CommitQueue, Group, GroupLimits
from scrapy_resume.commitstats import count_rows
from scrapy_resume.exceptions import JournalFailed, StoreUnavailable
from scrapy_resume.journalling import Journalling
from scrapy_resume.outage import Outage
from scrapy_resume.page import ErrorKind, Trouble, Where
from scrapy_resume.patience import Patience
from scrapy_resume.store.checkpoints import CommitResult, Finish, PageRecord, Record, Release
from scrapy_resume.store.leases import ClaimedShard
from scrapy_resume.submission import Outcome, Submission, outcomes_of
from scrapy_resume.threads import StoreThread
from scrapy_resume.watermark import Position

__all__ = ["Committer", "GroupLimits", "LostPage", "Outcome"]

logger = logging.getLogger(__name__)


Commit = Callable[[Sequence[Record], dict[int, Position]], CommitResult]
LostPage = tuple[PageRecord, "ClaimedShard | None"]
Salvage = Callable[[Sequence[LostPage]], None]


class Committer:
    """Takes records, stores them in groups, and tells each submitter what became of his.

    *salvage* is given the pages of a shard that turned out to be another's, on the commit
    thread; *stored* is told of each transaction.
    """

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
        salvage: Salvage | None = None,
        stored: Callable[[CommitResult], None] | None = None,
    ) -> None:
        self.positions: dict[int, Position] = {}
        self.journalling: Journalling | None = None
        self._commit, self._salvage = commit, salvage
        self._pressing, self._inc, self._on_failure = pressing, inc_stat, on_failure
        self._tell_stored = stored
        self.patience: Patience[Any] = Patience(
            "commits", thread, outage, seconds=patience, inc_stat=inc_stat
        )
        self._queue = CommitQueue(limits)
        self._running = self._eager = False
        self._broken_by: BaseException | None = None
        self._deadline: float | None = None
        self._timer: Any = None
        self._idle: list[Deferred[None]] = []

    def keep_in(self, journalling: Journalling) -> None:
        """From now on every record goes into a journal first."""
        self.journalling = journalling
        journalling.ready = self._enqueue

    def hold(self, claimed: ClaimedShard) -> None:
        """A shard was claimed, and stands where the claim found it."""
        self.positions[claimed.id] = claimed.position
        if self.journalling is not None:
            self.journalling.hold(claimed)

    def lose(self, shard_id: int) -> None:
        """A shard is another's by now."""
        if self.journalling is not None:
            self.journalling.lose(shard_id)

    def submit(self, record: Record, let_go: Callable[[], None] | None = None) -> Deferred[Outcome]:
        """Queue *record*; the Deferred fires once it is durable, or known not to be.

        *let_go* is called once the journal holds it, perhaps long before.
        """
        one = Submission.of(record, let_go)
        if self.journalling is not None:
            self.journalling.take(one)
        elif self._broken_by is not None and one.page is not None:
            one.resolve(Outcome("unstored"))
        else:
            self._enqueue((one,))
        return one.done

    def consider(self) -> None:
        """Start a commit if it is time; called again whenever a page stops being read."""
        if self._running:
            return
        self._leave_if_late()
        if not self._queue and not self._unkept:
            return
        if self._is_time():
            self._go()
        elif self._timer is None:
            self._timer = call_later(self._queue.limits.delay, self._go)

    def hurry(self, within: float | None = None) -> None:
        """From now on store without waiting for company: the crawl is stopping.

        An unreachable database is waited for *within* seconds more at most, and what is in
        the journal is committed for as long.
        """
        self._eager = True
        if within is not None:
            self.patience.hurry(within)
            self._deadline = self._deadline or clock.monotonic() + within
        if self.journalling is not None:
            self.journalling.hurry()
        self.consider()

    async def drained(self) -> None:
        """Wait until everything submitted is stored, left or given up."""
        self.hurry()
        if self._busy:
            waiting: Deferred[None] = Deferred()
            self._idle.append(waiting)
            await maybe_deferred_to_future(waiting)

    # What waits

    @property
    def _unkept(self) -> deque[Submission]:
        return deque() if self.journalling is None else self.journalling.unkept

    @property
    def _busy(self) -> bool:
        journal = self.journalling is not None and self.journalling.busy
        return self._running or bool(self._queue) or journal

    def _enqueue(self, ones: Iterable[Submission]) -> None:
        broken = self.journalling is not None and self._broken_by is not None
        for one in ones:
            if broken or self._queue.leaves(one):
                self._leave([one])
            else:
                self._queue.add(one)
        self.consider()
        self._maybe_idle()

    def _is_time(self) -> bool:
        queue, unkept = self._queue, sum(one.pages for one in self._unkept)
        if queue.is_full(unkept) or self._eager or queue.limits.delay == 0:
            return True
        return self._pressing(queue.places + unkept)

    def _leave_if_late(self) -> None:
        """Leave what the journal holds to the next start, once the crawl's grace is used up."""
        if self.journalling is None:
            return
        if self._broken_by is not None:
            self._leave(self._everything())
        elif self._deadline is not None and clock.monotonic() >= self._deadline:
            self._leave(self._queue.leave())

    def _everything(self) -> Group:
        unkept = self._unkept
        everything = [*self._queue.clear(), *unkept]
        unkept.clear()
        return everything

    def _leave(self, leaving: Group) -> None:
        if self.journalling is not None:
            self.journalling.leave(leaving)
        for one in leaving:
            one.resolve(Outcome("left" if _is_safe(one) else "unstored"))

    # One group

    def _go(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
        if self._running or not (group := self._queue.take(self._unkept)):
            return
        self._running = True
        if self.journalling is None or all(one.record is not None for one in group):
            self._store(group, group)
        else:
            back = self.journalling.bring_back(group)
            back.addCallback(self._brought_back, group)
            back.addErrback(self._broken, group)

    def _brought_back(self, errors: Sequence[JournalFailed | None], group: Group) -> None:
        """Pages that the journal cannot give back are read again."""
        for one, error in zip(group, errors, strict=True):
            if error is not None:
                text = str(error)
                trouble = Trouble(Where.PAGE, ErrorKind.RETRYABLE, type(error).__name__, text)
                one.resolve(Outcome("refused", trouble=trouble))
        self._store([one for one in group if one.record is not None], group)

    def _store(self, group: Group, whole: Group) -> None:
        """Commit *group*, what can be committed of the *whole* one."""
        records = [one.record for one in group if one.record is not None]
        if not records:
            self._settle(None, whole, CommitResult())
            return
        positions = {record.shard_id: self.positions[record.shard_id] for record in records}
        started = perf_counter()
        stored = self.patience.call(self._commit, records, positions)
        stored.addCallback(self._stored, group, whole, started)
        stored.addErrback(self._broken, whole)

    def _stored(self, result: CommitResult, group: Group, whole: Group, started: float) -> None:
        faults.point("commit.acked")
        self._inc("commit/count")
        self._inc("commit/seconds", perf_counter() - started)
        count_rows(self._inc, result)
        self.positions.update(result.positions)
        outcomes = outcomes_of(group, result)
        lost = self._lost(group, outcomes)
        for one, outcome in zip(group, outcomes, strict=True):
            one.resolve(outcome)
        if self._tell_stored is not None:
            self._tell_stored(result)
        if not lost or self._salvage is None:
            self._settle(None, whole, result)
        else:
            salvaged = self.patience.call(self._salvage, lost)
            salvaged.addErrback(self._not_salvaged)
            salvaged.addCallback(self._settle, whole, result)
            salvaged.addErrback(self._broken, whole)

    def _lost(self, group: Group, outcomes: Sequence[Outcome]) -> list[LostPage]:
        """The pages in the journal whose shards turned out to be others'."""
        if self.journalling is None:
            return []
        return [
            (one.record, self.journalling.base_of(one.shard_id))
            for one, outcome in zip(group, outcomes, strict=True)
            if one.kept and outcome.status == "fenced" and isinstance(one.record, PageRecord)
        ]

    def _not_salvaged(self, failure: Failure) -> None:
        logger.warning(
            "Pages of a shard that is another's by now could not be salvaged: %s", failure.value,
            extra={"action": "not_salvaged"},
        )  # fmt: skip
        if isinstance(failure.value, StoreUnavailable):
            failure.raiseException()  # the next start may

    def _settle(self, _: None, whole: Group, result: CommitResult) -> None:
        if self.journalling is not None:
            over = {
                one.shard_id: one.token for one in whole
                if one.shard_id in result.fenced or isinstance(one.record, (Finish, Release))
            }  # fmt: skip
            self.journalling.settle(whole, result.positions, over)
        self._running = False
        self.consider()
        self._maybe_idle()

    def _broken(self, failure: Failure, whole: Group) -> None:
        self._running = False
        rest = [*whole, *self._everything()]
        if self._broken_by is None:
            self._broken_by = failure.value or StoreUnavailable("unknown")
            safe = self.journalling is not None and all(map(_is_safe, rest))
            if not (safe and self._eager and isinstance(self._broken_by, StoreUnavailable)):
                self._on_failure(self._broken_by)
        self._leave(rest)
        self._maybe_idle()

    def _maybe_idle(self) -> None:
        if not self._busy:
            idle, self._idle = self._idle, []
            for waiting in idle:
                waiting.callback(None)


def _is_safe(one: Submission) -> bool:
    """Whether the next start finds it, or makes up for it."""
    return one.kept or one.is_mere_stop
