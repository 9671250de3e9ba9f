"""Walks whose pages end in the most awkward order: late ends, stale retries, refused commits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scrapy_resume.page import ErrorKind, Trouble
from scrapy_resume.paging import Discard, PageEnd, PagePolicy, Retry, Walk
from scrapy_resume.store.checkpoints import Finish, Release
from scrapy_resume.walks import BoundedWalk, ChainWalk, OpenEndedWalk
from scrapy_resume.watermark import Position
from tests.unit.test_walks import Driver, chain, claimed, complete, failed, missing, trouble


def blocked(number: int) -> PageEnd:
    return failed(number, ErrorKind.BLOCKED)


def done(walk: Walk) -> str:
    """The reason of a shard that is done, with nothing left in flight."""
    result = walk.result()
    assert walk.idle and not walk.in_flight
    assert isinstance(result, Finish) and result.status == "done", result
    return result.reason


def next_claim(walk: Walk, **options: int) -> Walk:
    """The same shard in the next claim, from what the last one stored."""
    claim = replace(walk.claimed, position=walk.position, attempt_count=1)
    return type(walk)(claim, replace(walk.policy, **options))


# How an open-ended list ends


def test_an_end_that_comes_late_drops_the_pages_already_read_past_it() -> None:
    driver = Driver(OpenEndedWalk(claimed(), PagePolicy(in_flight=4)))
    _read(driver, complete(1), complete(2), complete(4), complete(5))
    assert driver.open == [3, 6]
    _read(driver, complete(3, end_reason="enough"))
    assert driver.committed == [1, 2, 3] and not driver.open
    assert done(driver.walk) == "enough"


def test_a_repeated_page_that_comes_late_drops_the_pages_read_past_it() -> None:
    driver = Driver(OpenEndedWalk(claimed(), PagePolicy(in_flight=4)))
    again = [complete(number, content="content 4") for number in (5, 6, 7)]
    _read(driver, complete(1), complete(2), complete(3), *again, complete(4))
    assert driver.committed == [1, 2, 3, 4] and not driver.open
    assert done(driver.walk) == "the list ended at page 4: page 5 repeats another"


@pytest.mark.parametrize("again", [missing(5), complete(5, rows=0)], ids=["missing", "empty"])
def test_a_page_missing_again_below_stored_ones_is_not_the_end(again: PageEnd) -> None:
    site = {n: complete(n) for n in range(1, 13)} | {5: missing(5)}
    first = Driver(OpenEndedWalk(claimed(), PagePolicy(in_flight=3)))
    first.run(site)
    assert first.held == [5] and str(first.walk.position.ahead) == "6-12"
    second = Driver(next_claim(first.walk))
    second.run(site | {5: again})
    if again.empty:
        assert second.committed == [5] and second.walk.position.cur_page == 12
        done(second.walk)
    else:
        assert second.held == [5] and not second.committed
        assert isinstance(second.walk.result(), Release)


# How many rows were read


@pytest.mark.parametrize("kind", [BoundedWalk, OpenEndedWalk])
def test_rows_are_counted_across_a_resume_and_not_derived_from_the_keys(kind: type[Walk]) -> None:
    """A page that lists one key twice stores fewer keys than it has rows."""
    last = 6 if kind is BoundedWalk else None
    site = {n: complete(n, rows=11, stated_total=66) for n in range(1, 7)}
    first = Driver(kind(claimed(last=last), PagePolicy(in_flight=1, counts_rows=True)))
    for number in (1, 2, 3):
        first.fill()
        first.end(site[number])
    stored = Position(
        3, 3, written_count=30, page_count=3, digests=first.walk.position.digests
    )  # 30 distinct keys
    second = Driver(kind(claimed(last=last, position=stored), first.walk.policy))
    second.run(site)
    assert second.committed == [4, 5, 6]
    assert second.walk.rows == 66
    done(second.walk)


def test_the_rows_of_a_page_whose_commit_was_refused_do_not_count() -> None:
    walk = BoundedWalk(claimed(last=1), PagePolicy(retries=1))
    driver = Driver(walk)
    driver.fill()
    walk.closed(complete(1, stated_total=10))
    driver.apply(walk.refused(1, trouble()))
    driver.fill()
    assert driver.asked == [1, 1]
    driver.apply(walk.closed(complete(1, stated_total=10)))
    assert walk.rows == 10
    done(walk)


def test_half_the_rows_of_the_stated_total_are_not_the_list_in_a_later_claim() -> None:
    site = {n: complete(n, stated_total=66) for n in range(1, 7)}
    first = Driver(BoundedWalk(claimed(last=6), PagePolicy(in_flight=1, counts_rows=True)))
    first.fill()
    first.end(site[1])
    second = Driver(next_claim(first.walk))
    second.run(site)
    assert second.walk.result() == Finish(
        1, 1, "failed", "the site states 66 rows and 60 were read"
    )


# Retries


def test_a_page_dropped_while_it_waits_for_its_turn_is_not_opened() -> None:
    """Its retry was due, but its chain is read again from the page before."""
    driver = Driver(ChainWalk(claimed(ordered=True), PagePolicy(in_flight=3)))
    walk = driver.walk
    _open_chain(driver, 3)
    (retry,) = walk.closed(failed(3))
    assert isinstance(retry, Retry)
    walk.retry_due(3)
    (dropped, again) = walk.closed(failed(2))
    assert dropped == Discard(3) and isinstance(again, Retry)
    walk.settled(3, None)
    assert walk.next_page() is None
    walk.retry_due(2)
    assert [walk.next_page(), walk.next_page()] == [2, None]


def test_a_page_past_the_end_is_not_read_again_though_its_retry_is_due() -> None:
    driver = Driver(BoundedWalk(claimed(last=9), PagePolicy(in_flight=4)))
    walk = driver.walk
    driver.fill()
    assert isinstance(walk.closed(failed(4))[0], Retry)
    walk.retry_due(4)
    driver.open.remove(4)
    driver.end(complete(2, end_reason="enough"))
    walk.retry_due(4)  # a second timer, as late as can be
    driver.run({1: complete(1)})
    assert driver.asked == [1, 2, 3, 4]
    assert done(walk) == "enough"


@pytest.mark.parametrize(("wait", "in_place"), [(2.0, True), (60.0, True), (86400.0, False)])
def test_a_site_that_asks_for_a_long_pause_is_left_alone(wait: float, in_place: bool) -> None:
    """The page does not keep its slot, and the shard its lease, for a day."""
    policy = PagePolicy(longest_wait=60.0, backoff_max=1800.0)
    walk = BoundedWalk(claimed(last=4), policy, lambda: 0.5)
    Driver(walk).fill()
    actions = walk.closed(PageEnd(2, failed(2).decision, _asks_for(wait)))
    assert (actions == [Retry(2, wait)]) is in_place
    if not in_place:
        for number in (1, 3, 4):
            Driver.apply(_driver_of(walk), walk.closed(complete(number)))
        walk.settled(2, None)
        result = walk.result()
        assert isinstance(result, Release) and result.delay == 1800.0


@pytest.mark.parametrize("wait", [0.0, 300.0, 1e25])
def test_a_shard_is_due_when_the_site_said_within_the_longest_backoff(wait: float) -> None:
    policy = PagePolicy(retries=0, backoff_base=5.0, backoff_max=1800.0)
    walk = BoundedWalk(claimed(last=1), policy, lambda: 1.0)
    Driver(walk).fill()
    walk.closed(PageEnd(1, failed(1).decision, _asks_for(wait)))
    walk.settled(1, None)
    result = walk.result()
    assert isinstance(result, Release)
    assert result.delay == max(5.0, min(wait, 1800.0))


def test_a_page_held_past_an_end_found_later_does_not_count() -> None:
    driver = Driver(BoundedWalk(claimed(last=6), PagePolicy(in_flight=4)))
    driver.fill()
    driver.end(blocked(4))
    driver.end(complete(3))
    driver.end(complete(1))
    driver.end(complete(2, end_reason="enough"))
    assert driver.held == [4]
    assert done(driver.walk) == "enough"


@pytest.mark.parametrize("progress", [True, False])
def test_progress_counts_as_a_first_attempt(progress: bool) -> None:
    """The site was down for nine attempts; at the tenth only one page fails."""
    policy = PagePolicy(retries=0, backoff_base=5.0)
    walk = BoundedWalk(claimed(last=2, attempts=10), policy, lambda: 1.0)
    driver = Driver(walk)
    driver.run({1: complete(1) if progress else failed(1), 2: failed(2)})
    result = walk.result()
    if progress:
        assert isinstance(result, Release) and result.delay == 5.0
    else:
        assert isinstance(result, Finish) and "10 attempts" in result.reason


# Chains whose commits are refused


def test_a_refused_page_of_a_chain_is_read_again_with_those_behind_it() -> None:
    """It taught the guard its contents, and would repeat itself otherwise."""
    driver = Driver(ChainWalk(claimed(ordered=True), PagePolicy(in_flight=4, retries=1)))
    walk, site = driver.walk, chain(4)
    _open_chain(driver, 4)
    driver.end(site[1])
    for number in (2, 3, 4):  # in the committer, one behind the other
        walk.closed(site[number])
    driver.open.clear()
    driver.apply(walk.refused(2, trouble()))
    assert walk.refused(3, trouble()) == [] and walk.refused(4, trouble()) == []
    driver.run(site, chain=True)
    assert driver.asked == [1, 2, 3, 4, 2, 3, 4]
    assert driver.committed == [1, 2, 3, 4]
    assert walk.rows == 40
    done(walk)


def test_a_chain_held_at_a_refused_page_stays_where_it_was() -> None:
    driver = Driver(ChainWalk(claimed(ordered=True), PagePolicy(in_flight=3, retries=0)))
    walk, site = driver.walk, chain(9)
    _open_chain(driver, 3)
    driver.end(site[1])
    walk.closed(site[2])
    walk.closed(site[3])
    driver.open.clear()
    driver.apply(walk.refused(2, trouble()))
    assert driver.held == [2] and not walk.in_flight and walk.next_page() is None
    assert walk.position.cur_page == 1
    assert isinstance(walk.result(), Release)
    assert walk.rows == 10


def _read(driver: Driver, *ends: PageEnd) -> None:
    """Let pages end in this order, and open what may be opened."""
    driver.fill()
    for end in ends:
        driver.end(end)
        driver.fill()


def _open_chain(driver: Driver, count: int) -> None:
    """Open *count* pages of a chain, none of which has ended."""
    for number in range(1, count + 1):
        driver.fill()
        assert driver.open[-1] == number
        if number < count:
            driver.walk.read(number, str(number + 1), None)


def _asks_for(wait: float) -> Trouble:
    return replace(trouble(status=429), retry_after=wait)


def _driver_of(walk: Walk) -> Driver:
    driver = Driver(walk)
    driver.open = sorted(walk.in_flight)
    return driver
