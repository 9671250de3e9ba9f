"""The heartbeat beats beside the event loop, and stops for a loop that is blocked for ever."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from scrapy_resume import heartbeat
from scrapy_resume.exceptions import StoreUnavailable
from scrapy_resume.heartbeat import SECOND_BEATS, Heartbeat
from scrapy_resume.store.leases import Renewal

BEAT = 0.05  # seconds


class Loop:
    """As much of a claim loop as a heartbeat sees. Calls for the event loop wait in *calls*
    until :meth:`run`: until then it is blocked."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.beats: list[dict[int, int]] = []
        self.seconds: list[float] = []
        self.lost: list[int] = []
        self.error: Exception | None = None
        self.beaten_at = 0
        self.settings = SimpleNamespace(heartbeat=BEAT, lease=5 * BEAT, loop_patience=60.0)
        self.slot = SimpleNamespace(instance="i")
        self.task = SimpleNamespace(id=1)
        shards = {7: SimpleNamespace(id=7, token=3)}
        self.wishes: list[str] = []
        self.flow = SimpleNamespace(shards=shards, lose=self.lost.extend, wish=self.wishes.append)
        self.link = SimpleNamespace(beat=lambda instance, seconds: self.seconds.append(seconds))
        self.control = SimpleNamespace(post=lambda call, *args: call(*args))
        self.work = SimpleNamespace(beat=self._beat)
        self.gate = SimpleNamespace(trying=(), learn=lambda parked: None)
        outage = SimpleNamespace(began=lambda duty, error: None, ended=lambda duty: None)
        self.session = SimpleNamespace(outage=outage)
        self.enough = threading.Event()
        self.journalling: Any = None

    def beaten(self) -> None:
        self.beaten_at += 1

    def _beat(
        self, task_id: int, held: dict[int, int], planning: int | None, probes: tuple[str, ...]
    ) -> Renewal:
        self.beats.append(held)
        if len(self.beats) >= 5:
            self.enough.set()
        if self.error is not None:
            raise self.error
        return Renewal(frozenset({7}) - set(self.flow.shards), "run")

    def run(self) -> None:
        while self.calls:
            call, args = self.calls.pop(0)
            call(*args)


def comes_true(holds: Callable[[], bool]) -> bool:
    """Whether it holds within a time that is long for the slowest machine."""
    deadline = time.monotonic() + 30
    while not holds() and time.monotonic() < deadline:
        time.sleep(BEAT / 10)
    return holds()


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Loop:
    loop = Loop()

    def in_loop(call: Any, *args: Any) -> None:
        loop.calls.append((call, args))

    monkeypatch.setattr(heartbeat, "loop_caller", lambda: in_loop)
    return loop


@pytest.fixture
def beating(loop: Loop) -> Iterator[Heartbeat]:
    beating = Heartbeat(loop)  # type: ignore[arg-type]
    yield beating
    beating.stop()


@pytest.fixture
def clock_at(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    at = [heartbeat.clock.monotonic()]
    monkeypatch.setattr(heartbeat.clock, "monotonic", lambda: at[0])
    return at


def test_a_blocked_loop_keeps_its_leases_and_is_not_unsure(loop: Loop, beating: Heartbeat) -> None:
    beating.start()
    assert loop.enough.wait(60)
    assert loop.beaten_at == 0  # nothing ran in the loop
    assert loop.beats[0] == {7: 3}
    assert comes_true(lambda: not beating.unsure)
    assert set(loop.seconds) == {SECOND_BEATS * BEAT}
    assert loop.settings.lease > SECOND_BEATS * BEAT
    loop.run()
    assert loop.beaten_at >= 1


def test_a_loop_that_is_blocked_for_too_long_renews_no_more(
    loop: Loop, beating: Heartbeat, caplog: pytest.LogCaptureFixture
) -> None:
    loop.settings.loop_patience = 0.0001
    beating.start()
    assert comes_true(lambda: "RESUME_LOOP_PATIENCE" in caplog.text)
    time.sleep(5 * BEAT)
    assert (loop.beats, loop.seconds) == ([], [])
    assert caplog.text.count("RESUME_LOOP_PATIENCE") == 1
    loop.settings.loop_patience = 60.0
    loop.run()
    assert loop.enough.wait(60)


def test_a_database_that_is_away_makes_it_unsure(loop: Loop, beating: Heartbeat) -> None:
    loop.error = StoreUnavailable("away")
    beating.start()
    assert loop.enough.wait(60)
    assert comes_true(lambda: beating.unsure)


def test_with_a_journal_reading_goes_on_while_the_database_is_away(
    loop: Loop, beating: Heartbeat
) -> None:
    loop.journalling = object()
    loop.error = StoreUnavailable("away")
    beating.start()
    assert loop.enough.wait(60)
    assert comes_true(lambda: beating.missing and not beating.unsure)
    loop.error = ValueError("no outage")
    loop.beats.clear()
    loop.enough.clear()
    assert loop.enough.wait(60)
    assert comes_true(lambda: not beating.missing and beating.unsure)


@pytest.mark.parametrize("fails", [True, False])
def test_with_a_journal_a_beat_without_an_answer_is_an_outage_unless_we_were_frozen(
    loop: Loop, beating: Heartbeat, clock_at: list[float], fails: bool
) -> None:
    loop.journalling = object()
    if fails:
        loop.error = StoreUnavailable("away")
    else:  # it hangs
        loop.control = SimpleNamespace(post=lambda *call: None)
    for _ in range(7):  # more than a lease
        clock_at[0] += BEAT
        beating.tick()
    assert not beating.unsure
    clock_at[0] += 10 * BEAT
    assert beating.unsure  # it is looked at before the heartbeat's thread wakes
    loop.control = SimpleNamespace(post=lambda *call: None)
    beating.tick()
    assert beating.unsure  # what the database says by now nobody knows
    clock_at[0] += BEAT
    beating.tick()
    assert not beating.unsure  # it is still silent


def test_a_slow_beat_is_not_joined_by_another(loop: Loop, beating: Heartbeat) -> None:
    posted = []
    loop.control = SimpleNamespace(post=lambda *call: posted.append(call))
    beating.tick()
    beating.tick()
    assert len(posted) == 1


def test_what_was_lost_is_told_in_the_loop_if_it_is_the_same_claim(
    loop: Loop, beating: Heartbeat
) -> None:
    loop.work = SimpleNamespace(beat=lambda *_: Renewal(frozenset({7}), "run"))
    beating.tick()
    assert loop.lost == []
    loop.run()
    assert loop.lost == [7]
    loop.lost.clear()
    beating.tick()
    loop.flow.shards[7].token = 4  # claimed again meanwhile
    loop.run()
    assert loop.lost == []


def test_nobody_is_sure_of_a_lost_shard_before_the_loop_has_dropped_it(
    loop: Loop, beating: Heartbeat, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.monotonic() + 60  # the process was frozen
    monkeypatch.setattr(heartbeat.clock, "monotonic", lambda: now)
    loop.work = SimpleNamespace(beat=lambda *_: Renewal(frozenset({7}), "run"))
    beating.tick()
    assert beating.unsure
    loop.run()
    assert loop.lost == [7]
    assert not beating.unsure


def test_it_ends_with_the_loop(
    loop: Loop, beating: Heartbeat, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(*_: Any) -> None:
        raise RuntimeError("Event loop is closed")

    monkeypatch.setattr(beating, "_in_loop", closed)
    beating.start()
    beating._thread.join(10)
    assert not beating._thread.is_alive()
