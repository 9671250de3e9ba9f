"""The page flow by itself: whose shard a late answer is about."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from twisted.internet.defer import Deferred

from scrapy_resume.heldshard import HeldShard
from scrapy_resume.pageflow import PageFlow
from scrapy_resume.paging import PagePolicy
from scrapy_resume.store.checkpoints import Finish
from scrapy_resume.walks import BoundedWalk
from tests.unit.test_walks import claimed


def nothing(*_: Any, **__: Any) -> None:
    """A listener that does not mind."""


def page_flow() -> PageFlow:
    committer = SimpleNamespace(positions={}, submit=lambda record: Deferred(), consider=nothing)
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
    flow._ended(earlier, Finish(earlier.id, earlier.token, "done", "read"), True)
    assert flow.shards == {new.id: new}
    flow._ended(new, Finish(new.id, new.token, "done", "read"), True)
    assert flow.shards == {}


def test_a_shard_claimed_anew_before_its_loss_was_noticed_lets_go_of_its_pages() -> None:
    flow = page_flow()
    dropped: list[Any] = []
    flow.ledger = cast(Any, SimpleNamespace(drop=dropped.append, abandon=nothing))
    flow.hold(BoundedWalk(claimed(last=3), PagePolicy()))
    (earlier,) = flow.shards.values()
    page = cast(Any, SimpleNamespace(token="one"))
    flow.opened(earlier, 1, page)
    held_up: Deferred[None] = Deferred()
    earlier.waiting[1] = held_up
    flow.hold(BoundedWalk(claimed(last=3), PagePolicy()))
    assert held_up.called
    assert dropped == [page]
    assert flow.read_now == 0
    (new,) = flow.shards.values()
    assert new is not earlier
