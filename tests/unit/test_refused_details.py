"""Pages whose details are refused: is it the details' fault, or has the site begun to block?"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scrapy_resume import doubts
from scrapy_resume.health import Signal, SiteState
from scrapy_resume.openpage import OpenPage
from scrapy_resume.page import ErrorKind, Trouble, Where
from scrapy_resume.store.checkpoints import Finish, Release
from tests.unit.test_doubts import EMPTY, WORLDS, World, bounded, claimed, world
from tests.unit.test_doubts import _timers as _timers  # a fixture


@pytest.fixture(autouse=True)
def looks(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is to be looked at later."""
    later: list[Any] = []
    monkeypatch.setattr(
        doubts, "call_later", lambda _, call, *args: later.append(lambda: call(*args))
    )
    return later


def refuse(
    one: World, page: OpenPage, status: int | None = 403, *, listed: Signal = Signal.OK
) -> None:
    """The list page is there, and two of its details are refused."""
    one.watch.note("site", listed, "", f"list {page.page.number}")
    for number in range(2):
        about = f"item {page.page.number}/{number}"
        one.watch.note("site", Signal.STATUS, f"HTTP {status}", about)
        page.add_trouble(
            Trouble(Where.REQUEST, ErrorKind.PERMANENT, "HttpError", "it", status=status)
        )
    one._answer(page)


@dataclass
class Refusing(World):
    """Each list page leads to two details. Those of the pages *refused* are refused; from the
    answer *turns* on everything is."""

    refused: set[int] = field(default_factory=set)
    turns: int | None = None
    given: int = 0
    spoilt: set[int] = field(default_factory=set)

    def _note(self, about: str, bad: bool = False) -> bool:
        turned = self.turns is not None and self.given >= self.turns
        self.given += 1
        signal = Signal.STATUS if bad or turned else Signal.OK
        self.watch.note("site", signal, "HTTP 403", about)
        return signal is Signal.STATUS

    def _answer(self, page: OpenPage) -> None:
        number = page.page.number
        is_check = self.flow.doubts.checks.of(page) is not None
        if self._note(f"list {number}"):
            page.add_trouble(_refusal(Where.PAGE))
        for detail in range(0 if page.troubles or is_check else 2):
            if self._note(f"item {number}/{detail}", number in self.refused):
                page.add_trouble(_refusal(Where.REQUEST))
                if self.turns is not None and self.given > self.turns:
                    self.spoilt.add(number)
        if page.closed:
            return
        if not page.failed:
            return super()._answer(page)
        page.closed = True
        self.open.remove(page)
        self.flow.page_closed(page)


def _refusal(where: Where) -> Trouble:
    return Trouble(where, ErrorKind.PERMANENT, "HttpError", "HTTP 403", status=403)


WAYS = {
    "bounded": lambda: bounded(24, 6),
    "one by one": lambda: bounded(24, 1),
    "open": lambda: [claimed(1, 1, None)],
    "chain": lambda: [claimed(1, 1, None, ordered=True)],
}


@pytest.mark.parametrize("way", WAYS)
@given(
    st.sets(st.integers(1, 24)), st.none() | st.integers(0, 60), st.integers(1, 9),
    st.integers(0, 10**6),
)  # fmt: skip
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_well_site_is_read_whole_and_one_that_turns_spoils_no_page(
    looks: list[Any], way: str, refused: set[int], turns: int | None, limit: int, seed: int
) -> None:
    one = Refusing(
        WAYS[way](), set(range(1, 25)), seed=seed, limit=limit, refused=refused, turns=turns,
        chain_end=24,
    )  # fmt: skip
    WORLDS[:] = [one]
    looks.clear()
    one.timers = looks  # and what is tried again
    one.run()
    assert not one.spoilt & set(one.committed)
    if turns is None and one.watch.judgement("site").state is not SiteState.BLOCKED:
        assert set(one.committed) >= set(range(1, 25))


def of(one: World, number: int) -> OpenPage:
    return next(page for page in one.open if page.page.number == number)


@pytest.mark.parametrize("status", [403, 503, None])
def test_a_page_is_kept_back_until_its_site_gives_a_good_answer(status: int | None) -> None:
    one = world([claimed(1, 1, 3)], {1, 2, 3})
    one._open()
    refuse(one, of(one, 1), status)
    one._open()
    assert not one.committed and set(one.asked) == {1, 2, 3}  # it takes nobody's place
    one.watch.note("site", Signal.STATUS, "HTTP 403", "elsewhere")
    assert not one.committed
    one.watch.note("site", Signal.OK, "", "list 2")
    assert set(one.committed) == {1}
    one.run()
    assert set(one.committed) == {1, 2, 3} and not one.checks
    assert isinstance(one.ends[1], Finish)


def test_one_whose_site_answered_well_since_is_stored_at_once() -> None:
    one = world([claimed(1, 1, 1)], {1})
    one._open()
    (page,) = one.open
    trouble = Trouble(Where.REQUEST, ErrorKind.PERMANENT, "HttpError", "it", status=403)
    page.add_trouble(trouble)
    one.watch.note("site", Signal.STATUS)
    one.watch.note("site", Signal.OK)
    one._answer(page)
    assert set(one.committed) == {1} and not one.checks


@pytest.mark.parametrize(("kind", "status"), [(ErrorKind.PERMANENT, 404), (ErrorKind.CODE, None)])
def test_what_is_the_details_own_fault_is_no_reason_to_wait(
    kind: ErrorKind, status: int | None
) -> None:
    one = world([claimed(1, 1, 1)], {1})
    one._open()
    (page,) = one.open
    page.add_trouble(Trouble(Where.REQUEST, kind, "Error", "it", status=status))
    one.watch.note("site", Signal.STATUS)
    one._answer(page)
    assert set(one.committed) == {1} and not one.checks


def test_it_is_put_back_when_the_site_is_judged_blocked() -> None:
    one = world([claimed(1, 1, 9)], set(range(1, 10)))
    one._open()
    refuse(one, of(one, 1))
    for number in range(10):
        one.watch.note("site", Signal.STATUS, "HTTP 403", f"{number}")
    assert one.watch.judgement("site").state is SiteState.BLOCKED
    refuse(one, of(one, 2))
    assert not one.committed and not one.checks
    end = one.ends[1]
    assert isinstance(end, Release) and (end.error_kind, end.spend_attempt) == ("blocked", False)


@pytest.mark.parametrize("well", [True, False])
def test_if_nothing_else_comes_the_page_itself_is_asked_for_once_more(well: bool) -> None:
    """No other is known to hold items. That it answers says nothing before it is read."""
    one = world([claimed(1, 1, 1)], {1})
    one._open()
    refuse(one, of(one, 1))
    one.bad_from, one.bad_page = (None if well else 0), EMPTY
    one._open()
    assert one.checks == [1]
    one.watch.note("site", Signal.OK, "", "list 1")
    assert not one.committed
    one.run()
    assert (set(one.committed), one.checks) == ({1} if well else set(), [1])
    assert isinstance(one.ends[1], Finish if well else Release)


def test_as_many_are_kept_back_as_empty_ones() -> None:
    one = world(bounded(20, 20), set(range(1, 21)), limit=3)
    for _ in range(3):
        one._open()
        page = one.open[0]
        page.add_trouble(Trouble(Where.REQUEST, ErrorKind.PERMANENT, "E", "it", status=403))
        one.watch.note("site", Signal.STATUS)
        one._answer(page)
    one._open()
    assert len(one.checks) == 1 and len(one.asked) <= 3 + 2
    one.run()
    assert len(one.committed) == 20 and len(one.checks) == 1


def test_no_page_is_asked_for_while_others_of_the_site_are_read(looks: list[Any]) -> None:
    one = world([claimed(1, 1, 1), claimed(2, 11, 13)], {1, 11, 12, 13})
    one._open()
    refuse(one, of(one, 1))
    looks.pop()()
    one._open()
    assert not one.checks and len(looks) == 1
    one.watch.note("site", Signal.OK, "", "list 11")
    assert set(one.committed) == {1}
    one.run()
    looks.pop()()
    assert not one.checks and not looks


def test_one_is_once_those_have_ended_without_an_answer(looks: list[Any]) -> None:
    one = world([claimed(1, 1, 1), claimed(2, 11, 11)], {1, 11})
    one._open()
    refuse(one, of(one, 1))
    one.flow.lose([2])
    looks.pop()()
    one.run()
    assert one.checks == [1] and set(one.committed) == {1}


def test_a_stop_puts_it_back() -> None:
    one = world([claimed(1, 1, 9)], set(range(1, 10)))
    one._open()
    refuse(one, of(one, 1))
    one.flow.stop()
    refuse(one, of(one, 2), listed=Signal.STATUS)  # its list was there before
    assert not one.committed and not one.checks
    one.flow.abandon()
    assert not one.flow.shards[1].open


def test_a_page_that_waits_for_one_before_it_keeps_nobody_from_asking() -> None:
    """Page 2 is believed, but stored after page 1, which is doubted until a page is asked for."""
    one = world([claimed(1, 1, None)], {1, 2}, limit=9)
    one._open()
    refuse(one, of(one, 2))
    one.watch.note("site", Signal.OK, "", "item 1")
    refuse(one, of(one, 1), listed=Signal.STATUS)
    assert not one.committed
    one.run()
    assert set(one.committed) == {1, 2} and len(one.checks) == 1
    assert isinstance(one.ends[1], Finish)
