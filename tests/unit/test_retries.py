"""How long a failed page and its shard wait, and which of its tries cost an attempt."""

from __future__ import annotations

from typing import Any

import pytest

from scrapy_resume.boundedwalk import BoundedWalk
from scrapy_resume.page import Decision, ErrorKind, Shard, Trouble, Where
from scrapy_resume.paging import PageEnd, PagePolicy, Retry, Walk
from scrapy_resume.store.checkpoints import Finish, Release
from scrapy_resume.store.leases import ClaimedShard
from scrapy_resume.watermark import Position

POLICY = PagePolicy(retries=3, retry_delay=1.0, backoff_base=5.0, backoff_max=1800.0)


def walk(*, attempts: int = 1, jitter: float = 1.0, **given: Any) -> Walk:
    """A shard of two pages, the first of which is being read for the *attempts*-th time."""
    claimed = ClaimedShard(
        1, 1, 1, Shard("s", 1, 2), Position(0, 0), False, 1, attempts, 10, False, "site"
    )
    policy = PagePolicy(**{**{n: getattr(POLICY, n) for n in POLICY.__slots__}, **given})
    made = BoundedWalk(claimed, policy, jitter=lambda: jitter)
    assert made.next_page() == 1
    return made


def failed(kind: ErrorKind, retry_after: float | None = None) -> PageEnd:
    trouble = Trouble(Where.PAGE, kind, "Error", "it failed", retry_after=retry_after)
    return PageEnd(1, Decision.FAILED, trouble)


def delays(walk: Walk, end: PageEnd) -> list[float]:
    """The waits in place, until the page is held."""
    found: list[float] = []
    while isinstance(action := walk.closed(end)[0], Retry):
        found.append(action.delay)
        walk.retry_due(1)
        assert walk.next_page() == 1
    walk.settled(1, None)
    return found


@pytest.mark.parametrize("kind", [ErrorKind.RETRYABLE, ErrorKind.CODE])
def test_in_place_the_delay_doubles_with_full_jitter(kind: ErrorKind) -> None:
    assert delays(walk(), failed(kind)) == [1.0, 2.0, 4.0]
    assert delays(walk(jitter=0.25), failed(kind)) == [0.25, 0.5, 1.0]
    assert delays(walk(jitter=0.0), failed(kind)) == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("kind", [ErrorKind.PERMANENT, ErrorKind.BLOCKED])
def test_what_cannot_help_is_not_tried_in_place(kind: ErrorKind) -> None:
    assert delays(walk(), failed(kind)) == []


def test_retry_after_goes_first_and_has_no_jitter() -> None:
    assert delays(walk(jitter=0.5), failed(ErrorKind.RETRYABLE, 7.0)) == [7.0, 7.0, 7.0]
    assert delays(walk(), failed(ErrorKind.RETRYABLE, 0.0)) == [0.0, 0.0, 0.0]
    assert delays(walk(longest_wait=60), failed(ErrorKind.RETRYABLE, 61.0)) == []


@pytest.mark.parametrize(
    ("attempts", "delay"), [(1, 5.0), (2, 10.0), (3, 20.0), (9, 1280.0), (10, None)]
)
def test_a_shard_backs_off_twice_as_long_each_time(attempts: int, delay: float | None) -> None:
    tried = walk(attempts=attempts, retries=0)
    delays(tried, failed(ErrorKind.RETRYABLE))
    result = tried.result()
    if delay is None:
        assert isinstance(result, Finish) and result.status == "failed"
        assert result.reason == "page 1: Error: it failed (given up after 10 attempts)"
    else:
        assert isinstance(result, Release)
        assert (result.delay, result.spend_attempt) == (delay, True)


@pytest.mark.parametrize(
    ("kind", "retry_after", "delay", "spent"),
    [
        (ErrorKind.RETRYABLE, None, 1.25, True),
        (ErrorKind.RETRYABLE, 90.0, 90.0, True),
        (ErrorKind.RETRYABLE, 90000.0, 1800.0, True),
        (ErrorKind.PERMANENT, None, 1800.0, True),
        (ErrorKind.CODE, None, None, True),
        (ErrorKind.BLOCKED, None, 30.0, False),
        (ErrorKind.BLOCKED, 600.0, 600.0, False),
    ],
)
def test_when_a_shard_is_due_and_what_it_cost(
    kind: ErrorKind, retry_after: float | None, delay: float | None, spent: bool
) -> None:
    tried = walk(retries=0, jitter=0.25)
    delays(tried, failed(kind, retry_after))
    result = tried.result()
    assert isinstance(result, Release)
    assert (result.error_kind, result.delay, result.spend_attempt) == (kind.value, delay, spent)


def test_a_blocked_shard_is_never_given_up() -> None:
    tried = walk(attempts=10, retries=0)
    delays(tried, failed(ErrorKind.BLOCKED))
    assert isinstance(tried.result(), Release)
