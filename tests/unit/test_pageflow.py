"""The page flow by itself: whose shard a late answer is about."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from scrapy import Request
from twisted.internet.defer import Deferred

from scrapy_resume.heldshard import HeldShard
from scrapy_resume.pageflow import PageFlow
from scrapy_resume.paging import Commit, Discard, PagePolicy, Walk
from scrapy_resume.store.checkpoints import Finish, PageRecord
from scrapy_resume.submission import Outcome
from scrapy_resume.walks import BoundedWalk, ChainWalk
from scrapy_resume.watermark import Position
from tests.unit.test_walks import claimed, trouble


def nothing(*_: Any, **__: Any) -> None:
    """A listener that does not mind."""


def page_flow() -> PageFlow:
    committer = SimpleNamespace(
        submit=lambda *_: Deferred(), consider=nothing, hold=nothing, lose=nothing
    )
    return PageFlow(
        cast(Any, SimpleNamespace(end_statuses=(404,))),
        cast(Any, committer),
        hold_records=False,
        wake=nothing,
        freed=nothing,
        stopped=nothing,
        fail=nothing,
        grace=1.0,
        inc_stat=nothing,
    )


def test_the_end_of_an_earlier_claim_does_not_forget_the_new_one() -> None:
    flow = page_flow()
    earlier = HeldShard(BoundedWalk(claimed(last=3), PagePolicy()))
    flow.hold(BoundedWalk(claimed(last=3), PagePolicy()))
    new = flow.shards[earlier.id]
    flow._follow._ended(earlier, Finish(earlier.id, earlier.token, "done", "read"), True)
    assert flow.shards == {new.id: new}
    flow._follow._ended(new, Finish(new.id, new.token, "done", "read"), True)
    assert flow.shards == {}


def test_a_shard_claimed_anew_before_its_loss_was_noticed_lets_go_of_its_pages() -> None:
    flow = page_flow()
    dropped: list[Any] = []
    flow.ledger = cast(Any, SimpleNamespace(drop=dropped.append, abandon=nothing))
    flow.hold(BoundedWalk(claimed(last=3), PagePolicy()))
    (earlier,) = flow.shards.values()
    page = cast(Any, SimpleNamespace(token="one"))
    flow.opened(earlier, 1, page, Request("http://site/list?page=1"))
    held_up: Deferred[None] = Deferred()
    earlier.waiting[1] = held_up
    flow.hold(BoundedWalk(claimed(last=3), PagePolicy()))
    assert held_up.called
    assert dropped == [page]
    assert flow.read_now == 0
    (new,) = flow.shards.values()
    assert new is not earlier


def submitted(flow: PageFlow, shard: HeldShard, number: int) -> tuple[Any, Deferred[Outcome]]:
    """Submit a page; what its committer would call once the journal holds it, and when stored."""
    told: list[Any] = []
    stored: Deferred[Outcome] = Deferred()

    def submit(record: Any, let_go: Any) -> Deferred[Outcome]:
        told.append(let_go)
        return stored

    flow._follow._committer.submit = submit  # type: ignore[method-assign]
    flow.act(shard, [Commit(PageRecord(shard.id, shard.token, number, ()))])
    return told[0], stored


def opened(flow: PageFlow, number: int) -> HeldShard:
    (shard,) = flow.shards.values()
    assert shard.walk.next_page() == number
    page = cast(Any, SimpleNamespace(token=f"{number}", fingerprints=[b"%d" % number]))
    flow.opened(shard, number, page, Request("http://site/"))
    return shard


def journalling_flow(walk: Walk) -> tuple[PageFlow, list[Any]]:
    flow, remembered = page_flow(), list[Any]()
    flow.ledger = cast(Any, SimpleNamespace(abandon=nothing, remember=remembered.append))
    flow.hold(walk)
    return flow, remembered


def test_a_page_in_the_journal_is_let_go_and_counts_as_a_duplicate_once_it_is_committed() -> None:
    flow, remembered = journalling_flow(BoundedWalk(claimed(last=3), PagePolicy(in_flight=1)))
    shard = opened(flow, 1)
    request: Deferred[None] = Deferred()
    shard.waiting[1] = request
    let_go, stored = submitted(flow, shard, 1)
    assert not shard.walk.may_open
    let_go()
    assert request.called and shard.walk.may_open
    assert (remembered, shard.open, shard.sights) == ([], {}, {})
    stored.callback(Outcome("committed", Position(1, 1)))
    assert remembered == [(b"1",)]
    assert (shard.walk.position.cur_page, shard.walk.in_flight) == (1, set())


def test_what_becomes_of_a_page_that_was_discarded_is_no_news_of_its_next_reading(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A chain whose page 1 is refused reads page 2 anew, whose first record is still on its way."""
    flow, remembered = journalling_flow(ChainWalk(claimed(ordered=True), PagePolicy()))
    shard = opened(flow, 1)
    shard.walk.read(1, '"2"', None)
    opened(flow, 2)
    _, first = submitted(flow, shard, 2)
    flow.act(shard, [Discard(2)])
    opened(flow, 2)
    first.callback(Outcome("refused", trouble=trouble()))
    assert 2 in shard.open and 2 in shard.walk.in_flight and not shard.timers
    let_go, second = submitted(flow, shard, 2)
    let_go()
    second.callback(Outcome("committed", Position(2, 2)))
    assert (remembered, shard.walk.position.cur_page) == ([(b"2",)], 2)
    assert not caplog.messages


def test_what_is_still_read_when_the_grace_is_over_is_not_judged() -> None:
    """Its requests are ended by us: as failures of the site they would be rejects."""
    flow, _ = journalling_flow(BoundedWalk(claimed(last=3), PagePolicy()))
    shard = opened(flow, 1)
    opened(flow, 2)
    submitted(flow, shard, 1)
    engine: Deferred[None] = Deferred()
    shard.waiting[2] = engine
    flow.abandon()
    assert engine.called and [*shard.open] == [1]  # which waits for its commit
    assert flow.page_closed(cast(Any, SimpleNamespace(token="2"))) is None
    assert [*shard.committing] == [1]
