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


def test_the_end_of_an_earlier_claim_does_not_forget_the_new_one() -> None:
    committer = SimpleNamespace(positions={}, submit=lambda record: Deferred(), consider=nothing)
    flow = PageFlow(
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
    earlier = HeldShard(BoundedWalk(claimed(last=3), PagePolicy()))
    flow.hold(BoundedWalk(claimed(last=3), PagePolicy()))
    new = flow.shards[earlier.id]
    flow._ended(earlier, Finish(earlier.id, earlier.token, "done", "read"), True)
    assert flow.shards == {new.id: new}
    flow._ended(new, Finish(new.id, new.token, "done", "read"), True)
    assert flow.shards == {}
