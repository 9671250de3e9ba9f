"""Which failed pages are doubted, since their whole site may refuse; and where a site ends."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from scrapy import Request

from scrapy_resume.boundedwalk import BoundedWalk
from scrapy_resume.doubts import Doubts
from scrapy_resume.health import HealthLimits, Signal
from scrapy_resume.heldshard import HeldShard
from scrapy_resume.page import Decision, ErrorKind, Trouble, Where
from scrapy_resume.paging import PageEnd, PagePolicy
from scrapy_resume.sitewatch import SiteWatch
from scrapy_resume.store.checkpoints import Release
from scrapy_resume.suspicion import Sight
from scrapy_resume.walks import ChainWalk
from scrapy_resume.watermark import PageRanges, Position
from tests.unit.test_walks import Driver, claimed, complete, failed

BAD, GOOD = Signal.STATUS, Signal.OK


def wrong(number: int, status: int | None = 400, kind: ErrorKind = ErrorKind.PERMANENT) -> PageEnd:
    trouble = Trouble(Where.PAGE, kind, "HttpError", f"HTTP {status}", status=status)
    return PageEnd(number, Decision.FAILED, trouble)


def is_doubted(end: PageEnd, answers: list[Signal], *, tries: int = 1, **given: Any) -> bool:
    """Whether page 1 is, after that many tries, of a site that gave those answers."""
    watch = SiteWatch(HealthLimits(), on=given.get("on", True), inc_stat=lambda *_: None)
    flow = SimpleNamespace(spider=None, wake=None, shards={})
    doubts = Doubts(cast(Any, flow), watch)
    walk = BoundedWalk(claimed(last=9), PagePolicy(retries=given.get("retries", 0)))
    shard = HeldShard(walk)
    walk.attempts[1] = tries
    shard.sights[1] = Sight(Request("http://a.invalid"), 1, vouched=given.get("vouched", False))
    for signal in answers:
        watch.note(shard.site, signal, "", "http://a.invalid")
    return doubts.suspects(shard, end)


@pytest.mark.parametrize(("status", "kind"), [
    (403, ErrorKind.PERMANENT), (503, ErrorKind.RETRYABLE), (None, ErrorKind.RETRYABLE),
])  # fmt: skip
def test_a_page_that_got_no_good_answer_since_it_was_first_asked_for_is_doubted(
    status: int | None, kind: ErrorKind
) -> None:
    end = wrong(1, status, kind)
    assert is_doubted(end, [GOOD, BAD])
    assert is_doubted(end, [GOOD, BAD, BAD], tries=2)
    assert not is_doubted(end, [BAD, GOOD])
    assert not is_doubted(end, [BAD, GOOD, BAD], tries=2)
    assert not is_doubted(end, [BAD], on=False)
    assert not is_doubted(end, [BAD], vouched=True)


def test_a_page_that_is_tried_again_is_not_doubted_yet() -> None:
    end = wrong(1, 503, ErrorKind.RETRYABLE)
    assert not is_doubted(end, [BAD], retries=1)
    assert is_doubted(end, [BAD, BAD], retries=1, tries=2)


@pytest.mark.parametrize(
    "end",
    [
        wrong(1, 404), wrong(1, 500, ErrorKind.RETRYABLE), wrong(1, None, ErrorKind.CODE),
        wrong(1, 403, ErrorKind.BLOCKED), complete(1),
    ],
    ids=["404", "500", "code", "blocked", "complete"],
)  # fmt: skip
def test_what_is_no_refusal_is_not_doubted(end: PageEnd) -> None:
    assert not is_doubted(end, [BAD, BAD])


# A site that goes no deeper


def bounded(last: int, *, position: Position | None = None, slots: int = 1) -> Driver:
    policy = PagePolicy(in_flight=slots, retries=0)
    return Driver(BoundedWalk(claimed(last=last, position=position), policy))


def ends(last: int, bad: set[int]) -> dict[int, PageEnd]:
    return {n: wrong(n) if n in bad else complete(n) for n in range(1, last + 1)}


def test_a_last_page_that_fails_in_another_way_proves_nothing() -> None:
    driver = bounded(12)
    driver.run(ends(12, {5, 6, 7}) | {12: failed(12)})
    assert sorted(driver.committed) == [1, 2, 3, 4, 8, 9, 10, 11]
    assert "depth limit" not in driver.walk.result().reason


def test_a_page_beyond_that_is_read_meanwhile_shows_that_it_goes_deeper() -> None:
    driver = bounded(12, slots=4)
    driver.fill()
    for number in (1, 2, 3, 4):
        driver.end(complete(number))
        driver.fill()
    for end in (wrong(5), wrong(6), wrong(7)):
        driver.end(end)
    driver.fill()
    assert driver.open == [8, 12]
    for end in (complete(8), wrong(12)):
        driver.end(end)
    driver.run(ends(12, set()))
    assert sorted(driver.committed) == [1, 2, 3, 4, 8, 9, 10, 11]
    assert "depth limit" not in driver.walk.result().reason


def test_so_does_one_that_an_earlier_claim_read() -> None:
    ahead = Position(1, 4, ahead=PageRanges(((10, 10),)))
    driver = bounded(12, position=ahead)
    driver.run(ends(12, {5, 6, 7, 12}))
    assert sorted(driver.committed) == [8, 9, 11]


def test_a_chain_says_so_only_if_it_got_somewhere() -> None:
    for position, said in ((Position(0, 0), "page 1: "), (Position(1, 4), "depth limit at page 5")):
        driver = Driver(ChainWalk(claimed(ordered=True, position=position), PagePolicy(retries=0)))
        driver.run({1: wrong(1), 5: wrong(5)}, chain=True)
        result = driver.walk.result()
        assert isinstance(result, Release) and result.reason.startswith(said)
