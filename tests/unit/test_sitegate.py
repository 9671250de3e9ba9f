"""The gate by itself: what it tells the database and what it does with the answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
from twisted.internet.defer import Deferred

from scrapy_resume import clock, sitegate
from scrapy_resume.exceptions import StoreUnavailable
from scrapy_resume.health import HealthLimits, Signal, SiteState
from scrapy_resume.heldshard import Probe
from scrapy_resume.intake import Intake
from scrapy_resume.pageflow import PageFlow
from scrapy_resume.paging import PagePolicy
from scrapy_resume.sitegate import SiteGate
from scrapy_resume.sitewatch import SiteWatch
from scrapy_resume.store.checkpoints import Release
from scrapy_resume.store.sites import ParkedSite
from scrapy_resume.walks import BoundedWalk
from tests.unit.test_walks import claimed

SITE = "site"


def nothing(*_: Any, **__: Any) -> None:
    """A listener that does not mind."""


@dataclass
class Loop:
    """A claim loop whose database answers when a test says so; *said* is what it was told."""

    down: bool = False
    said: list[tuple[Any, ...]] = field(default_factory=list)
    released: list[Any] = field(default_factory=list)
    waiting: list[Deferred[None]] = field(default_factory=list)
    slow: bool = False
    told_others: int = 0
    policy: PagePolicy = field(default_factory=PagePolicy)
    on_record: dict[str, ParkedSite] = field(default_factory=dict)
    to_try: Any = None
    right: bool = True
    on: bool = True

    def __post_init__(self) -> None:
        watch = SiteWatch(HealthLimits(), on=self.on, inc_stat=nothing)
        committer = SimpleNamespace(
            submit=self._submit, consider=nothing, hold=nothing, lose=nothing
        )
        self.spider = SimpleNamespace(end_statuses=(404,), has_probe=False)
        self.flow = PageFlow(
            cast(Any, self.spider), cast(Any, committer), hold_records=False, wake=nothing,
            freed=nothing, stopped=nothing, fail=nothing, grace=1.0, inc_stat=nothing, watch=watch,
        )  # fmt: skip
        self.session = SimpleNamespace(watch=watch, inc_stat=nothing, database=None)
        self.settings = SimpleNamespace(shards=8, intake=Intake(), heartbeat=3.0)
        self.slot = SimpleNamespace(instance="me")
        self.task = SimpleNamespace(id=1)
        self.control = SimpleNamespace(run=self._run, post=lambda call, *args: call(*args))
        self.gate = SiteGate(cast(Any, self))
        self.gate._work = cast(Any, self)

    def _submit(self, record: Any, *_: Any) -> Deferred[Any]:
        self.released.append(record)
        return Deferred()

    async def _run(self, call: Any) -> Any:
        if self.slow:
            self.waiting.append(Deferred())
            await self.waiting[-1]
        if self.down:
            raise StoreUnavailable("away")
        return call()

    async def ask(self, call: Any, *args: Any) -> Any:
        return call(*args)

    def tell_others(self) -> None:
        self.told_others += 1

    def put_back(self, at: Any) -> None: ...

    # The store's part

    def judge_site(self, *args: Any) -> Any:
        self.said.append(args)
        return SimpleNamespace(state=args[1], reason=args[2])

    def probe_result(self, site: str, passed: bool, reason: str, rest: float) -> Any:
        self.said.append((site, passed, reason))
        return SimpleNamespace(state="healthy" if passed else "blocked", reason=reason)

    def drop_probe(self, site: str) -> None:
        self.said.append((site, None))

    def parked(self) -> dict[str, ParkedSite]:
        return self.on_record

    def claim_probe(self, task_id: int, site: str, alone: bool) -> Any:
        self.alone = alone
        found, self.to_try = self.to_try, None
        return self.right, found

    # What a test does

    def hold(self) -> Any:
        self.flow.hold(BoundedWalk(claimed(last=3), self.policy))
        return self.flow.shards[1]

    def learn(self, state: str = "blocked", left: float | None = 9.0, prober: str = "") -> None:
        self.on_record = {SITE: ParkedSite(SITE, state, "403s", left, prober or None)}
        self.gate.learn(self.on_record)

    def tend(self) -> None:
        with pytest.raises(StopIteration):
            self.gate.tend().send(None)


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    time = [100.0]
    monkeypatch.setattr(clock, "monotonic", lambda: time[0])
    return time


@pytest.fixture
def loop(now: list[float], monkeypatch: pytest.MonkeyPatch) -> Loop:
    monkeypatch.setattr(sitegate, "deferred_from_coro", Deferred.fromCoroutine)
    loop = Loop()
    loop.tend()  # its first look
    return loop


def test_what_we_judge_is_told_at_once(loop: Loop) -> None:
    loop.session.watch.note(SITE, Signal.BLOCKED, "a captcha")
    assert loop.said == [(SITE, "blocked", "a captcha", 0.0)]


def test_what_could_not_be_told_is_told_with_the_next_heartbeat(loop: Loop) -> None:
    loop.down = True
    loop.session.watch.note(SITE, Signal.BLOCKED, "a captcha")
    assert loop.said == []
    loop.gate.learn(None)  # not a heartbeat of the database
    loop.down = False
    loop.gate.learn({})
    loop.gate.learn({})
    assert loop.said == [(SITE, "blocked", "a captcha", 0.0)]


def test_a_block_is_told_although_a_suspicion_is_still_on_its_way(loop: Loop) -> None:
    """And at once: the process may end before its next heartbeat."""
    loop.session.watch.note(SITE, Signal.EMPTY, "page 1")
    loop.slow = True
    for _ in range(2):
        loop.gate.learn({})
    loop.session.watch.note(SITE, Signal.BLOCKED, "a captcha")
    while loop.waiting:
        loop.waiting.pop().callback(None)
    assert [said[1] for said in loop.said] == ["suspect", "blocked"]


def test_a_block_is_told_although_it_is_not_yet_told_that_the_site_passed(loop: Loop) -> None:
    loop.to_try = claimed(last=3)
    loop.learn(left=0.0)
    loop.tend()
    loop.slow = True
    (shard,) = loop.flow.shards.values()
    probe = getattr(shard, "probe", None)
    assert probe is not None
    probe.end(True, "it was read")
    loop.session.watch.note(SITE, Signal.BLOCKED, "a captcha")
    while loop.waiting:
        loop.waiting.pop().callback(None)
    assert [said[1] for said in loop.said] == [True, "blocked"]


def test_a_suspicion_is_told_once_it_lasts(loop: Loop) -> None:
    loop.session.watch.note(SITE, Signal.EMPTY, "page 1")
    loop.gate.learn({})
    assert loop.said == []
    loop.session.watch.note(SITE, Signal.ITEMS)
    loop.gate.learn({})
    loop.gate.learn({})
    assert loop.said == []  # it was over too soon
    loop.session.watch.note(SITE, Signal.EMPTY, "page 2")
    for _ in range(4):
        loop.gate.learn({})
    loop.session.watch.note(SITE, Signal.ITEMS)
    assert [said[1] for said in loop.said] == ["suspect", "healthy"]


def test_shards_of_a_site_that_others_blocked_are_given_back(loop: Loop) -> None:
    shard = loop.hold()
    loop.learn(left=700.0)
    (release,) = loop.released
    assert isinstance(release, Release)
    assert (release.error_kind, release.delay, release.spend_attempt) == ("blocked", 700.0, False)
    assert "403s" in release.reason
    assert loop.session.watch.is_blocked(SITE)
    assert loop.said == []  # it is no news of ours
    loop.learn()
    assert loop.released == [release] and shard.ending


def test_shards_of_a_paused_site_are_given_back_whatever_their_site_is(loop: Loop) -> None:
    loop.hold()
    loop.learn("paused", None)
    (release,) = loop.released
    assert (release.error_kind, release.delay) == (None, None)
    assert loop.session.watch.judgement(SITE).state is SiteState.HEALTHY


def test_what_is_older_than_our_own_word_is_not_heard(loop: Loop) -> None:
    loop.to_try = claimed(last=3)
    loop.learn(left=0.0)
    loop.tend()
    loop.slow = True
    shard = loop.flow.shards[1]
    assert shard.probe is not None
    shard.probe.end(True, "it was read")
    loop.learn(left=0.0, prober="me")  # asked for before that
    assert loop.released == []
    loop.waiting.pop().callback(None)
    assert loop.said == [(SITE, True, "it was read")] and loop.told_others == 1


def test_a_site_is_tried_when_its_time_is_over_and_nobody_else_tries_it(
    loop: Loop, now: list[float]
) -> None:
    loop.to_try = claimed(last=3)
    loop.learn(left=5.0)
    assert not loop.gate.wanted
    now[0] += 6
    assert loop.gate.wanted
    loop.learn(left=0.0, prober="another")
    assert not loop.gate.wanted
    loop.learn(left=0.0)
    loop.tend()
    shard = loop.flow.shards[1]
    assert shard.trying and loop.gate.trying == {SITE}
    assert (shard.walk.policy.in_flight, shard.walk.policy.retries) == (1, 0)
    loop.learn(left=0.0, prober="me")
    assert not loop.gate.wanted and loop.released == []


def test_who_still_holds_shards_of_it_does_not_try_it(loop: Loop) -> None:
    loop.hold()
    loop.to_try = claimed(last=3)
    loop.learn(left=0.0)  # which gives them back, once that is stored
    loop.tend()
    assert loop.gate.trying == set() and not loop.gate.wanted


def test_who_gets_no_right_asks_again_with_the_next_heartbeat(loop: Loop) -> None:
    loop.right = False
    loop.learn(left=0.0)
    loop.tend()
    assert not loop.gate.wanted
    loop.learn(left=0.0)
    assert loop.gate.wanted


def test_who_has_no_shard_to_try_a_site_with_asks_less_and_less_often(
    loop: Loop, now: list[float]
) -> None:
    begun, tries = now[0], []
    while now[0] < begun + 300:
        loop.learn(left=0.0)
        if loop.gate.wanted:
            tries.append(now[0] - begun)
            loop.tend()
        now[0] += 3
    assert tries == [0, 3, 9, 21, 45, 93, 189, 285]
    loop.gate.learn({})
    loop.learn(left=0.0)
    assert loop.gate.wanted  # it is blocked anew


def test_a_site_that_the_process_does_not_take_is_not_tried(loop: Loop) -> None:
    loop.settings.intake = Intake(sites=frozenset({"another"}))
    loop.learn(left=0.0)
    assert not loop.gate.wanted


def test_a_process_that_judges_no_site_takes_it_untried(
    now: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sitegate, "deferred_from_coro", Deferred.fromCoroutine)
    loop = Loop(on=False, to_try=claimed(last=3))
    loop.learn(left=9.0)
    loop.tend()
    assert loop.said == []  # its time is not over
    loop.learn(left=0.0)
    loop.tend()
    assert loop.said == [(SITE, True, "it was not tried, since RESUME_HEALTH is False")]
    assert not loop.flow.shards[1].trying


def test_a_trial_that_shows_nothing_gives_the_right_back(loop: Loop) -> None:
    loop.to_try = claimed(last=3)
    loop.learn(left=0.0)
    loop.tend()
    loop.flow.ledger = cast(Any, SimpleNamespace(drop=nothing, abandon=nothing))
    loop.flow.lose([1])
    assert loop.said == [(SITE, None)] and loop.gate.trying == set()


@pytest.mark.parametrize(("state", "prober"), [("paused", ""), ("blocked", "another")])
def test_a_site_is_not_tried_against_an_operators_word_nor_without_the_right(
    loop: Loop, state: str, prober: str
) -> None:
    """It may wait long for its page: the site may have asked for a rest."""
    loop.to_try = claimed(last=3)
    loop.learn(left=0.0)
    loop.tend()
    loop.learn(state, None if state == "paused" else 900.0, prober)
    (release,) = loop.released
    assert isinstance(release, Release) and release.spend_attempt is False
    assert loop.flow.shards[1].ending


def test_only_who_holds_nothing_tries_a_site_with_a_suspect(loop: Loop) -> None:
    loop.to_try = claimed(last=3)
    loop.learn(left=0.0)
    loop.tend()
    assert loop.alone is True


def test_a_blocked_trial_is_told_once(loop: Loop) -> None:
    loop.to_try = claimed(last=3)
    loop.learn(left=0.0)
    loop.tend()
    loop.slow = True
    loop.session.watch.note(SITE, Signal.BLOCKED, "a captcha")
    loop.waiting.pop().callback(None)
    assert loop.waiting == []
    assert loop.said == [(SITE, False, "a captcha")]
    (release,) = loop.released
    assert (release.error_kind, release.spend_attempt) == ("blocked", False)


def test_a_trial_ends_once() -> None:
    told: list[Any] = []
    trial = Probe(PagePolicy(), lambda passed, why: told.append(passed))
    trial.end(True)
    trial.end(False)
    trial.end(None)
    assert told == [True]
