"""The three ways to walk a shard's pages.

* :class:`~scrapy_resume.boundedwalk.BoundedWalk`: the last page is stated.
* :class:`OpenEndedWalk`: nobody knows the last page. Pages are fetched at most
  ``stop_on_empty`` past the highest one that held items, and judged in page order:
  an empty page is committed only when a later one holds items. A page that answers
  with an end status counts as an empty one, but below a page with items it is held.
* :class:`ChainWalk`: each page names the next. Commits are strictly in order and a
  failed page always holds.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from scrapy_resume.boundedwalk import BoundedWalk
from scrapy_resume.loopguard import LoopGuard, digest
from scrapy_resume.page import Decision, ErrorKind, Trouble, Where
from scrapy_resume.paging import Action, Commit, Discard, PageEnd, PagePolicy, Walk
from scrapy_resume.store.leases import ClaimedShard
from scrapy_resume.watermark import Position


@dataclass(slots=True)
class OpenEndedWalk(Walk):
    """A numbered shard whose last page nobody knows."""

    _opened: int = 0
    _judged: int = 0
    _top: int = 0
    _ended: bool = False
    _waiting: dict[int, PageEnd] = field(default_factory=dict)
    _trailing: list[PageEnd] = field(default_factory=list)

    def _start(self) -> None:
        self._opened = self._judged = self.position.cur_page
        self._top = self.position.highest

    def _fresh(self) -> int | None:
        if self._ended:
            return None
        number = self._opened + 1
        while self.position.has(number) or number in self.in_flight or number in self.held:
            number += 1
        return number if number <= self._top + self.policy.stop_on_empty else None

    @property
    def opening(self) -> bool:
        return not self._ended and self.blocked is None and not self.leaving

    def _unread(self) -> bool:
        return not self._ended

    def _unsettled(self) -> int:
        # Empty pages wait for later ones to be judged and must not keep them from being read.
        return Walk._unsettled(self) - len(self._trailing)

    def _stranded(self) -> list[int]:
        pages = sorted([*self._waiting, *(end.number for end in self._trailing)])
        self._waiting.clear()
        self._trailing.clear()
        return pages

    def next_page(self) -> int | None:
        number = Walk.next_page(self)
        self._opened = max(self._opened, number or 0)
        return number

    def _complete(self, end: PageEnd) -> list[Action]:
        if end.number <= self._judged:  # judged before its commit was refused
            return [self._commit(end, judged=True)] if end.record is not None else self._lost(end)
        self._waiting[end.number] = end
        if not end.empty and end.decision is Decision.COMPLETE and not self._repeats(end):
            self._top = max(self._top, end.number)
        return self._judge()

    def _give_up(self, number: int, trouble: Trouble, tries: int) -> list[Action]:
        return [*Walk._give_up(self, number, trouble, tries), *self._judge()]

    def _repeats(self, end: PageEnd) -> bool:
        return self.guard.repeats_neighbour(end.content)

    def _judge(self) -> list[Action]:
        actions: list[Action] = []
        while not self._ended:
            number = self._judged + 1
            end = self._waiting.pop(number, None)
            if end is not None:
                actions += self._judge_one(end)
            elif self.position.has(number):
                actions += self._cross_gap()
            elif number not in self.held:
                break
            self._judged = number
        if not self._ended and len(self._trailing) >= self.policy.stop_on_empty:
            reason = f"the list ended at page {self._top}: {_past(self._trailing[0])}"
            actions += self._end(self._top, reason)
        return actions

    def _judge_one(self, end: PageEnd) -> list[Action]:
        if end.decision is Decision.MISSING or (end.empty and end.end_reason is None):
            self._trailing.append(end)
            return []
        if self._repeats(end) and self.position.highest < end.number:
            last = end.number - 1
            reason = f"the list ended at page {last}: page {end.number} repeats another"
            return [Discard(end.number), *self._end(last, reason)]
        actions = self._cross_gap()
        if end.end_reason is None:
            return [*actions, self._commit(end)]
        if end.empty:
            return [*actions, *self._end(end.number - 1, end.end_reason)]
        commit = self._commit(end)
        ending = Commit(replace(commit.record, ends=True))
        return [*actions, ending, *self._end(end.number, end.end_reason)]

    def _cross_gap(self) -> list[Action]:
        """Empty pages below one with items are pages; missing ones are failures."""
        gap, self._trailing = self._trailing, []
        actions: list[Action] = []
        for end in gap:
            if end.decision is Decision.COMPLETE:
                actions.append(self._commit(end))
            elif end.trouble is not None:
                actions += Walk._give_up(self, end.number, end.trouble, self.attempts[end.number])
        return actions

    def _lost(self, end: PageEnd) -> list[Action]:
        assert end.trouble is not None
        return Walk._give_up(self, end.number, end.trouble, self.attempts[end.number])

    def _commit(self, end: PageEnd, judged: bool = False) -> Commit:
        assert end.record is not None
        self._count(end.number, end.rows)
        if not judged:
            self.guard = self.guard.push(end.content)
        return Commit(replace(end.record, digests=self.guard.dump()))

    def _end(self, last: int, reason: str) -> list[Action]:
        """The list ends with page *last*: whatever was read past it is dropped."""
        stated = self.guard.stated_total
        trailing, self._trailing = self._trailing, []
        if stated is not None and self.rows < stated and trailing and not self.held:
            text = f"the site states {stated} rows, {self.rows} were read"
            return self._fell_short(trailing, text)
        self._ended, self.end_reason, self._top = True, reason, last
        past = {number for number in self.in_flight if number > last}
        past |= {end.number for end in trailing}
        self._waiting.clear()
        self.held = {number: why for number, why in self.held.items() if number <= last}
        return [Discard(number) for number in sorted(past)]

    def _fell_short(self, trailing: list[PageEnd], text: str) -> list[Action]:
        first, *rest = trailing
        self._ended = True
        trouble = first.trouble or Trouble(Where.PAGE, ErrorKind.PERMANENT, "EmptyPage", text)
        trouble = replace(trouble, error=f"{trouble.error}; {text}" if first.trouble else text)
        actions = Walk._give_up(self, first.number, trouble, self.attempts[first.number])
        past = {number for number in self.in_flight if number > self._judged}
        return [*actions, *map(Discard, sorted(past | {end.number for end in rest}))]


def _past(end: PageEnd) -> str:
    if end.decision is Decision.MISSING and end.trouble is not None:
        return f"page {end.number} answered {end.trouble.status}"
    return f"page {end.number} was empty"


@dataclass(slots=True)
class ChainWalk(Walk):
    """A shard whose pages name their successors."""

    _cursors: dict[int, str | None] = field(default_factory=dict)
    _waiting: dict[int, PageEnd] = field(default_factory=dict)
    _last: int | None = None
    _submitted: int = 0
    _undo: dict[int, LoopGuard] = field(default_factory=dict)

    def _start(self) -> None:
        self._submitted = self.position.cur_page
        self._last = self.last_page
        first = self._submitted + 1
        self._cursors[first] = self.position.cursor

    def cursor_of(self, number: int) -> str | None:
        return self._cursors.get(number)

    def _fresh(self) -> int | None:
        number = max([self._submitted, *self.in_flight]) + 1
        past_end = self._last is not None and number > self._last
        return None if self.held or past_end or number not in self._cursors else number

    @property
    def opening(self) -> bool:
        opened = max([self._submitted, *self.in_flight])
        return self._goes_on and not self.held and (self._last is None or opened < self._last)

    def _unread(self) -> bool:
        return self._last is None or self.position.cur_page < self._last

    def _stranded(self) -> list[int]:
        pages = sorted(self._waiting)
        self._waiting.clear()
        return pages

    def read(self, number: int, next_cursor: str | None, end_reason: str | None) -> None:
        if next_cursor is None:
            self._last, self.end_reason = number, end_reason or f"page {number} names no next page"
        elif self._last is None or number < self._last:
            self._cursors[number + 1] = next_cursor

    def settled(self, number: int, position: Position | None) -> None:
        Walk.settled(self, number, position)
        self._undo.pop(number, None)
        if position is not None:
            self._cursors.pop(number, None)

    def _failed(self, number: int, trouble: Trouble) -> list[Action]:
        if number <= self._submitted:  # its commit was refused: take back what it taught us
            self.guard, self._submitted = self._undo[number], number - 1
        later = sorted(page for page in self.in_flight if page > number)
        for page in [*later, number]:
            self._waiting.pop(page, None)
        for page in [page for page in self._cursors if page > number]:
            del self._cursors[page]
        self._last = self.last_page
        return [*map(Discard, later), *Walk._failed(self, number, trouble)]

    def _complete(self, end: PageEnd) -> list[Action]:
        self._waiting[end.number] = end
        actions: list[Action] = []
        while self.failure is None and self._submitted + 1 in self._waiting:
            actions += self._submit(self._waiting.pop(self._submitted + 1))
        return actions

    def _submit(self, end: PageEnd) -> list[Action]:
        assert end.record is not None
        asked = digest([end.next_cursor or ""]) if end.next_cursor else ""
        own = self._cursors.get(end.number)
        asks_itself = bool(asked) and asked == digest([own or ""])
        if self.guard.seen(end.content):
            return self._loops(end.number, f"page {end.number} repeats a page already read", [])
        self._submitted = end.number
        self._undo[end.number] = self.guard
        self._count(end.number, end.rows)
        looped = asks_itself or self.guard.seen(asked)
        self.guard = self.guard.push(end.content or asked)
        ends = end.next_cursor is None or end.number == self.last_page
        record = replace(
            end.record,
            digests=self.guard.dump(),
            cursor=end.next_cursor,
            ends=ends,
            ordered=True,
        )
        if looped:
            text = f"page {end.number + 1} leads back to a page already read"
            return self._loops(end.number, text, [Commit(record)])
        return [Commit(record)]

    def _loops(self, number: int, text: str, actions: list[Action]) -> list[Action]:
        self.failure = f"loop: {text}"
        keep = {action.record.page for action in actions if isinstance(action, Commit)}
        later = sorted(page for page in self.in_flight if page >= number and page not in keep)
        self._waiting.clear()
        return [*actions, *map(Discard, later)]


def walk_for(claimed: ClaimedShard, policy: PagePolicy) -> Walk:
    """The walk that fits a claimed shard."""
    if claimed.ordered:
        return ChainWalk(claimed, policy)
    if claimed.shard.last_page is None:
        return OpenEndedWalk(claimed, policy)
    return BoundedWalk(claimed, policy)
