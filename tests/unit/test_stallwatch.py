"""When a run counts as stalled, and how often that is told."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from scrapy_resume import clock
from scrapy_resume.exceptions import StoreUnavailable
from scrapy_resume.stallwatch import StallWatch

AFTER = 100.0


class World:
    """A process that stored a page at *moved*, in a run in which *since* seconds are quiet."""

    def __init__(self) -> None:
        self.now = self.moved = 1000.0
        self.since: float | Exception = 0.0
        self.asked = 0
        self.told: list[tuple[float, str]] = []
        self.flow = SimpleNamespace(wished="run", shards={7: object()})
        self.task = SimpleNamespace(id=1, name="books")
        self.control, self.session = self, SimpleNamespace(database=None)

    async def run(self, call: Callable[..., Any], *args: Any) -> float:
        self.asked += 1
        if isinstance(self.since, Exception):
            raise self.since
        return self.since

    def stalled(self, seconds: float, reason: str) -> None:
        self.told.append((seconds, reason))

    def look(self, watch: StallWatch) -> float:
        coroutine = watch.look()
        try:
            coroutine.send(None)
        except StopIteration as done:
            return float(done.value)
        raise AssertionError("it waits for something")


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    world = World()
    monkeypatch.setattr(clock, "monotonic", lambda: world.now)
    return world


@pytest.fixture
def watch(world: World) -> StallWatch:
    return StallWatch(world, world, AFTER)  # type: ignore[arg-type]


def test_nothing_is_asked_while_pages_are_stored_here(world: World, watch: StallWatch) -> None:
    world.now += AFTER - 10
    assert world.look(watch) == 10
    assert (world.told, world.asked) == ([], 0)


def test_who_waits_for_others_that_get_on_does_not_stall(world: World, watch: StallWatch) -> None:
    world.now += AFTER + 50
    world.since = 30.0
    assert world.look(watch) == AFTER - 30
    assert (world.told, world.asked) == ([], 1)


def test_a_stall_is_told_once_until_something_moves(world: World, watch: StallWatch) -> None:
    for _ in range(3):
        world.now += AFTER
        world.since = 1e6  # a run that rested for days is not stalled before it is tried
        assert world.look(watch) == AFTER
    assert [seconds for seconds, _ in world.told] == [AFTER]
    assert "holds 1 shard(s); `scrapy resume why books`" in world.told[0][1]
    world.moved = world.now
    world.now += 1
    world.look(watch)
    world.now += AFTER
    world.look(watch)
    assert [seconds for seconds, _ in world.told] == [AFTER, AFTER + 1]


def test_a_database_that_is_away_stalls_too(world: World, watch: StallWatch) -> None:
    world.now += AFTER
    world.since = StoreUnavailable("gone")
    world.look(watch)
    assert world.told == [(AFTER, "the database cannot be reached")]


def test_what_an_operator_paused_does_not_stall(world: World, watch: StallWatch) -> None:
    world.now += AFTER
    world.since, world.flow.wished = 1e6, "pause"
    assert world.look(watch) == AFTER
    assert world.told == []
