"""Journalling: what is said of shards goes into the journal first, then into the database.

What arrives while one append runs forms the next one, and shares its fsync. Once a page is
in the journal a crash cannot lose it any more: its place among the pages in flight is free,
and the commit follows when the database takes it. The database may be away meanwhile.

A journal that cannot be written, on a full disk say, halts the crawl. What was read is
committed as if there were no journal, and keeps its place until then; the journal is tried
again, and at its first success the crawl goes on.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from scrapy.utils.asyncio import call_later
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from scrapy_resume import clock
from scrapy_resume.backlog import Backlog
from scrapy_resume.exceptions import JournalFailed
from scrapy_resume.journal import Journal
from scrapy_resume.patience import Waits
from scrapy_resume.recordjournal import Place, RecordJournal
from scrapy_resume.store.checkpoints import PageRecord
from scrapy_resume.store.leases import ClaimedShard
from scrapy_resume.submission import Submission
from scrapy_resume.threads import StoreThread
from scrapy_resume.watermark import Position

logger = logging.getLogger(__name__)

COMPANY = 0.025  # seconds that a record waits for others to share its fsync
_IDLE = 1.0  # seconds after which what was settled is written by itself

Moved = dict[int, ClaimedShard | None]


class Journalling:
    """Keeps the records of one crawl in its journal, and remembers which are settled.

    A journal that fails is tried for *patience* seconds.
    """

    def __init__(
        self,
        thread: StoreThread,
        journal: Journal,
        backlog: Backlog,
        *,
        pressing: Callable[[int], bool],
        wake: Callable[[], None],
        inc_stat: Callable[..., None],
        on_failure: Callable[[BaseException], None],
        patience: float,
    ) -> None:
        self.ready: Callable[[Sequence[Submission]], None] = lambda kept: None
        self.backlog, self.failing = backlog, False
        self._waiting: deque[Submission] = deque()
        self._thread, self._journal = thread, RecordJournal(journal)
        self._patience = patience
        self._pressing, self._wake = pressing, wake
        self._inc, self._on_failure = inc_stat, on_failure
        self._held: dict[int, ClaimedShard] = {}
        self._gone: set[int] = set()  # shards not held any more, of which something waits
        self._first_left: int | None = None
        self._running = self._eager = self._said = False
        self._timer: Any = None
        self._retry: Any = None
        self._idle: Any = None
        self._failed_since = 0.0
        self._waits = Waits()

    @property
    def path(self) -> str:
        """Where the journal is."""
        return self._journal.path

    @property
    def halted(self) -> bool:
        """Whether nothing more may be asked for: what would come of it could not be kept."""
        return self.backlog.full or self.failing

    @property
    def busy(self) -> bool:
        """Whether something is on its way into the journal, or waits for that."""
        return self._running or bool(self._waiting)

    @property
    def unkept(self) -> deque[Submission]:
        """What may be committed although the journal, which fails, does not hold it; in order."""
        return self._waiting if self.failing and not self._running else deque()

    def base_of(self, shard_id: int) -> ClaimedShard | None:
        """The shard as it was claimed, where it stands now; None if it is not held."""
        return self._held.get(shard_id)

    def take(self, submission: Submission) -> None:
        """Keep *submission*; it is handed to :attr:`ready` once it is kept."""
        self._waiting.append(submission)
        self.consider()

    def consider(self) -> None:
        """Begin to append if it is time."""
        if self._running or not self._waiting:
            return
        if self.failing:
            self.ready(())
        elif self._eager or self._pressing(sum(one.pages for one in self._waiting)):
            self._go()
        elif self._timer is None:
            self._timer = call_later(COMPANY, self._go)

    def hurry(self) -> None:
        """From now on nothing waits for company."""
        self._eager = True
        self.consider()

    def hold(self, claimed: ClaimedShard) -> None:
        """A shard was claimed: keep where it stands, should the database be away at a start."""
        self._held[claimed.id] = claimed
        self._gone.discard(claimed.id)
        self._thread.post(self._journal.trim, 0, {claimed.id: claimed})
        self._write_when_idle()

    def lose(self, shard_id: int) -> None:
        """A shard is another's: nothing is read on from its base any more."""
        self._gone.add(shard_id)
        self._thread.post(self._journal.trim, 0, {shard_id: None})
        self._forget_gone()

    def settle(
        self,
        submissions: Sequence[Submission],
        positions: Mapping[int, Position],
        over: Mapping[int, int],
    ) -> None:
        """These are committed, or never will be. *positions* are where their shards stand now,
        *over* names the shards, with their tokens, that are not held any more."""
        bases: Moved = {}
        for one in submissions:
            self._advance(one, positions, bases)
            if one.kept:
                self.backlog.remove(one)
        for shard_id, token in over.items():
            held = self._held.get(shard_id)
            if held is None or held.fencing_token == token:
                self._gone.add(shard_id)
                bases[shard_id] = None
        self._forget_gone()
        upto = max((one.seq for one in submissions if one.seq is not None), default=0)
        if self._first_left is not None:
            upto = min(upto, self._first_left - 1)
        if upto or bases:
            self._thread.post(self._journal.trim, upto, bases)
            self._write_when_idle()
        self.backlog.look()

    def leave(self, submissions: Sequence[Submission]) -> None:
        """These are for the next start: nothing from the first of them on is forgotten."""
        seqs = [one.seq for one in submissions if one.seq is not None]
        if seqs and self._first_left is None:
            self._first_left = min(seqs)

    def bring_back(self, group: Sequence[Submission]) -> Deferred[list[JournalFailed | None]]:
        """Read the records that were dropped from memory; those that are lost say why."""
        return self._thread.call(self._journal.load, group)

    async def close(self, within: float) -> None:
        """Write what is settled and let the file go, unless that takes longer than *within*."""
        for timer in (self._timer, self._retry, self._idle):
            if timer is not None:
                timer.cancel()
        self._timer = self._retry = self._idle = None
        self._thread.post(self._journal.close)
        await self._thread.stop(within)

    def _go(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
        if self._running or not self._waiting:
            return
        batch = list(self._waiting)
        self._waiting.clear()
        self._running = True
        appended = self._thread.call(self._journal.append, batch)
        appended.addCallbacks(self._appended, self._not_appended, (batch,), {}, (batch,))
        appended.addErrback(self._gone_wrong)

    def _gone_wrong(self, failure: Failure) -> None:
        self._on_failure(failure.value or JournalFailed("unknown"))

    def _appended(self, places: Sequence[Place | None], batch: Sequence[Submission]) -> None:
        self._running = False
        for one, place in zip(batch, places, strict=True):
            if place is not None:
                one.seq, one.size = place
                self.backlog.add(one)
        if any(places):
            self._inc("journal/syncs")
            self._works()
        for one in batch:
            if one.kept and one.let_go is not None:
                one.let_go()
            one.let_go = None
        self.backlog.look()
        self.ready(batch)
        self.consider()

    def _advance(
        self,
        one: Submission,
        positions: Mapping[int, Position],
        bases: Moved,
    ) -> None:
        held, position = self._held.get(one.shard_id), positions.get(one.shard_id)
        if held is None or position is None or held.fencing_token != one.token:
            return
        if one.shard_id in self._gone:
            return
        if isinstance(one.record, PageRecord) and one.record.ends:
            held = replace(held, shard=replace(held.shard, last_page=one.record.page))
        self._held[one.shard_id] = bases[one.shard_id] = replace(held, position=position)

    def _forget_gone(self) -> None:
        """Where a shard stood is known until the last of it is settled, which may be lost."""
        for shard_id in [one for one in self._gone if one not in self.backlog.of_shard]:
            self._gone.discard(shard_id)
            self._held.pop(shard_id, None)

    def _write_when_idle(self) -> None:
        if self._idle is None:
            self._idle = call_later(_IDLE, self._is_idle)

    def _is_idle(self) -> None:
        self._idle = None
        if not self._running:
            self._thread.post(self._journal.flush)

    # When it cannot be written

    def _not_appended(self, failure: Failure, batch: Sequence[Submission]) -> None:
        self._running = False
        self._waiting.extendleft(reversed(batch))
        self._fail(failure.value or JournalFailed("unknown"))

    def _fail(self, error: BaseException) -> None:
        now = clock.monotonic()
        if not self._said:
            self._said, self._failed_since = True, now
            self._inc("journal/failed")
            logger.error(
                "%s; nothing more is asked for until it can be written, and what was read goes"
                " to the database at once", error, extra={"action": "journal_failed"},
            )  # fmt: skip
        self.failing = True
        if now - self._failed_since >= self._patience:
            self._on_failure(error)
        elif self._retry is None:
            self._retry = call_later(self._waits.next(), self._try_again)
        self.ready(())

    def _try_again(self) -> None:
        self._retry = None
        if self._waiting:
            self._go()
        elif not self._running:
            self._running = True
            probed = self._thread.call(self._journal.probe)
            probed.addCallbacks(self._probed, self._not_appended, (), {}, ((),))

    def _probed(self, _: None) -> None:
        """A little could be written: whether a page can is seen with the next one."""
        self._running = self.failing = False
        self._wake()
        self.ready(())  # whoever waits until nothing is on its way
        self.consider()

    def _works(self) -> None:
        if self._said:
            self._said = self.failing = False
            self._waits = Waits()
            logger.warning(
                "The journal %s can be written again: the crawl goes on", self.path,
                extra={"action": "journal_works"},
            )  # fmt: skip
            self._wake()
