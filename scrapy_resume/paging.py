"""How the pages of one held shard are walked, retried, held and ended.

The page flow hands in what became of each page (:class:`PageEnd`) and gets back what to
do (:data:`Action`). Which pages come next, and when a list has ended, differs by kind of
shard: see ``walks.py``.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from scrapy_resume.loopguard import LoopGuard
from scrapy_resume.page import Decision, ErrorKind, Trouble
from scrapy_resume.store.checkpoints import Finish, PageRecord, Release
from scrapy_resume.store.leases import ClaimedShard
from scrapy_resume.watermark import Position


@dataclass(frozen=True, slots=True)
class PagePolicy:
    """The settings and spider attributes that decide over failed and empty pages."""

    in_flight: int = 4
    retries: int = 3
    retry_delay: float = 1.0
    hold_pages: bool = True
    backoff_base: float = 5.0
    backoff_max: float = 1800.0
    stop_on_empty: int = 2
    counts_rows: bool = False
    longest_wait: float = 60.0
    blocked_wait: float = 30.0
    blocked_wait_max: float = 1800.0


@dataclass(frozen=True, slots=True)
class PageEnd:
    """What became of one attempt at a page.

    *record* is ready to commit when the decision is COMPLETE. *rows* counts the
    items it handed in; *content* is a digest of what it yielded ("" for nothing).
    """

    number: int
    decision: Decision
    trouble: Trouble | None = None
    record: PageRecord | None = None
    rows: int = 0
    empty: bool = False
    content: str = ""
    next_cursor: str | None = None
    end_reason: str | None = None
    stated_total: int | None = None


@dataclass(frozen=True, slots=True)
class Commit:
    """Store this page."""

    record: PageRecord


@dataclass(frozen=True, slots=True)
class Retry:
    """Ask for the page again after *delay* seconds; call ``retry_due`` then."""

    number: int
    delay: float


@dataclass(frozen=True, slots=True)
class Hold:
    """Put the page on record as failed; the watermark stays below it."""

    number: int
    trouble: Trouble
    attempts: int


@dataclass(frozen=True, slots=True)
class SetAside:
    """Quarantine the page and complete it (``RESUME_ON_FAILED_PAGE="quarantine"``)."""

    number: int
    trouble: Trouble
    attempts: int


@dataclass(frozen=True, slots=True)
class Discard:
    """Forget this page: it lies past the end, or its predecessor is read again."""

    number: int


Action = Commit | Retry | Hold | SetAside | Discard


@dataclass(slots=True)
class Walk(ABC):
    """The common part: pages in flight, retries in place, and how a shard ends."""

    claimed: ClaimedShard
    policy: PagePolicy
    jitter: Callable[[], float] = random.random
    position: Position = field(init=False)
    guard: LoopGuard = field(init=False)
    last_page: int | None = field(init=False)
    in_flight: set[int] = field(default_factory=set)
    ready: list[int] = field(default_factory=list)
    held: dict[int, Trouble] = field(default_factory=dict)
    attempts: dict[int, int] = field(default_factory=dict)
    end_reason: str | None = None
    failure: str | None = None
    doubted: set[int] = field(default_factory=set)
    blocked: Trouble | None = None
    blocked_before: int = 0
    leaving: bool = False
    kept: set[int] = field(default_factory=set)  # in the journal, not in the database
    _counted: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.position = self.claimed.position
        self.last_page = self.claimed.shard.last_page
        self.guard = LoopGuard.load(self.position.digests)
        self._start()

    def _start(self) -> None:
        """Set up the walk's own state."""

    @abstractmethod
    def _fresh(self) -> int | None:
        """The next page never opened by this claim, or None."""

    @abstractmethod
    def _complete(self, end: PageEnd) -> list[Action]:
        """A page is complete or missing."""

    @abstractmethod
    def _unread(self) -> bool:
        """Whether the shard has pages, as far as is known, that are not committed."""

    def _unsettled(self) -> int:
        """How many pages are being read, or wait to be stored; doubted ones do neither."""
        return len(self.in_flight) - len(self.doubted)

    def _slots_taken(self) -> int:
        """How many pages count against ``RESUME_PAGES_IN_FLIGHT``; those in the journal do not."""
        return self._unsettled() - len(self.kept)

    def _stranded(self) -> list[int]:
        """Forget the pages that wait for others, now that those will not come."""
        return []

    def cursor_of(self, number: int) -> str | None:
        """The JSON text that asks for page *number*; None: its number does."""
        return None

    def read(self, number: int, next_cursor: str | None, end_reason: str | None) -> None:
        """The list callback of page *number* is through without an error."""

    def next_page(self) -> int | None:
        """Open one more page: its number, or None if none may be opened now."""
        if not self._goes_on:
            return None
        number = self.ready.pop(0) if self._may_read_again else None
        if number is None and self._slots_taken() < self.policy.in_flight:
            number = self._fresh()
        if number is not None:
            self.kept.discard(number)
            self.in_flight.add(number)
            self.attempts[number] = self.attempts.get(number, 0) + 1
        return number

    def retry_due(self, number: int) -> None:
        """The delay of a :class:`Retry` is over."""
        if number in self.in_flight:
            self.ready.append(number)

    def closed(self, end: PageEnd) -> list[Action]:
        """A page's attempt is over; what to do now, in this order."""
        if end.stated_total is not None:
            self.guard = replace(self.guard, stated_total=end.stated_total)
        if end.decision is Decision.FAILED:
            assert end.trouble is not None
            return self._failed(end.number, end.trouble)
        actions = self._complete(end)
        if self.blocked is not None or self.leaving:
            actions += map(Discard, self._stranded())
        return actions

    def leave(self) -> list[Action]:
        """The operator wants the shard back: open no more pages; returns what waits in vain."""
        self.leaving = True
        return [Discard(number) for number in self._stranded()]

    def block(self, trouble: Trouble) -> list[Action]:
        """The site is blocked: open no more pages; returns what waits in vain."""
        self.blocked = trouble
        return [Discard(number) for number in self._stranded()]

    def journalled(self, number: int) -> None:
        """A submitted page is safe in the journal: another one may have its place."""
        if number in self.in_flight:
            self.kept.add(number)

    def moved(self, position: Position | None) -> None:
        """A commit moved the shard."""
        if position is not None and position.version > self.position.version:
            self.position = position

    def settled(self, number: int, position: Position | None) -> None:
        """A page left its place: committed (with the new *position*), held or discarded."""
        self.in_flight.discard(number)
        self.kept.discard(number)
        self.attempts.pop(number, None)
        self._counted.pop(number, None)
        self.doubted.discard(number)
        if number in self.ready:
            self.ready.remove(number)
        self.moved(position)

    @property
    def rows(self) -> int:
        """How many rows of the list were read, by this claim and those before it."""
        return self.guard.rows

    def _count(self, number: int, rows: int) -> None:
        self._counted[number] = rows
        self.guard = replace(self.guard, rows=self.guard.rows + rows)

    def refused(self, number: int, trouble: Trouble) -> list[Action]:
        """The commit left the page out: a row was refused, or the page before it is missing."""
        if number not in self.in_flight:
            return []
        self.kept.discard(number)
        self._count(number, -self._counted.get(number, 0))
        return self._failed(number, trouble)

    def _failed(self, number: int, trouble: Trouble) -> list[Action]:
        tries = self.attempts.get(number, 1)
        if self.blocked is not None and trouble.kind is ErrorKind.BLOCKED:
            return [Discard(number)]  # it says nothing that the shard's reason does not
        if self.leaving and self._in_place(trouble):
            return [Discard(number)]  # whoever reads the shard on tries it again
        if self.tries_again(number, trouble):
            delay = self.policy.retry_delay * 2.0 ** (tries - 1) * self.jitter()
            return [Retry(number, delay if trouble.retry_after is None else trouble.retry_after)]
        return self._give_up(number, trouble, tries)

    def tries_again(self, number: int, trouble: Trouble) -> bool:
        """Whether a page that failed so is asked for again in place."""
        return self._in_place(trouble) and self.attempts.get(number, 1) <= self.policy.retries

    def _in_place(self, trouble: Trouble) -> bool:
        kind = trouble.kind in (ErrorKind.RETRYABLE, ErrorKind.CODE)
        soon = (trouble.retry_after or 0) <= self.policy.longest_wait
        return kind and soon and self.blocked is None

    def _give_up(self, number: int, trouble: Trouble, tries: int) -> list[Action]:
        self.held[number] = trouble
        return [Hold(number, trouble, tries)]

    @property
    def suspect(self) -> bool:
        """Whether the shard may hold a page that kills its process: no commit cleared it yet."""
        return self.claimed.suspect and self.position.version == self.claimed.position.version

    @property
    def opening(self) -> bool:
        """Whether more pages of the shard may still be opened, now or later."""
        return self._goes_on and (bool(self.ready) or self._fresh() is not None)

    @property
    def may_open(self) -> bool:
        """Whether a page may be opened now: :meth:`next_page` would give one."""
        free = self._slots_taken() < self.policy.in_flight
        return self._goes_on and (self._may_read_again or (free and self._fresh() is not None))

    @property
    def _may_read_again(self) -> bool:
        """Whether a page that waits for that may be: many may, whose commit was refused after
        they had given their places to others."""
        return bool(self.ready) and self._slots_taken() - len(self.ready) < self.policy.in_flight

    @property
    def _goes_on(self) -> bool:
        return self.failure is None and self.blocked is None and not self.leaving

    @property
    def idle(self) -> bool:
        """Nothing is being read and nothing may be opened: :meth:`result` is the last word."""
        return not self._unsettled() and (not self._goes_on or self._fresh() is None)

    def result(self) -> Finish | Release:
        """What to say of the shard once the walk is idle."""
        ids = (self.claimed.id, self.claimed.fencing_token)
        if self.failure is not None:
            return Finish(*ids, "failed", self.failure)
        if self.blocked is not None and (self.held or self._unread()):
            return self._blocked(*ids, self.blocked)
        if self.leaving and self._unread():
            return Release(*ids, "released: an operator wanted it back")
        if self.held:
            return self._release(*ids)
        stated = self.guard.stated_total
        if stated is not None and self.rows < stated:
            reason = f"the site states {stated} rows and {self.rows} were read"
            return Finish(*ids, "failed", reason)
        read = f"all pages to {self.position.cur_page} read"
        return Finish(*ids, "done", self.end_reason or read)

    def _blocked(self, shard_id: int, token: int, trouble: Trouble) -> Release:
        page = self.position.cur_page + 1
        kind, delay = ErrorKind.BLOCKED.value, self._backoff(trouble)
        reason = f"page {page}: the site is blocked: {trouble.error}"
        return Release(shard_id, token, reason, kind, delay, False, trouble.error)

    def _release(self, shard_id: int, token: int) -> Finish | Release:
        number, trouble = min(self.held.items(), key=lambda held: (_due_order(held[1]), held[0]))
        reason, deep = f"page {number}: {trouble.error_class}: {trouble.error}", self._depth()
        if deep is not None:
            named = self.held[deep]
            reason = f"depth limit at page {deep}: {named.error_class}: {named.error}"
        blocked = trouble.kind is ErrorKind.BLOCKED
        if self._tries >= self.claimed.max_attempts and not blocked:
            tries = self._tries
            return Finish(shard_id, token, "failed", f"{reason} (given up after {tries} attempts)")
        return Release(
            shard_id, token, reason, trouble.kind.value, self._backoff(trouble),
            not blocked, f"{trouble.error_class}: {trouble.error}",
        )  # fmt: skip

    def _depth(self) -> int | None:
        """The page from which on the site refuses to list more, if it does."""
        number = self.position.highest + 1
        trouble = self.held.get(number)
        refused = trouble is not None and trouble.kind is ErrorKind.PERMANENT
        if trouble is None or not refused or not trouble.is_wrong_request:
            return None
        return number if number > self.claimed.shard.first_page else None

    @property
    def _tries(self) -> int:
        """Attempts in a row without progress, this one included."""
        progress = self.position.version > self.claimed.position.version
        return 1 if progress else self.claimed.attempt_count

    def _backoff(self, trouble: Trouble) -> float | None:
        policy = self.policy
        if trouble.kind is ErrorKind.CODE:
            return None
        if trouble.kind is ErrorKind.PERMANENT:
            return policy.backoff_max
        if trouble.kind is ErrorKind.BLOCKED:
            wait = policy.blocked_wait * 2.0 ** min(self.blocked_before, 60)
            return min(max(wait, trouble.retry_after or 0), policy.blocked_wait_max)
        tries = min(max(self._tries - 1, 0), 60)
        backoff = min(policy.backoff_base * 2.0**tries, policy.backoff_max) * self.jitter()
        return max(backoff, min(trouble.retry_after or 0, policy.backoff_max))


def _due_order(trouble: Trouble) -> int:
    """What may be tried again soonest comes first: it decides when the shard falls due."""
    kinds = (ErrorKind.RETRYABLE, ErrorKind.BLOCKED, ErrorKind.PERMANENT, ErrorKind.CODE)
    return kinds.index(trouble.kind)
