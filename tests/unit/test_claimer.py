"""When a process claims, and how many shards it asks for."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from scrapy_resume import claimer, clock
from scrapy_resume.claimer import SHORTEST, Claimer
from scrapy_resume.intake import Intake


class Loop:
    """As much of a claim loop as a claimer sees; *available* shards can be had."""

    def __init__(self, *, shards: int = 8, requests: int = 16, available: int = 0) -> None:
        self.now, self.available, self.asked = 1000.0, available, [(0.0, 0)][:0]
        self.settings = SimpleNamespace(
            shards=shards, heartbeat=3.0, intake=Intake(), site_shards=0
        )
        self.crawler = SimpleNamespace(
            settings=SimpleNamespace(getint={"CONCURRENT_REQUESTS": requests}.__getitem__)
        )
        self.flow = SimpleNamespace(
            shards={}, stopping=False, read_now=0, hold=self._hold, wish=self._hear
        )
        self.session = SimpleNamespace(inc_stat=lambda name, count: None)
        self.task, self.link, self.policy = SimpleNamespace(id=1), None, None
        self.work = SimpleNamespace(claim=None)

    async def ask(
        self, call: Any, task: int, wanted: int, alone: bool, hints: Any, without: Any
    ) -> list[Any]:
        self.asked.append((self.now, wanted))
        self.without = without
        given = min(wanted, self.available)
        self.available -= given
        ids = range(len(self.flow.shards), len(self.flow.shards) + given)
        return [SimpleNamespace(id=number, resumed=False, read_again_at=None) for number in ids]

    def _hear(self, *_: Any) -> None:
        """The wish of an operator, and pages put back: not of interest here."""

    put_back = _hear

    def _hold(self, shard: Any) -> None:
        walk = SimpleNamespace(opening=True, suspect=False, blocked=None)
        self.flow.shards[shard.id] = SimpleNamespace(
            begun=False, waits=False, walk=walk, site=f"site {shard.id}"
        )

    def begin(self) -> None:
        for shard in self.flow.shards.values():
            shard.begun = True


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Loop:
    loop = Loop()
    monkeypatch.setattr(clock, "monotonic", lambda: loop.now)
    monkeypatch.setattr(claimer, "walk_for", lambda shard, policy: shard)
    return loop


def claim(one: Claimer) -> bool:
    return asyncio.run(one.claim())


def test_it_takes_no_more_than_it_can_begin(loop: Loop) -> None:
    loop.settings.shards, loop.available = 100, 200
    claim(Claimer(loop))
    assert loop.asked == [(1000, 16)]


def test_a_stop_while_redis_is_asked_leaves_the_database_alone(loop: Loop) -> None:
    async def take(*_: Any) -> list[int]:
        loop.flow.stopping = True
        return [7]

    loop.available, loop.link = 1, SimpleNamespace(take=take, settle=None)
    claim(Claimer(loop))
    assert loop.asked == [] and loop.flow.shards == {}


def test_it_takes_nothing_while_one_has_not_begun(loop: Loop) -> None:
    loop.settings.shards, loop.available = 100, 200
    one = Claimer(loop)
    claim(one)
    assert not claim(one)
    loop.begin()
    assert claim(one)
    assert [wanted for _, wanted in loop.asked] == [16, 16]


def test_a_shard_that_waits_for_its_site_keeps_only_its_site_from_being_claimed(
    loop: Loop,
) -> None:
    loop.settings.shards, loop.available = 8, 1
    one = Claimer(loop)
    claim(one)
    loop.flow.shards[0].waits = True
    one.again()
    assert claim(one)
    assert [wanted for _, wanted in loop.asked] == [8, 7]
    assert loop.without == {"site 0"}


def test_shards_of_a_site_whose_blocked_ones_still_end_are_not_claimed(loop: Loop) -> None:
    loop.available = 2
    one = Claimer(loop)
    claim(one)
    loop.begin()
    loop.flow.shards[1].walk.blocked = object()
    one.again()
    claim(one)
    assert loop.without == {"site 1"}


def test_it_asks_again_once_a_quarter_is_free(loop: Loop) -> None:
    loop.available = 100
    one = Claimer(loop)
    claim(one)
    loop.begin()
    del loop.flow.shards[0]
    assert not claim(one)
    del loop.flow.shards[1]
    assert claim(one)
    assert [wanted for _, wanted in loop.asked] == [8, 2]


def test_an_empty_queue_is_not_polled(loop: Loop) -> None:
    one = Claimer(loop)
    for _ in range(1000):
        claim(one)
        loop.now += 0.01
    assert len(loop.asked) == 4  # 10 seconds, a heartbeat of 3


def test_news_are_acted_on_but_not_without_end(loop: Loop) -> None:
    one = Claimer(loop)
    for _ in range(1000):
        one.news()
        claim(one)
        loop.now += 0.01
    assert len(loop.asked) <= 10 / SHORTEST
    assert len(loop.asked) >= 90


def test_news_that_come_while_the_database_is_asked_are_not_lost(loop: Loop) -> None:
    one = Claimer(loop)
    ask = loop.ask

    async def asked(*args: Any) -> list[Any]:
        one.news()
        return await ask(*args)

    loop.ask = asked  # type: ignore[method-assign]
    claim(one)
    one.ask_in(600)  # what the outlook says, which was read before the news
    loop.now += SHORTEST
    assert claim(one)


def test_a_shard_that_ended_makes_room_without_delay(loop: Loop) -> None:
    one = Claimer(loop)
    claim(one)
    one.again()
    assert claim(one)


def test_others_who_are_quicker_make_it_wait_longer_each_time(loop: Loop) -> None:
    one = Claimer(loop)
    for _ in range(2000):
        if claim(one):
            one.ask_in(one.pause)
        loop.now += 0.01
    pauses = [later - at for (at, _), (later, _) in zip(loop.asked, loop.asked[1:], strict=False)]
    assert pauses[0] < 0.25 and max(pauses) < 3.1
    assert len(loop.asked) < 20


def test_a_wait_is_as_long_as_the_next_claim_is_away(loop: Loop) -> None:
    one = Claimer(loop)
    assert one.wait == 3
    claim(one)
    loop.now += 1
    assert one.wait == pytest.approx(2)
    one.ask_in(0.5)
    assert one.wait == pytest.approx(0.5)


class Link:
    """A queue in Redis that counts the questions it gets."""

    def __init__(self) -> None:
        self.questions = 0

    async def take(self, wanted: int, intake: Intake) -> list[int]:
        self.questions += 1
        return [7] * wanted

    async def settle(self, hints: list[int], claimed: list[int]) -> None:
        """All of them are done with."""


@pytest.mark.parametrize(("site_shards", "questions"), [(0, 1), (2, 0)])
def test_redis_is_asked_for_no_hints_where_sites_have_a_cap(
    loop: Loop, site_shards: int, questions: int
) -> None:
    loop.link, loop.settings.site_shards, loop.available = Link(), site_shards, 8
    claim(Claimer(loop))
    assert loop.link.questions == questions
