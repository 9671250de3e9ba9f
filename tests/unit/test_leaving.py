"""A walk that an operator wants back: nothing new is opened, nothing read is lost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from scrapy_resume.page import Decision, ErrorKind, Trouble, Where
from scrapy_resume.paging import Commit, Discard, Hold, PageEnd, PagePolicy, Retry
from scrapy_resume.store.checkpoints import Finish, PageRecord, Release
from scrapy_resume.walks import BoundedWalk, ChainWalk, OpenEndedWalk
from tests.unit.test_walks import claimed


def read(walk: Any, number: int, **more: Any) -> PageEnd:
    one = walk.claimed
    record = PageRecord(one.id, one.fencing_token, number, ())
    return PageEnd(number, Decision.COMPLETE, None, record, content=f"page {number}", **more)


def failed(number: int, kind: ErrorKind = ErrorKind.RETRYABLE) -> PageEnd:
    trouble = Trouble(Where.PAGE, kind, "HttpError", "503")
    return PageEnd(number, Decision.FAILED, trouble)


def opened(walk: Any, count: int) -> Any:
    assert [walk.next_page() for _ in range(count)] == list(range(1, count + 1))
    return walk


def test_what_is_in_flight_is_stored_and_the_rest_is_given_back() -> None:
    walk = opened(BoundedWalk(claimed(last=4), PagePolicy()), 2)
    assert walk.leave() == []
    assert walk.next_page() is None and not walk.opening and not walk.idle
    (commit,) = walk.closed(read(walk, 1))
    assert isinstance(commit, Commit)
    walk.settled(1, walk.position.with_page(1))
    assert walk.closed(failed(2)) == [Discard(2)]  # not tried again here, and not held
    walk.settled(2, None)
    assert walk.idle
    ending = walk.result()
    assert isinstance(ending, Release)
    assert (ending.delay, ending.error_kind, ending.spend_attempt) == (None, None, False)


@pytest.mark.parametrize("kind", [ErrorKind.RETRYABLE, ErrorKind.CODE])
def test_a_page_is_tried_again_in_place_unless_the_shard_is_wanted_back(kind: ErrorKind) -> None:
    walk = opened(BoundedWalk(claimed(last=4), PagePolicy()), 1)
    assert isinstance(walk.closed(failed(1, kind))[0], Retry)
    walk.leave()
    assert walk.closed(failed(1, kind)) == [Discard(1)]


def test_what_cannot_be_mended_by_trying_is_held_all_the_same() -> None:
    walk = opened(BoundedWalk(claimed(last=4), PagePolicy()), 1)
    walk.leave()
    assert isinstance(walk.closed(failed(1, ErrorKind.PERMANENT))[0], Hold)


def test_a_shard_whose_last_page_was_in_flight_is_done() -> None:
    walk = opened(BoundedWalk(claimed(last=1), PagePolicy()), 1)
    walk.leave()
    walk.closed(read(walk, 1))
    walk.settled(1, replace(walk.position.with_page(1), version=1))
    assert walk.idle and isinstance(walk.result(), Finish)


def test_pages_of_a_chain_that_wait_for_another_are_dropped() -> None:
    walk = ChainWalk(claimed(ordered=True), PagePolicy())
    assert walk.next_page() == 1
    walk.read(1, '"2"', None)
    assert walk.next_page() == 2
    walk.read(2, '"3"', None)
    walk.closed(read(walk, 2, next_cursor='"3"'))
    assert walk.leave() == [Discard(2)]


def test_an_open_end_is_not_taken_for_an_end() -> None:
    walk = OpenEndedWalk(claimed(last=None), PagePolicy())
    assert walk.next_page() == 1
    walk.leave()
    assert walk.closed(PageEnd(1, Decision.COMPLETE, None, read(walk, 1).record, empty=True)) == [
        Discard(1)
    ]
    walk.settled(1, None)
    assert walk.idle and isinstance(walk.result(), Release)
