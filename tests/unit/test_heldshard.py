"""A shard that is read for long is reported once, with a size that would fit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scrapy_resume import clock
from scrapy_resume.heldshard import LONG, HeldShard
from scrapy_resume.page import Shard
from scrapy_resume.paging import PagePolicy
from scrapy_resume.store.claims import ClaimedShard
from scrapy_resume.walks import walk_for
from scrapy_resume.watermark import Position


def held(*, ordered: bool = False, page_count: int = 0) -> HeldShard:
    position = Position(version=0, cur_page=page_count, page_count=page_count)
    claimed = ClaimedShard(
        1, 1, 7, Shard("a", 1, None if ordered else 10_000), position, ordered, 1, 1, 10, False, "s"
    )
    return HeldShard(walk_for(claimed, PagePolicy()))


def read(shard: HeldShard, pages: int) -> None:
    position = shard.walk.position
    count = position.page_count + pages
    shard.walk.position = replace(position, version=position.version + 1, page_count=count)


@pytest.fixture
def stats(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(clock, "monotonic", lambda: 0.0)
    return []


def later(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    monkeypatch.setattr(clock, "monotonic", lambda: seconds)


def test_it_is_reported_once_with_the_pages_of_this_claim(
    stats: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    shard = held(page_count=1000)
    read(shard, 40)
    later(monkeypatch, LONG - 1)
    shard.report_if_long(stats.append)
    assert stats == []
    later(monkeypatch, 2 * LONG)
    for _ in range(3):
        shard.report_if_long(stats.append)
    assert stats == ["shards/long"]
    (record,) = caplog.records
    assert record.getMessage() == (
        "Shard 7 has been read for 10 min, 40 pages of it; shards of 20 pages would take about"
        " 5 min each and could be shared out"
    )


@pytest.mark.parametrize(("ordered", "pages"), [(True, 40), (False, 0)], ids=["chain", "stuck"])
def test_nothing_is_said_where_no_size_would_help(
    stats: list[str], monkeypatch: pytest.MonkeyPatch, ordered: bool, pages: int
) -> None:
    shard = held(ordered=ordered)
    read(shard, pages)
    later(monkeypatch, 2 * LONG)
    shard.report_if_long(stats.append)
    assert stats == []
