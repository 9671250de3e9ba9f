"""Whether Redis takes part: one line for each turn, and questions at their interval only."""

from __future__ import annotations

import logging

import pytest

from scrapy_resume import clock
from scrapy_resume.exceptions import ConfigurationError, QueueUnavailable
from scrapy_resume.presence import Presence


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    time = [100.0]
    monkeypatch.setattr(clock, "monotonic", lambda: time[0])
    return time


def test_it_asks_once_in_an_interval(now: list[float]) -> None:
    presence = Presence("redis://r/0", 5.0, lambda: None)
    assert not presence.away and not presence.asks()
    presence.fail(QueueUnavailable("down"))
    assert presence.away and not presence.asks()
    now[0] += 5
    assert presence.asks()
    assert not presence.asks()  # somebody asks already
    presence.recover()
    assert not presence.away and not presence.asks()


def test_one_line_when_it_goes_and_one_when_it_is_back(
    now: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    gone: list[int] = []
    presence = Presence("redis://r/0", 5.0, lambda: gone.append(1))
    for _ in range(10):
        presence.fail(QueueUnavailable("down"))
        now[0] += 5
    presence.recover()
    presence.recover()
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert caplog.messages[0] == (
        "Redis at redis://r/0 is away: down; the crawl goes on without it, and asks it again"
        " every 5 s"
    )
    assert caplog.messages[1] == "Redis at redis://r/0 is back after 50 s"
    assert gone == [1]


def test_what_needs_somebody_to_act_is_told_once_more(
    now: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    presence = Presence("redis://r/0", 5.0, lambda: None)
    presence.fail(QueueUnavailable("down"))
    for _ in range(3):
        presence.fail(QueueUnavailable("loading"))
        presence.fail(QueueUnavailable("full", heals=False))
        presence.fail(ConfigurationError("refuses us"))
    assert [text.partition(" is ")[2].partition(";")[0] for text in caplog.messages] == [
        "away: down", "still away: full", "still away: refuses us"
    ]  # fmt: skip
