"""The walks of a shard, driven by every order in which pages may end."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scrapy_resume.loopguard import LoopGuard
from scrapy_resume.page import Decision, ErrorKind, Shard, Trouble, Where
from scrapy_resume.paging import (
    Commit,
    Discard,
    Hold,
    PageEnd,
    PagePolicy,
    Retry,
    SetAside,
    Walk,
)
from scrapy_resume.store.checkpoints import Finish, PageRecord, Release
from scrapy_resume.store.leases import ClaimedShard
from scrapy_resume.walks import BoundedWalk, ChainWalk, OpenEndedWalk, walk_for
from scrapy_resume.watermark import Position


def claimed(
    *,
    last: int | None = None,
    ordered: bool = False,
    position: Position | None = None,
    attempts: int = 1,
) -> ClaimedShard:
    shard = Shard("s", 1, last, ordered=ordered)
    return ClaimedShard(
        id=1,
        task_id=1,
        shard_no=1,
        shard=shard,
        position=position or Position(0, 0),
        ordered=ordered,
        fencing_token=1,
        attempt_count=attempts,
        max_attempts=10,
        resumed=False,
        site="site",
    )


def complete(number: int, rows: int = 10, **rest: object) -> PageEnd:
    record = PageRecord(1, 1, number, (), (), 0)
    content = f"content {number}" if rows else ""
    facts = {"rows": rows, "empty": rows == 0, "content": content, **rest}
    return PageEnd(number, Decision.COMPLETE, record=record, **facts)  # type: ignore[arg-type]


def trouble(kind: ErrorKind = ErrorKind.RETRYABLE, status: int | None = None) -> Trouble:
    return Trouble(Where.PAGE, kind, "Error", "it failed", status=status)


def failed(number: int, kind: ErrorKind = ErrorKind.RETRYABLE) -> PageEnd:
    return PageEnd(number, Decision.FAILED, trouble(kind))


def missing(number: int) -> PageEnd:
    return PageEnd(number, Decision.MISSING, trouble(ErrorKind.PERMANENT, 404))


class Driver:
    """Plays site, ledger and committer for one walk."""

    def __init__(self, walk: Walk) -> None:
        self.walk = walk
        self.committed: list[int] = []
        self.held: list[int] = []
        self.asked: list[int] = []
        self.set_aside: list[int] = []
        self.open: list[int] = []

    def fill(self) -> None:
        while (number := self.walk.next_page()) is not None:
            self.asked.append(number)
            self.open.append(number)
        assert len(self.open) <= self.walk.policy.in_flight

    def end(self, end: PageEnd) -> None:
        self.open.remove(end.number)
        self.apply(self.walk.closed(end))

    def apply(self, actions: list[object]) -> None:
        for action in actions:
            if isinstance(action, Commit):
                number = action.record.page
                self.committed.append(number)
                position = self.walk.position.with_page(number, digests=action.record.digests)
                new = Position(
                    position.version + 1, position.cur_page, None, position.ahead,
                    position.failed, digests=position.digests,
                )  # fmt: skip
                self.walk.settled(number, new)
            elif isinstance(action, Hold):
                self.held.append(action.number)
                self.walk.settled(action.number, None)
            elif isinstance(action, SetAside):
                self.set_aside.append(action.number)
                self.walk.settled(action.number, self.walk.position)
            elif isinstance(action, Discard):
                if action.number in self.open:
                    self.open.remove(action.number)
                self.walk.settled(action.number, None)
            elif isinstance(action, Retry):
                self.walk.retry_due(action.number)

    def run(self, site: dict[int, PageEnd], seed: int = 0, chain: bool = False) -> None:
        chance = random.Random(seed)
        for _ in range(10_000):
            self.fill()
            if not self.open:
                break
            number = chance.choice(self.open)
            end = site.get(number, missing(number))
            if chain and end.decision is Decision.COMPLETE:
                self.walk.read(number, end.next_cursor, end.end_reason)
                self.fill()
            self.end(end)
        assert not self.open


@given(st.integers(1, 30), st.integers(1, 6), st.integers(0, 999))
def test_every_page_of_a_bounded_shard_is_committed_once(last: int, slots: int, seed: int) -> None:
    driver = Driver(BoundedWalk(claimed(last=last), PagePolicy(in_flight=slots)))
    driver.run({n: complete(n) for n in range(1, last + 1)}, seed)
    assert sorted(driver.committed) == list(range(1, last + 1))
    assert isinstance(driver.walk.result(), Finish)
    assert driver.walk.position.cur_page == last


@given(st.integers(1, 25), st.integers(1, 6), st.integers(0, 999))
@settings(max_examples=60)
def test_an_open_ended_shard_ends_at_its_last_page(last: int, slots: int, seed: int) -> None:
    walk = OpenEndedWalk(claimed(), PagePolicy(in_flight=slots))
    driver = Driver(walk)
    driver.run({n: complete(n) for n in range(1, last + 1)}, seed)
    assert driver.committed == list(range(1, last + 1))
    assert max(driver.asked) <= last + walk.policy.stop_on_empty
    result = walk.result()
    assert isinstance(result, Finish) and result.status == "done"


@given(st.sets(st.integers(2, 19)), st.integers(1, 5), st.integers(0, 999))
@settings(max_examples=60)
def test_gaps_below_the_limit_are_pages_and_longer_ones_end_the_list(
    gaps: set[int], slots: int, seed: int
) -> None:
    site = {n: complete(n, rows=0 if n in gaps else 10) for n in range(1, 21)}
    driver = Driver(OpenEndedWalk(claimed(), PagePolicy(in_flight=slots, stop_on_empty=2)))
    driver.run(site | {n: complete(n, rows=0) for n in range(21, 30)}, seed)
    expected = 20
    for number in range(1, 20):
        if number in gaps and number + 1 in gaps:
            expected = number - 1
            break
    assert driver.committed == list(range(1, expected + 1))


def test_a_missing_page_below_one_with_items_is_held() -> None:
    site = {n: complete(n) for n in range(1, 9)} | {5: missing(5)}
    driver = Driver(OpenEndedWalk(claimed(), PagePolicy(in_flight=3)))
    driver.run(site)
    assert driver.held == [5]
    assert isinstance(driver.walk.result(), Release)
    assert sorted(driver.committed) == [1, 2, 3, 4, 6, 7, 8]


def test_an_empty_page_above_a_held_one_does_not_keep_the_shard() -> None:
    site = {n: complete(n) for n in range(1, 5)} | {5: failed(5)}
    site |= {n: complete(n, rows=0) for n in range(6, 9)}
    driver = Driver(OpenEndedWalk(claimed(), PagePolicy(retries=0)))
    driver.run(site)
    assert driver.held == [5]
    assert driver.walk.idle and isinstance(driver.walk.result(), Release)
    assert driver.walk.position.cur_page == 4


def test_a_missing_page_is_held_when_the_stated_total_is_not_reached() -> None:
    site = {n: complete(n, stated_total=120) for n in range(1, 5)}
    driver = Driver(OpenEndedWalk(claimed(), PagePolicy()))
    driver.run(site)
    assert driver.held == [5]
    result = driver.walk.result()
    assert isinstance(result, Release)
    assert "120 rows" in result.reason
    assert result.delay == PagePolicy().backoff_max


def test_a_hole_below_explains_a_total_that_is_not_reached() -> None:
    site = {n: complete(n, stated_total=120) for n in range(1, 13)} | {5: failed(5)}
    driver = Driver(OpenEndedWalk(claimed(), PagePolicy(retries=0)))
    driver.run(site)
    assert driver.held == [5]


def test_the_first_page_again_past_the_end_ends_the_list() -> None:
    site = {n: complete(n) for n in range(1, 6)}
    site |= {n: complete(n, content="content 1") for n in range(6, 20)}
    driver = Driver(OpenEndedWalk(claimed(), PagePolicy()))
    driver.run(site)
    assert driver.committed == [1, 2, 3, 4, 5]
    assert len(driver.asked) <= 7
    assert driver.walk.result().reason == "the list ended at page 5: page 6 repeats another"


@pytest.mark.parametrize("kind", list(ErrorKind))
def test_a_failing_page_is_retried_in_place_only_where_that_may_help(kind: ErrorKind) -> None:
    site = {n: complete(n) for n in range(1, 9)} | {5: failed(5, kind)}
    driver = Driver(BoundedWalk(claimed(last=8), PagePolicy(retries=2)))
    driver.run(site)
    retried = kind in (ErrorKind.RETRYABLE, ErrorKind.CODE)
    assert driver.asked.count(5) == (3 if retried else 1)
    assert driver.held == [5]
    result = driver.walk.result()
    assert isinstance(result, Release)
    assert result.spend_attempt is (kind is not ErrorKind.BLOCKED)
    assert (result.delay is None) is (kind is ErrorKind.CODE)
    assert driver.walk.position.cur_page == 4


def test_after_the_last_attempt_the_shard_has_failed() -> None:
    driver = Driver(BoundedWalk(claimed(last=1, attempts=10), PagePolicy(retries=0)))
    driver.run({1: failed(1)})
    result = driver.walk.result()
    assert isinstance(result, Finish)
    assert result.status == "failed" and "10 attempts" in result.reason


def test_a_failed_page_can_be_set_aside_unless_the_site_blocks() -> None:
    policy = PagePolicy(retries=0, hold_pages=False)
    driver = Driver(BoundedWalk(claimed(last=3), policy))
    site = {1: complete(1), 2: failed(2), 3: failed(3, ErrorKind.BLOCKED)}
    driver.run(site)
    assert driver.set_aside == [2]
    assert driver.held == [3]


@given(st.sets(st.integers(1, 19)), st.integers(1, 6), st.integers(0, 999))
@settings(max_examples=60)
def test_pages_behind_bad_ones_are_read_in_whatever_order_they_end(
    bad: set[int], slots: int, seed: int
) -> None:
    """The last page is well, so nothing is too deep for the site."""
    walk = BoundedWalk(claimed(last=20), PagePolicy(in_flight=slots, retries=0))
    wrong = PageEnd(0, Decision.FAILED, trouble(ErrorKind.PERMANENT, 400))
    driver = Driver(walk)
    driver.run(
        {n: replace(wrong, number=n) if n in bad else complete(n) for n in range(1, 21)}, seed
    )
    assert sorted(driver.committed) == sorted(set(range(1, 21)) - bad)
    assert sorted(driver.held) == sorted(bad)
    assert sorted(driver.asked) == list(range(1, 21))


@given(st.integers(0, 40), st.integers(1, 6), st.integers(0, 999))
@settings(max_examples=60)
def test_a_list_that_the_site_cuts_is_asked_for_little_beyond(
    depth: int, slots: int, seed: int
) -> None:
    walk = BoundedWalk(claimed(last=50), PagePolicy(in_flight=slots, retries=0))
    wrong = PageEnd(0, Decision.FAILED, trouble(ErrorKind.PERMANENT, 400))
    ends = {n: complete(n) if n <= depth else replace(wrong, number=n) for n in range(1, 51)}
    driver = Driver(walk)
    driver.run(ends, seed)
    assert sorted(driver.committed) == list(range(1, depth + 1))
    assert len(driver.held) <= 3 + 2 * slots
    assert f"depth limit at page {depth + 1}: " in walk.result().reason


def chain(last: int) -> dict[int, PageEnd]:
    return {
        n: complete(n, next_cursor=str(n + 1) if n < last else None) for n in range(1, last + 1)
    }


@given(st.integers(1, 20), st.integers(1, 5), st.integers(0, 999))
def test_a_chain_commits_in_order(last: int, slots: int, seed: int) -> None:
    driver = Driver(ChainWalk(claimed(ordered=True), PagePolicy(in_flight=slots)))
    driver.run(chain(last), seed, chain=True)
    assert driver.committed == list(range(1, last + 1))
    result = driver.walk.result()
    assert isinstance(result, Finish) and result.status == "done"


def test_a_failed_page_holds_its_chain_and_its_successors_are_dropped() -> None:
    driver = Driver(ChainWalk(claimed(ordered=True), PagePolicy(in_flight=3, retries=0)))
    walk = driver.walk
    driver.fill()
    walk.read(1, "2", None)
    driver.fill()
    walk.read(2, "3", None)
    driver.fill()
    assert driver.open == [1, 2, 3]
    driver.end(complete(3, next_cursor="4"))
    driver.end(complete(1, next_cursor="2"))
    driver.end(failed(2))
    driver.fill()
    assert driver.committed == [1] and driver.held == [2] and not driver.open
    assert isinstance(walk.result(), Release)


@given(st.integers(2, 12), st.integers(1, 8), st.integers(1, 4))
def test_a_chain_that_leads_back_fails_as_a_loop(length: int, back: int, slots: int) -> None:
    target = min(back, length)

    def content(number: int) -> str:
        if number <= length:
            return f"content {number}"
        period = length - target + 1
        return f"content {target + (number - target) % period}"

    site = {n: complete(n, next_cursor=content(n + 1), content=content(n)) for n in range(1, 200)}
    driver = Driver(ChainWalk(claimed(ordered=True), PagePolicy(in_flight=slots)))
    driver.run(site, chain=True)
    result = driver.walk.result()
    assert isinstance(result, Finish) and result.status == "failed"
    assert result.reason.startswith("loop:")
    assert len(driver.asked) <= 6 * length + 8


def test_the_guard_holds_across_a_restart() -> None:
    guard = LoopGuard()
    for number in range(1, 6):
        guard = guard.push(f"page {number}")
    again = LoopGuard.load(guard.dump())
    assert again == guard
    assert again.seen("page 1") and again.seen("page 4") and again.seen("page 5")
    assert not again.seen("page 2") and not again.seen("")


def test_end_of_shard_drops_what_lies_past_it() -> None:
    driver = Driver(BoundedWalk(claimed(last=9), PagePolicy(in_flight=4)))
    driver.fill()
    driver.end(complete(3, end_reason="sold out"))
    assert driver.open == [1, 2]
    driver.run({1: complete(1), 2: complete(2)})
    assert sorted(driver.committed) == [1, 2, 3]
    assert driver.walk.result() == Finish(1, 1, "done", "sold out")


def test_the_kind_of_walk_follows_the_shard() -> None:
    assert isinstance(walk_for(claimed(last=3), PagePolicy()), BoundedWalk)
    assert isinstance(walk_for(claimed(), PagePolicy()), OpenEndedWalk)
    assert isinstance(walk_for(claimed(ordered=True), PagePolicy()), ChainWalk)
