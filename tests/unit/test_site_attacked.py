"""What a site, and a database that is away, may do while a site is checked or tried."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from scrapy import Request
from scrapy.http import Response

from scrapy_resume.checks import Check
from scrapy_resume.health import Signal
from scrapy_resume.heldshard import Probe
from scrapy_resume.page import ErrorKind, Page, Shard, Trouble, Where
from scrapy_resume.pageopener import PageOpener
from scrapy_resume.sitewatch import Good
from scrapy_resume.store.checkpoints import Release
from scrapy_resume.store.history import History, KnownPage
from scrapy_resume.troubles import retry_after
from scrapy_resume.walks import walk_for
from tests.unit.test_doubts import World, bounded, claimed, world
from tests.unit.test_doubts import _timers as _timers  # a fixture

LIST = Shard("list", 1, 9)


class Opener:
    """An opener in a crawl of one shard, all of whose pages so far are doubted."""

    def __init__(self) -> None:
        self.world = world([claimed(1, 1, 9)], set())
        self.flow = self.world.flow
        self.outage = SimpleNamespace(away=False)
        self.asked: list[tuple[Any, ...]] = []
        self.known: KnownPage | None = KnownPage(LIST, 1, False)
        self.before, self.others = True, False
        ledger = SimpleNamespace(
            open=lambda page, request: (self.world._page(page.number, page.shard)[0], request),
            abandon=self.world._abandon, drop=self.world._abandon, remember=lambda page: None,
        )  # fmt: skip
        self.flow.ledger = cast(Any, ledger)
        loop = SimpleNamespace(
            flow=self.flow, halted=False, ledger=ledger, task=SimpleNamespace(id=1), ask=self._ask,
            session=SimpleNamespace(outage=self.outage), wakeup=SimpleNamespace(set=lambda: None),
            work=SimpleNamespace(history=None),
            spider=SimpleNamespace(has_probe=False, page_request=_request, parse_list_page=print),
            crawler=SimpleNamespace(signals=SimpleNamespace(connect=lambda *_: None)),
        )  # fmt: skip
        self.opener = PageOpener(cast(Any, loop))
        (self.shard,) = self.flow.shards.values()

    async def _ask(self, _: Any, task: int, site: str, but: Any, anywhere: bool) -> History:
        self.asked.append((but, anywhere))
        return History(self.known, self.before, self.others)

    def open(self) -> Request | None:
        return asyncio.run(self.opener.open(self.shard))

    def check(self) -> Check:
        self.flow.doubts.checks.begin(self.shard)
        check = self.flow.doubts.checks.at("site")
        assert check is not None
        return check

    def good(self, number: int) -> None:
        good = Good(LIST, number, Request(f"http://site.invalid/list?page={number}"))
        self.flow.watch.facts("site").good = good


def _request(page: Page) -> Request:
    return Request(f"http://site.invalid/list?page={page.number}")


def test_a_check_that_meets_an_outage_is_asked_once_it_is_over() -> None:
    one = Opener()
    one.check()
    one.outage.away = True
    assert one.open() is None and not one.asked
    one.outage.away = False
    request = one.open()
    assert request is not None and request.url.endswith("page=1")
    assert one.open() is None  # and only once


def test_a_page_that_a_check_found_empty_is_not_asked_for_again_if_there_is_another() -> None:
    """A list may have shrunk: else its site would be blocked for ever."""
    one = Opener()
    one.good(8)
    check = one.check()
    request = one.open()
    assert request is not None and request.url.endswith("page=8")
    assert check.page is not None
    check.page.callback_done = True
    one.flow.page_read(check.page)  # which yielded nothing
    assert one.flow.watch.is_blocked("site")
    one.flow.watch.begin("site")
    one.check()
    request = one.open()
    assert request is not None and request.url.endswith("page=1")
    assert one.asked == [({("list", 8)}, False)]


def test_it_is_asked_for_again_if_there_is_no_other() -> None:
    """Its empty pages must not pass because nothing is known of the run."""
    one = Opener()
    one.good(8)
    one.flow.watch.facts("site").barren.add(("list", 8))
    one.known = None
    one.check()
    request = one.open()
    assert request is not None and request.url.endswith("page=8")
    assert not one.world.committed


def test_a_shard_waits_for_its_site_while_that_rests_or_is_checked() -> None:
    one = Opener()
    assert one.open() is not None and not one.shard.waits
    one.shard.resting = True
    one.flow.watch.rest("site", 9.0)
    assert one.open() is None and one.shard.waits
    one.flow.watch.facts("site").rest_until = 0.0
    one.check()
    assert one.open() is not None and one.shard.waits  # the check's page
    assert one.open() is None and one.shard.waits
    one.flow.doubts.checks.end(one.flow.doubts.checks.at("site"))
    assert one.open() is not None and not one.shard.waits


def trial(details: int, refused: int) -> tuple[World, list[tuple[bool | None, str]]]:
    """A blocked site is tried with a page whose list is there and some details are refused."""
    one = world([], set(range(1, 10)))
    told: list[tuple[bool | None, str]] = []
    (shard,) = bounded(9, 9)
    policy = replace(POLICY, in_flight=1, retries=0)
    one.flow.hold(walk_for(shard, policy), Probe(POLICY, lambda *how: told.append(how)))
    one._open()
    (page,) = one.open
    one.watch.note("site", Signal.OK, "", "list")
    for number in range(details):
        bad = number < refused
        one.watch.note("site", Signal.STATUS if bad else Signal.OK, "HTTP 403", f"{number}")
        if bad:
            trouble = Trouble(
                Where.REQUEST, ErrorKind.PERMANENT, "HttpError", "HTTP 403", status=403
            )
            page.add_trouble(trouble)
    one._answer(page)
    return one, told


POLICY = world([claimed(1, 1, 9)], set()).flow.shards[1].walk.policy


@pytest.mark.parametrize(("details", "refused"), [(3, 3), (6, 5), (9, 9)])
def test_a_page_whose_details_are_refused_is_no_sign_that_a_site_is_well(
    details: int, refused: int
) -> None:
    one, told = trial(details, refused)
    assert [passed for passed, _ in told] == [False]
    assert not one.committed
    end = one.ends[1]
    assert isinstance(end, Release) and (end.error_kind, end.spend_attempt) == ("blocked", False)


@pytest.mark.parametrize(("details", "refused"), [(0, 0), (1, 1), (9, 3)])
def test_a_few_details_that_are_refused_do_not_keep_a_site_blocked(
    details: int, refused: int
) -> None:
    one, told = trial(details, refused)
    assert [passed for passed, _ in told] == [True] and 1 in one.committed


def test_a_shard_that_comes_while_others_of_its_blocked_site_end_ends_too() -> None:
    """It was on its way: each of its pages would be refused, and be on record as failed."""
    one = world([claimed(1, 1, 9)], set())
    one._open()
    one.watch.note("site", Signal.BLOCKED, "a captcha")
    assert set(one.flow.shards) == {1}  # its pages in flight are waited for
    one.flow.hold(walk_for(claimed(2, 11, 19), POLICY))
    end = one.ends[2]
    assert isinstance(end, Release) and (end.error_kind, end.spend_attempt) == ("blocked", False)
    assert "pages/held" not in one.stats


@pytest.mark.parametrize("others", [True, False])
def test_an_empty_page_does_not_end_a_block_that_others_can_judge(others: bool) -> None:
    """A run that stored nothing yet cannot tell a challenge from an empty list."""
    one = Opener()
    one.flow.lose([1])
    told: list[tuple[bool | None, str]] = []
    probe = Probe(POLICY, lambda *how: told.append(how))
    one.flow.hold(walk_for(claimed(1, 1, 1), replace(POLICY, in_flight=1, retries=0)), probe)
    one.shard, one.known, one.before, one.others = one.flow.shards[1], None, False, others
    assert one.open() is not None
    one.world._answer(one.world.open[-1])  # which holds nothing
    assert one.shard.doubted or told
    one.open()
    assert [passed for passed, _ in told] == [not others]
    assert set(one.world.committed) == (set() if others else {1})


@pytest.mark.parametrize("text", ["²", "Fri, 31 Dec 9999 23:59:59 -2300", "x", "٣", "-1", ""])
def test_a_retry_after_that_says_nothing_is_none(text: str) -> None:
    response = Response("http://site.invalid", headers={"Retry-After": text.encode("utf-8")})
    assert retry_after(response) is None
    latin = text.encode("latin-1", "ignore")
    assert retry_after(Response("http://site.invalid", headers={"Retry-After": latin})) is None
