"""Walks whose pages are let go by a journal long before they are committed."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_resume.page import Decision
from scrapy_resume.paging import Commit, Discard, PageEnd, PagePolicy, Retry, Walk
from scrapy_resume.store.checkpoints import Finish, PageRecord
from scrapy_resume.walks import BoundedWalk, ChainWalk, OpenEndedWalk
from tests.unit.test_walks import claimed, complete, trouble


class Journalled:
    """Plays site, journal and a database that comes by now and then, for one walk.

    A page in *refused* is refused once, as with ``RESUME_ON_FAILED_RECORD="hold"``.
    """

    def __init__(self, walk: Walk, site: dict[int, PageEnd], refused: set[int]) -> None:
        self.walk, self.site, self.refused = walk, site, set(refused)
        self.open: list[int] = []
        self.queue: deque[PageRecord] = deque()
        self.awaited: dict[int, PageRecord] = {}
        self.furthest = 0  # how many pages were in the journal at once

    def run(self, seed: int) -> Finish | Any:
        chance = random.Random(seed)
        for _ in range(5000):
            while (number := self.walk.next_page()) is not None:
                self.open.append(number)
            assert len(self.open) <= self.walk.policy.in_flight
            self.furthest = max(self.furthest, len(self.queue))
            if self.walk.idle:
                assert not self.awaited
                return self.walk.result()
            if self.queue and (not self.open or chance.random() < 0.05):
                for _ in range(chance.randint(1, len(self.queue))):
                    self._commit(self.queue.popleft())
            elif self.open:
                self._end(chance.choice(self.open))
        raise AssertionError("the walk does not end")

    def _end(self, number: int) -> None:
        self.open.remove(number)
        end = self.site.get(number, complete(number, rows=0))
        if end.decision is Decision.COMPLETE:
            self.walk.read(number, end.next_cursor, end.end_reason)
        self._act(self.walk.closed(end))

    def _act(self, actions: list[Any]) -> None:
        for action in actions:
            if isinstance(action, Commit):
                self.queue.append(action.record)
                self.awaited[action.record.page] = action.record
                self.walk.journalled(action.record.page)
            elif isinstance(action, Retry):
                self.walk.retry_due(action.number)
            elif isinstance(action, Discard):
                self.awaited.pop(action.number, None)
                if action.number in self.open:
                    self.open.remove(action.number)
                self.walk.settled(action.number, None)

    def _commit(self, record: PageRecord) -> None:
        """As the database does it; what is not awaited any more is no news of its page."""
        number, position = record.page, self.walk.position
        awaited = self.awaited.get(number) is record
        if awaited:
            del self.awaited[number]
        behind = record.ordered and number != position.cur_page + 1
        if number in self.refused or behind:
            self.refused.discard(number)
            if awaited:
                self._act(self.walk.refused(number, trouble()))
            return
        moved = position.with_page(number, cursor=record.cursor, digests=record.digests)
        moved = replace(moved, version=position.version + 1)
        if awaited:
            self.walk.settled(number, moved)
        else:
            self.walk.moved(moved)


pages = st.integers(1, 30)
refusals = st.sets(st.integers(1, 30), max_size=4)


@given(pages, st.integers(1, 4), refusals, st.integers(0, 999))
def test_a_bounded_shard_is_done_once_every_page_is_stored(
    last: int, slots: int, refused: set[int], seed: int
) -> None:
    walk = BoundedWalk(claimed(last=last), PagePolicy(in_flight=slots))
    ending = Journalled(walk, {n: complete(n) for n in range(1, last + 1)}, refused).run(seed)
    assert isinstance(ending, Finish) and ending.status == "done"
    assert (walk.position.cur_page, walk.in_flight, walk.kept) == (last, set(), set())


@given(pages, st.integers(1, 4), refusals, st.integers(0, 999))
def test_a_chain_is_read_again_from_a_refused_page_on(
    last: int, slots: int, refused: set[int], seed: int
) -> None:
    walk = ChainWalk(claimed(ordered=True), PagePolicy(in_flight=slots))
    site = {n: complete(n, next_cursor=f'"{n + 1}"') for n in range(1, last)}
    site[last] = complete(last)
    ending = Journalled(walk, site, refused).run(seed)
    assert isinstance(ending, Finish) and ending.status == "done", ending
    assert (walk.position.cur_page, walk.in_flight) == (last, set())


@given(pages, st.integers(1, 4), refusals, st.sets(st.integers(2, 28)), st.integers(0, 999))
def test_an_open_end_is_where_nothing_follows(
    last: int, slots: int, refused: set[int], empty: set[int], seed: int
) -> None:
    """Lone empty pages are pages; those at the end are not stored."""
    walk = OpenEndedWalk(claimed(), PagePolicy(in_flight=slots))
    lone = {n for n in empty if n < last and n + 1 not in empty and n - 1 not in empty}
    site = {n: complete(n, rows=0 if n in lone else 10) for n in range(1, last + 1)}
    ending = Journalled(walk, site, refused).run(seed)
    assert isinstance(ending, Finish) and ending.status == "done"
    assert walk.position.cur_page == last


@pytest.mark.parametrize("ordered", [True, False])
def test_pages_in_the_journal_take_no_place(ordered: bool) -> None:
    walk: Walk
    if ordered:
        walk = ChainWalk(claimed(ordered=True), PagePolicy(in_flight=2))
    else:
        walk = BoundedWalk(claimed(last=50), PagePolicy(in_flight=2))
    for number in range(1, 40):
        assert walk.next_page() == number
        walk.read(number, f'"{number + 1}"', None)
        walk.closed(complete(number, next_cursor=f'"{number + 1}"'))
        walk.journalled(number)
    assert not walk.idle and walk.position.cur_page == 0
    walk.leave()
    assert not walk.idle  # the shard is given back once they are stored
