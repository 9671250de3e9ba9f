"""The walk of a numbered shard that states its last page.

Pages are fetched several at a time and committed as they finish; those beyond a hole are
recorded ahead of it. Once the site refuses several pages in a row as wrong requests, the
last page is asked for: if it is refused too, the site lists no more rows than that, and
those between are left.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from scrapy_resume.page import ErrorKind, Trouble
from scrapy_resume.paging import Action, Commit, Discard, PageEnd, SetAside, Walk

_IN_ROW = 3  # pages refused as wrong requests, after which the last page is asked for


@dataclass(slots=True)
class BoundedWalk(Walk):
    """A numbered shard that states its last page."""

    _cursor: int = 0
    _refused_from: int | None = None

    def _start(self) -> None:
        self._cursor = self.position.cur_page + 1

    def _fresh(self) -> int | None:
        assert self.last_page is not None
        while self._cursor <= self.last_page and (
            self.position.has(self._cursor) or self._cursor in self.in_flight
        ):
            self._cursor += 1
        number = self._cursor
        if number > self.last_page or number in self.held:
            return None
        return number if self._refused_from is None else self._beyond(number)

    def _beyond(self, number: int) -> int | None:
        """Of the pages from *number* on, behind some that were refused, the last one first."""
        last, trouble = self.last_page, self.held.get(self.last_page or 0)
        assert last is not None
        if trouble is not None:
            return None if trouble.is_wrong_request else number
        if self.position.has(last):
            return number
        return None if last in self.in_flight else last

    def _depth(self) -> int | None:
        trouble = self.held.get(self.last_page or 0)
        return self._refused_from if trouble is not None and trouble.is_wrong_request else None

    def _note_refusal(self, number: int) -> None:
        """A page is held: is it one of several in a row that are refused, and none behind read?"""
        first = after = number
        while first in self.held and self.held[first].is_wrong_request:
            first -= 1
        while after in self.held and self.held[after].is_wrong_request:
            after += 1
        if after - first > _IN_ROW and self.position.highest <= first:
            self._refused_from = first + 1

    def next_page(self) -> int | None:
        number = Walk.next_page(self)
        if number == self._cursor:
            self._cursor += 1
        return number

    def _unread(self) -> bool:
        assert self.last_page is not None
        return next(self.position.missing(self.last_page), None) is not None

    def _complete(self, end: PageEnd) -> list[Action]:
        assert end.record is not None and self.last_page is not None
        if self._refused_from is not None and end.number > self._refused_from:
            self._refused_from = None  # it does list more than that
        self._count(end.number, end.rows)
        record = end.record
        if self.policy.counts_rows:
            record = replace(record, digests=self.guard.dump())
        if end.end_reason is None or end.number >= self.last_page:
            return [Commit(record)]
        self.last_page, self.end_reason = end.number, end.end_reason
        self.held = {number: why for number, why in self.held.items() if number <= end.number}
        past = sorted(number for number in self.in_flight if number > end.number)
        return [Commit(replace(record, ends=True)), *map(Discard, past)]

    def _give_up(self, number: int, trouble: Trouble, tries: int) -> list[Action]:
        if self.policy.hold_pages or self.blocked or trouble.kind is ErrorKind.BLOCKED:
            actions = Walk._give_up(self, number, trouble, tries)
            self._note_refusal(number)
            return actions
        return [SetAside(number, trouble, tries)]
