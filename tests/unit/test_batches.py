"""Batches and patience, with a thread, a clock and timers that the test moves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest
from twisted.internet.defer import Deferred

from scrapy_resume import batches, patience
from scrapy_resume.batches import Batches, BatchLimits
from scrapy_resume.exceptions import StoreUnavailable
from scrapy_resume.outage import Outage
from scrapy_resume.patience import Patience
from scrapy_resume.store.items.table import Row, default_row
from scrapy_resume.store.records import CommitResult
from scrapy_resume.threads import StoreThread


class Timer:
    def __init__(self, at: float, call: Callable[[], None]) -> None:
        self.at, self.call, self.over = at, call, False

    def cancel(self) -> None:
        self.over = True


class Thread:
    """Keeps calls until the test answers them, as a slow database does."""

    def __init__(self) -> None:
        self.calls: list[tuple[Deferred[Any], tuple[Any, ...]]] = []

    def call(self, func: Callable[..., Any], *args: Any) -> Deferred[Any]:
        done: Deferred[Any] = Deferred()
        self.calls.append((done, args))
        return done


class World:
    """The batches of one crawl."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **limits: Any) -> None:
        self.now, self.timers, self.stats = 0.0, list[Timer](), Counter[str]()
        self.failures: list[BaseException] = []
        monkeypatch.setattr(batches, "call_later", self.call_later)
        monkeypatch.setattr(patience, "call_later", self.call_later)
        monkeypatch.setattr(batches, "maybe_deferred_to_future", lambda deferred: deferred)
        monkeypatch.setattr("scrapy_resume.clock.monotonic", lambda: self.now)
        monkeypatch.setattr(patience.random, "uniform", lambda low, high: high)
        self.thread = Thread()
        kind = {"rows": 3, "delay": 1.0, **limits}
        self.batches = Batches(
            Patience(
                "batches", cast("StoreThread", self.thread), Outage(10),
                seconds=10, inc_stat=self.inc,
            ),
            lambda rows: CommitResult(written=len(rows)),
            BatchLimits(**kind),
            inc_stat=self.inc,
            on_failure=self.failures.append,
        )  # fmt: skip

    def inc(self, name: str, count: float = 1) -> None:
        self.stats[name] += int(count)

    def call_later(self, delay: float, call: Callable[..., None], *args: Any) -> Timer:
        self.timers.append(Timer(self.now + delay, lambda: call(*args)))
        return self.timers[-1]

    def wait(self, seconds: float) -> None:
        """Let time pass and what is due happen."""
        self.now += seconds
        for timer in [one for one in self.timers if one.at <= self.now and not one.over]:
            timer.over = True
            timer.call()

    def add(self, *names: str) -> list[bool]:
        """Add rows; tells for each whether its bringer may go on."""
        return [_ran(self.batches.add(row(name))) for name in names]

    @property
    def writing(self) -> list[list[str]]:
        """The batches that the thread was given and has not stored."""
        return [[one.key[1] for one in rows] for _, (rows,) in self.thread.calls]

    def store(self) -> None:
        """The database takes the batch."""
        done, (rows,) = self.thread.calls.pop(0)
        done.callback(CommitResult(written=len(rows)))

    def fail(self, error: Exception | None = None) -> None:
        done, _ = self.thread.calls.pop(0)
        done.errback(error or StoreUnavailable("away", {"reconnects": 2}))


def row(name: str) -> Row:
    return default_row("spider", name, "x" * 10)


def _ran(coroutine: Coroutine[Any, Any, Any]) -> bool:
    """Let *coroutine* go on; did it end, or does it wait?"""
    try:
        coroutine.send(None)
    except StopIteration:
        return True
    return False


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_a_batch_goes_when_it_has_enough_rows(world: World) -> None:
    assert world.add("a", "b") == [True, True]
    assert world.writing == []
    world.add("c")
    assert world.writing == [["a", "b", "c"]]


def test_a_batch_goes_when_it_has_enough_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, rows=1000, size=batches.size_of(row("a")) * 2)
    world.add("a")
    assert world.writing == []
    world.add("b")
    assert world.writing == [["a", "b"]]


def test_the_delay_counts_from_the_first_row_of_the_batch(world: World) -> None:
    world.add("a")
    world.wait(0.9)
    world.add("b")
    assert world.writing == []
    world.wait(0.1)
    assert world.writing == [["a", "b"]]
    world.wait(5)
    world.store()
    world.add("c")
    assert world.writing == []
    world.wait(1)
    assert world.writing == [["c"]]


def test_a_batch_whose_time_is_up_while_another_is_written_goes_next(world: World) -> None:
    world.add("a", "b", "c", "d")
    world.wait(1)
    assert world.writing == [["a", "b", "c"]]
    world.store()
    assert world.writing == [["d"]]


def test_whoever_finds_both_batches_full_waits_and_the_order_stays(world: World) -> None:
    assert world.add(*"abcdef") == [True] * 6
    waits = [world.batches.add(row(name)) for name in "ghij"]
    assert [_ran(one) for one in waits] == [False] * 4
    assert world.batches.crowded
    world.store()
    assert world.writing == [["d", "e", "f"]]
    world.store()
    assert world.writing == [["g", "h", "i"]]
    assert not world.batches.crowded
    world.wait(1)
    world.store()
    assert world.writing == [["j"]]


def test_a_flush_stores_all_without_waiting_for_company(world: World) -> None:
    world.add("a", "b", "c", "d")
    flush = world.batches.flush()
    assert not _ran(flush)
    world.store()
    assert world.writing == [["d"]]
    assert not _ran(flush)
    world.store()
    assert _ran(flush)
    assert world.stats["items/written"] == 4


def test_a_database_that_is_away_is_asked_again_after_growing_waits(world: World) -> None:
    world.add("a", "b", "c")
    for wait in (0.5, 1.0, 2.0, 4.0):
        world.fail()
        world.wait(wait - 0.01)
        assert world.writing == []
        world.wait(0.01)
        assert world.writing == [["a", "b", "c"]]
    world.store()
    assert (world.stats["commit/reconnects"], world.stats["items/lost"]) == (8, 0)
    assert world.failures == []


def test_what_waits_when_the_patience_is_over_is_counted_as_lost(world: World) -> None:
    world.add(*"abcd")
    waits = [world.batches.add(row(name)) for name in "efg"]
    assert [_ran(one) for one in waits] == [True, True, False]
    world.fail()
    world.wait(0.5)
    world.now += 11
    world.fail()
    assert len(world.failures) == 1
    assert world.stats["items/lost"] == 7
    assert not world.batches.crowded
    assert world.add("h") == [True]  # the crawl closes: it is counted and holds up nobody
    assert world.stats["items/lost"] == 8
    with pytest.raises(StoreUnavailable):
        _ran(world.batches.flush())


def test_a_stop_is_patient_for_its_grace_only(world: World) -> None:
    world.add("a", "b", "c")
    world.fail()
    world.batches.hurry(2)
    assert world.writing == [["a", "b", "c"]]  # at once
    world.fail()
    world.wait(1.0)
    world.fail()
    world.wait(1.0)
    world.fail()
    assert world.stats["items/lost"] == 3


def test_what_is_no_outage_is_not_repeated(world: World) -> None:
    world.add("a", "b", "c")
    world.fail(RuntimeError("no such table"))
    assert [str(error) for error in world.failures] == ["no such table"]
    assert world.writing == []


def test_a_stop_waits_for_no_company(world: World) -> None:
    world.add("a")
    world.batches.hurry(2)
    assert world.writing == [["a"]]
    world.add("b")
    world.store()
    assert world.writing == [["b"]]


# What an outage's log says


def test_an_outage_is_said_once_by_whichever_duty_meets_it(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scrapy_resume.clock.monotonic", lambda: 0.0)
    outage = Outage(600)
    for _ in range(3):
        outage.began("heartbeat", StoreUnavailable("gone", {"reconnects": 1}))
        outage.began("commits", StoreUnavailable("gone", {"reconnects": 1}))
    outage.ended("heartbeat")
    outage.ended("claims")
    assert len(caplog.records) == 1  # the commits have not got through yet
    outage.ended("commits")
    assert [record.getMessage()[:20] for record in caplog.records] == [
        "The database is away",
        "The database is back",
    ]


def test_deadlocks_without_end_are_called_busy(caplog: pytest.LogCaptureFixture) -> None:
    Outage(600).began("commits", StoreUnavailable("failed 8 times", {"deadlocks": 8}))
    assert "The database is busy: failed 8 times" in caplog.text
