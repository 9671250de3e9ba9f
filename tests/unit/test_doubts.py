"""Empty pages, driven through the page flow in every order, at sites that turn bad.

Site, ledger, committer and opener are played here; the flow, the walks and the doubts are
the real ones. A site serves its list until some moment; from then on every page it gives
holds nothing.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scrapy import Request
from scrapy.http import HtmlResponse
from twisted.internet.defer import Deferred

from scrapy_resume import pageflow
from scrapy_resume.committer import Outcome
from scrapy_resume.health import HealthLimits, Judgement, Signal, SiteState
from scrapy_resume.openpage import OpenPage
from scrapy_resume.page import ErrorKind, Page, Shard, Trouble, Where
from scrapy_resume.pageflow import PageFlow
from scrapy_resume.paging import PagePolicy
from scrapy_resume.sitewatch import SiteWatch
from scrapy_resume.store.checkpoints import Finish, PageRecord, Release
from scrapy_resume.store.leases import ClaimedShard
from scrapy_resume.walks import walk_for
from scrapy_resume.watermark import Position

FULL = '<ul class="rows"><li class="row"><a class="title">T</a></ul>'
EMPTY = '<ul class="rows"></ul>'
CHALLENGE = '<form id="challenge"><input></form>'
SITE = "http://site.invalid"


def claimed(
    no: int, first: int, last: int | None, *, ordered: bool = False, written: int = 0
) -> ClaimedShard:
    shard = Shard(f"shard {no}", first, last, ordered=ordered)
    position = Position(written, first - 1 + written, "0" if ordered else None)
    if written:
        position = replace(position, page_count=written, written_count=10 * written)
    return ClaimedShard(no, 1, no, shard, position, ordered, 1, 1, 10, bool(written), "site")


@dataclass
class World:
    """One process and the site it reads. *holds* are the pages that hold items."""

    shards: list[ClaimedShard]
    holds: set[int]
    seed: int = 0
    bad_from: int | None = None  # answers that the site gives before it turns bad
    bad_page: str = EMPTY
    stored_before: bool = False
    known_page: int | None = None
    chain_end: int = 0
    limit: int = 3
    retries: int = 1
    answers: int = 0
    asked: list[int] = field(default_factory=list)
    checks: list[int] = field(default_factory=list)
    committed: dict[int, int] = field(default_factory=dict)
    ends: dict[int, Finish | Release] = field(default_factory=dict)
    timers: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.open: list[OpenPage] = []
        self.vouch: set[int] = set()
        self.stats: dict[str, float] = {}
        limits = HealthLimits(empty_pages=self.limit)
        self.watch = SiteWatch(limits, inc_stat=self._count)
        committer = SimpleNamespace(
            submit=self._submit,
            consider=lambda: None,
            hurry=lambda *_: None,
            hold=lambda _: None,
            lose=lambda _: None,
        )
        spider = SimpleNamespace(
            end_statuses=(404,), check_page=self._check_page, stated_total=lambda response: None
        )
        self.flow = PageFlow(
            cast(Any, spider), cast(Any, committer), hold_records=False, wake=lambda: None,
            freed=lambda returned: None, stopped=lambda: None, fail=self._fail, grace=1.0,
            inc_stat=self._count, watch=self.watch,
        )  # fmt: skip
        self.flow.ledger = cast(Any, SimpleNamespace(
            abandon=self._abandon, drop=self._abandon, remember=lambda page: None
        ))  # fmt: skip
        policy = PagePolicy(in_flight=2, retries=self.retries, retry_delay=0.0)
        for shard in self.shards:
            self.flow.hold(walk_for(shard, policy))

    # The parts that are played

    def _count(self, name: str, count: float = 1) -> None:
        self.stats[name] = self.stats.get(name, 0) + count

    def _check_page(self, response: Any, page: Page) -> Any:
        async def vouched() -> bool:
            return page.number in self.vouch

        return vouched()

    def _fail(self, error: BaseException) -> None:
        raise AssertionError("a stored record was not followed up") from error

    def _abandon(self, page: OpenPage) -> None:
        page.closed = True
        if page in self.open:
            self.open.remove(page)

    def _submit(self, record: Any, let_go: Any) -> Deferred[Outcome]:
        done: Deferred[Outcome] = Deferred()
        shard = self.flow.shards[record.shard_id]
        position = shard.walk.position
        if isinstance(record, PageRecord):
            self.committed[record.page] = len(record.rows) or self.yields[record.page]
            position = position.with_page(record.page, cursor=record.cursor, digests=record.digests)
            position = replace(position, version=position.version + 1)
        elif isinstance(record, (Finish, Release)):
            self.ends[record.shard_id] = record
        done.callback(Outcome("committed", position))
        return done

    # The crawl

    yields: dict[int, int] = field(default_factory=dict)

    def _open(self) -> None:
        opened = True
        while opened:
            opened = False
            for shard in list(self.flow.shards.values()):
                opened = self._open_one(shard) or opened

    def _open_one(self, shard: Any) -> bool:
        doubts = self.flow.doubts
        if not doubts.may_open(shard):
            return False
        check = doubts.checks.wanted(shard)
        if check is not None:
            good = self.watch.facts("site").good
            number = self.known_page if good is None else good.number
            if number is None:
                doubts.nothing_known(check, self.stored_before)
                return True
            page, request = self._page(number, shard.walk.claimed.shard)
            assert doubts.checks.opened(check, page, doubts.opened(request), f"page {number}")
            self.checks.append(number)
            return True
        number = shard.walk.next_page() if doubts.has_room(shard) else None
        if number is None:
            return False
        page, request = self._page(number, shard.walk.claimed.shard)
        self.flow.opened(shard, number, page, request)
        self.asked.append(number)
        return True

    def _page(self, number: int, shard: Shard) -> tuple[OpenPage, Request]:
        request = Request(f"{SITE}/list?page={number}")
        token = f"{len(self.asked)}/{len(self.checks)}/{number}"
        page = OpenPage(token, Page(number, shard))
        self.open.append(page)
        return page, request

    def _answer(self, page: OpenPage) -> None:
        number = page.page.number
        bad = self.bad_from is not None and self.answers >= self.bad_from
        self.answers += 1
        full = number in self.holds and not bad
        body = FULL if full else (self.bad_page if bad else EMPTY)
        body = f"{body}<!-- {number} -->"
        request = Request(f"{SITE}/list?page={number}")
        response = HtmlResponse(request.url, body=body.encode(), request=request, encoding="utf-8")
        self.open.remove(page)
        try:
            with pytest.raises(StopIteration):
                self.flow.before_callback(page, response).send(None)
        except Exception as error:  # of check_page, or a redirect
            page.add_trouble(Trouble(Where.PAGE, ErrorKind.BLOCKED, type(error).__name__, "it"))
        page.yielded = page.items_in = page.items_scraped = 10 if full else 0
        self.yields[number] = page.yielded
        page.callback_done = True
        if number < self.chain_end and page.page.shard.ordered and (full or not bad):
            page.has_next, page.next_cursor = True, number
        self.flow.page_read(page)
        if not page.closed:
            page.closed = True
            self.flow.page_closed(page)

    def run(self) -> None:
        """Crawl until nothing is held any more."""
        for _ in range(5000):
            self._open()
            if self.timers and (not self.open or self.chance.random() < 0.3):
                self.timers.pop(0)()
            elif self.open:
                self._answer(self.chance.choice(self.open))
            elif not self.flow.shards:
                return
            else:
                break
        left = [(s.walk.in_flight, s.doubted, s.waiting) for s in self.flow.shards.values()]
        raise AssertionError(f"the crawl hangs: {left}, {self.flow.doubts.checks._by_site}")


@pytest.fixture(autouse=True)
def _timers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries are due when their world lets them be."""

    def call_later(delay: float, call: Any, *args: Any) -> Any:
        world = next(
            one for one in WORLDS if one.flow is getattr(call, "__self__", None)
        )  # the flow whose method it is
        timer = SimpleNamespace(cancelled=False)
        timer.cancel = lambda: setattr(timer, "cancelled", True)
        world.timers.append(lambda: None if timer.cancelled else call(*args))
        return timer

    monkeypatch.setattr(pageflow, "call_later", call_later)


WORLDS: list[World] = []


def world(shards: list[ClaimedShard], holds: set[int], **rest: Any) -> World:
    made = World(shards, holds, **rest)
    WORLDS[:] = [made]
    return made


def bounded(pages: int, size: int) -> list[ClaimedShard]:
    starts = range(1, pages + 1, size)
    return [claimed(no, n, min(n + size - 1, pages)) for no, n in enumerate(starts, 1)]


ANY = settings(max_examples=150, deadline=None)


@given(st.sets(st.integers(1, 24)), st.sampled_from([4, 8, 24]), st.integers(0, 10**6))
@ANY
def test_a_well_site_is_read_whole_whatever_is_empty(holds: set[int], size: int, seed: int) -> None:
    one = world(bounded(24, size), holds, seed=seed)
    one.run()
    assert set(one.committed) == set(range(1, 25))
    assert {end.reason for end in one.ends.values()} and all(
        isinstance(end, Finish) and end.status == "done" for end in one.ends.values()
    )
    assert len(one.asked) == 24  # none of them twice
    assert len(one.checks) <= 24 - len(holds)


@given(
    st.sets(st.integers(1, 24), min_size=1), st.sampled_from([4, 8, 24]), st.integers(0, 30),
    st.sampled_from([EMPTY, CHALLENGE]), st.booleans(), st.integers(0, 10**6),
)  # fmt: skip
@ANY
def test_no_page_with_items_is_ever_stored_as_an_empty_one(
    holds: set[int], size: int, bad_from: int, bad_page: str, before: bool, seed: int
) -> None:
    """The promise. It needs a page that is known to have items, or an earlier run's."""
    one = world(
        bounded(24, size), holds, seed=seed, bad_from=bad_from, bad_page=bad_page,
        stored_before=before,
    )  # fmt: skip
    one.run()
    seen = {number for number, rows in one.committed.items() if rows}
    hidden = holds & set(one.committed) - seen
    if seen or before:
        assert not hidden
    for end in one.ends.values():
        assert isinstance(end, Finish) or (end.error_kind, end.spend_attempt) == ("blocked", False)


@given(st.integers(1, 20), st.integers(0, 25), st.integers(0, 10**6))
@ANY
def test_an_open_ended_list_does_not_end_where_the_site_turns_bad(
    last: int, bad_from: int, seed: int
) -> None:
    one = world([claimed(1, 1, None)], set(range(1, last + 1)), seed=seed, bad_from=bad_from)
    one.run()
    seen = {number for number, rows in one.committed.items() if rows}
    (end,) = one.ends.values()
    if isinstance(end, Finish) and seen:
        assert seen == set(range(1, last + 1)) or end.status == "failed"
    assert set(one.committed) == seen
    assert len(one.checks) <= 2


@given(st.integers(1, 20), st.integers(0, 25), st.sets(st.integers(2, 20)), st.integers(0, 10**6))
@ANY
def test_a_chain_does_not_end_where_the_site_turns_bad(
    last: int, bad_from: int, empty: set[int], seed: int
) -> None:
    holds = set(range(1, last + 1)) - empty
    chain = [claimed(1, 1, None, ordered=True)]
    one = world(chain, holds, seed=seed, bad_from=bad_from, chain_end=last)
    one.run()
    (end,) = one.ends.values()
    if isinstance(end, Finish) and any(one.committed.values()):
        assert sorted(one.committed) == list(range(1, last + 1))
    assert sorted(one.committed) == list(range(1, len(one.committed) + 1))


def test_the_pages_of_a_list_that_turns_empty_are_bounded() -> None:
    one = world(bounded(60, 10), set(range(1, 61)), bad_from=20, seed=3)
    one.run()
    assert len(one.asked) <= 20 + 3 + 2 * 6  # the limit, and what each shard had in flight
    assert len(one.checks) == 1
    assert one.watch.judgement("site").state is SiteState.BLOCKED
    blocked = [end for end in one.ends.values() if isinstance(end, Release)]
    assert all("the site is blocked" in end.reason for end in blocked) and blocked
    assert all(end.delay == PagePolicy().blocked_wait for end in blocked)


@pytest.mark.parametrize("seed", range(5))
def test_doubted_pages_take_no_place_of_others(seed: int) -> None:
    one = world(bounded(8, 8), {1, 8}, seed=seed, limit=9)
    one.run()
    assert set(one.committed) == set(range(1, 9))
    assert len(one.checks) <= 1  # page 8 is evidence for most of them


def test_a_process_that_saw_no_items_asks_for_a_page_that_the_run_stored() -> None:
    one = world([claimed(1, 1, 9, written=5)], set(range(1, 6)), known_page=1)
    one.run()
    assert one.checks[0] == 1
    assert set(one.committed) == {6, 7, 8, 9}
    two = world([claimed(1, 1, 9, written=5)], set(range(1, 10)), known_page=1, bad_from=0)
    two.run()
    assert two.checks == [1] and not two.committed
    assert isinstance(two.ends[1], Release)


def test_nothing_is_doubted_where_nothing_was_ever_found() -> None:
    one = world(bounded(9, 3), set())
    one.run()
    assert set(one.committed) == set(range(1, 10)) and not one.checks


def test_an_earlier_runs_items_make_a_list_of_nothing_unhealthy() -> None:
    one = world(bounded(9, 3), set(), stored_before=True)
    one.run()
    assert not one.committed
    assert len(one.asked) <= 3 + 6
    assert "unhealthy" in one.watch.judgement("site").reason


def test_a_page_that_the_spider_vouches_for_is_stored_as_it_is() -> None:
    one = world(bounded(6, 6), {1, 2, 3}, bad_from=3, bad_page=CHALLENGE)
    one.vouch = {4, 5, 6}
    one.run()
    assert set(one.committed) == set(range(1, 7)) and not one.checks


def test_one_odd_page_is_asked_for_again_and_then_held_as_blocked() -> None:
    one = world(bounded(6, 6), {1, 2, 3}, bad_from=3, bad_page=CHALLENGE, limit=9)
    one.run()
    assert [one.asked.count(number) for number in (4, 5, 6)] == [2, 2, 2]
    end = one.ends[1]
    assert isinstance(end, Release) and end.error_kind == "blocked" and "OddPage" in end.reason
    assert one.stats["pages/held"] == 3


def test_a_shard_that_is_lost_takes_its_check_along() -> None:
    one = world(bounded(8, 4), {1, 5})
    steps: Iterator[int] = iter(range(100))
    while not one.checks and next(steps) < 99:
        one._open()
        one._answer(one.open[0])
    (check,) = one.flow.doubts.checks._by_site.values()
    one.flow.lose([check.shard.id])
    assert check.page is not None and check.page.closed
    one.run()
    assert set(one.ends) == {1, 2} - {check.shard.id}


@pytest.mark.parametrize("kind", [ErrorKind.RETRYABLE, ErrorKind.PERMANENT])
def test_what_fails_while_the_site_is_blocked_spends_no_attempt(kind: ErrorKind) -> None:
    one = world(bounded(6, 6), set(range(1, 7)))
    one._open()
    first, second = one.open
    first.add_trouble(Trouble(Where.PAGE, kind, "HttpError", "HTTP 503", status=503))
    one.watch.note("site", Signal.BLOCKED, "HTTP 503")
    first.closed = True
    one.open.remove(first)
    one.flow.page_closed(first)
    one._answer(second)
    end = one.ends[1]
    assert isinstance(end, Release)
    assert (end.error_kind, end.spend_attempt) == ("blocked", False)
    assert end.reason == "page 1: the site is blocked: HTTP 503"
    assert set(one.committed) == {2}  # what was read meanwhile is stored
    assert "pages/held" not in one.stats  # the page is no worse than its site


def test_the_listeners_are_told_each_change_of_state_once() -> None:
    told: list[tuple[str, SiteState, float]] = []

    def listen(site: str, judgement: Judgement, retry_after: float) -> None:
        told.append((site, judgement.state, retry_after))

    watch = SiteWatch(HealthLimits(empty_pages=2), inc_stat=lambda *_: None)
    watch.listeners.append(listen)
    signals = [Signal.OK, Signal.EMPTY, Signal.EMPTY, Signal.ITEMS, Signal.BLOCKED, Signal.BLOCKED]
    for signal in signals:
        watch.note("site", signal)
    states = [SiteState.SUSPECT, SiteState.HEALTHY, SiteState.BLOCKED]
    assert told == [("site", state, 0.0) for state in states]
    watch.begin("site")  # a shard was claimed: whoever gave it says that the site may be tried
    assert watch.judgement("site").state is SiteState.HEALTHY
    watch.note("site", Signal.BLOCKED)
    assert len(told) == 4


def test_a_site_is_left_alone_as_long_as_it_asked_for_and_no_longer_than_is_honoured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [100.0]
    monkeypatch.setattr("scrapy_resume.sitewatch.clock.monotonic", lambda: now[0])
    watch = SiteWatch(HealthLimits(), longest_rest=50, inc_stat=lambda *_: None)
    assert watch.resting("site") == 0
    watch.rest("site", 30)
    watch.rest("site", 5)  # the longer one holds
    now[0] += 10
    assert watch.resting("site") == 20
    watch.rest("site", 4000)
    assert watch.resting("site") == 50
    now[0] += 50
    assert watch.resting("site") == 0


def test_a_shard_that_is_blocked_again_and_again_waits_longer_each_time() -> None:
    shard = claimed(1, 1, 6)
    one = world([shard], set(), stored_before=True)
    delays: list[float | None] = []
    for _ in range(9):
        one.run()
        end = one.ends.pop(1)
        assert isinstance(end, Release)
        delays.append(end.delay)
        one.flow.hold(walk_for(shard, PagePolicy(in_flight=2, blocked_wait_max=1800)))
    assert delays == [30, 60, 120, 240, 480, 960, 1800, 1800, 1800]
