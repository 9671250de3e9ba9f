"""What a commit and the watch of the sites have the alerts tell."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from scrapy_resume import clock, signals
from scrapy_resume.alerts import Alerts
from scrapy_resume.health import HealthLimits, Judgement, Signal, SiteState
from scrapy_resume.page import ErrorKind, Trouble, Where
from scrapy_resume.sitewatch import SiteWatch
from scrapy_resume.store.checkpoints import CommitResult, Finish, PageRecord, Release
from scrapy_resume.store.quarantine import QuarantineRecord

NAMES = {id(value): name for name, value in vars(signals).items() if type(value) is object}
ASIDE = QuarantineRecord(1, 7, 1, 1, "item", None, "k1", "KeyError", "no colour")
TROUBLE = Trouble(Where.ITEM, ErrorKind.CODE, "KeyError", "no colour")


class Told:
    """Alerts of a crawl that holds shard 7 of the site ``shop``, and what they sent."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(clock, "monotonic", lambda: self.now)
        self.stats: dict[str, float] = {}
        self.watch = SiteWatch(HealthLimits(), inc_stat=self._inc)
        self.alerts = Alerts(cast(Any, None), self.watch, self._inc, 0.0)
        self.sent: list[tuple[str, dict[str, Any]]] = []
        monkeypatch.setattr(self.alerts, "_send", self._send)
        monkeypatch.setattr(self.alerts, "_in_loop", lambda call: call())
        claimed = SimpleNamespace(shard_no=3, shard=SimpleNamespace(key="books"))
        self.walk = SimpleNamespace(leaving=False, claimed=claimed)
        self.alerts.shards = {7: cast(Any, SimpleNamespace(id=7, site="shop", walk=self.walk))}

    def _inc(self, name: str, count: float = 1) -> None:
        self.stats[name] = self.stats.get(name, 0) + count

    def _send(self, signal: object, **facts: Any) -> None:
        self.sent.append((NAMES[id(signal)], facts))

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.sent]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    return Told(monkeypatch)


def page(*aside: QuarantineRecord) -> PageRecord:
    return PageRecord(7, 1, 1, (), aside)


def given_back(kind: str = "blocked") -> Release:
    return Release(7, 1, "page 2: no", kind, 30.0)


def test_a_page_that_was_stored_moves_the_run(told: Told) -> None:
    told.now = 5.0
    told.alerts.stored([page(ASIDE)], CommitResult())
    assert told.alerts.moved == 5.0
    assert told.sent == [("records_quarantined", {"records": (ASIDE,)})]


@pytest.mark.parametrize(
    "result", [CommitResult(fenced=frozenset({7})), CommitResult(held=((7, 1, TROUBLE),))]
)
def test_one_that_was_not_moves_nothing(told: Told, result: CommitResult) -> None:
    told.now = 5.0
    told.alerts.stored([page(ASIDE)], result)
    assert (told.alerts.moved, told.sent) == (0.0, [])


def test_rows_that_the_database_refused_are_told_with_or_without_a_page(told: Told) -> None:
    told.alerts.stored((), CommitResult(rejected=(ASIDE,)))
    told.alerts.stored([page(ASIDE)], CommitResult(rejected=(ASIDE,)))
    assert [len(facts["records"]) for _, facts in told.sent] == [1, 2]


@pytest.mark.parametrize("record", [Finish(7, 1, "failed", "a loop"), given_back("retryable")])
def test_a_failed_shard(told: Told, record: Finish | Release) -> None:
    told.alerts.stored([record], CommitResult(statuses={7: "failed"}))
    facts = {"shard_no": 3, "shard_key": "books", "reason": record.reason}
    assert told.sent == [("shard_failed", facts)]
    assert told.stats == {"shards/failed": 1}


@pytest.mark.parametrize(
    ("record", "status"),
    [(Finish(7, 1, "done", "read"), "done"), (given_back("retryable"), "pending")],
)
def test_what_ends_well_or_goes_on_is_not_told(
    told: Told, record: Finish | Release, status: str
) -> None:
    told.alerts.stored([record], CommitResult(statuses={7: status}))
    assert told.sent == []


@pytest.mark.parametrize("status", ["failed", "paused", "pending"])
def test_what_an_operator_wished_is_not_told(told: Told, status: str) -> None:
    told.walk.leaving = True
    told.alerts.stored([given_back()], CommitResult(statuses={7: status}))
    assert (told.sent, told.stats) == ([], {})


def test_a_shard_whose_page_is_blocked(told: Told) -> None:
    for _ in range(2):
        told.alerts.stored([given_back()], CommitResult(statuses={7: "pending"}))
    assert told.sent == [("site_blocked", {"site": "shop", "reason": "page 2: no"})]
    assert told.stats == {"shards/blocked": 2}


def test_a_site_that_others_found_blocked_was_told_by_them(told: Told) -> None:
    told.watch.learn("shop", Judgement(SiteState.BLOCKED, "others say so"))
    told.alerts.stored([given_back()], CommitResult(statuses={7: "pending"}))
    assert (told.sent, told.stats) == ([], {"shards/blocked": 1})


def test_a_blocked_site_is_told_once_until_a_page_of_it_is_stored(told: Told) -> None:
    for _ in range(3):  # it is tried in vain
        told.watch.note("shop", Signal.BLOCKED, "HTTP 403")
        told.alerts.stored([page()], CommitResult())  # was read before
        told.watch.begin("shop")
    assert told.names == ["site_blocked"]
    told.alerts.stored([page()], CommitResult())
    told.watch.note("shop", Signal.BLOCKED, "HTTP 403")
    assert told.names == ["site_blocked"] * 2
