"""Since when the database was heard from without a gap."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from scrapy_resume import clock
from scrapy_resume.claimloop import ClaimLoop
from scrapy_resume.reaper import Contact, Reaper, gap_for, reap_once
from scrapy_resume.store import leases
from scrapy_resume.store.engine import Database

LEASE = 1.0


class Time:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    time = Time()
    monkeypatch.setattr(clock, "monotonic", time)
    return time


def heard(contact: Contact, time: Time, *pauses: float) -> float:
    lasted = 0.0
    for pause in pauses:
        time.now += pause
        lasted = contact.heard()
    return lasted


def test_contact_lasts_while_answers_come(time: Time) -> None:
    assert heard(Contact(gap_for(15)), time, 3, 3, 3, 3, 3.5) == 15.5


def test_a_gap_begins_it_anew_even_if_every_call_succeeded(time: Time) -> None:
    """A call that was repeated through an outage, or a process that was frozen."""
    assert heard(Contact(gap_for(15)), time, 3, 3, 3, 20, 3) == 3


def test_the_first_answer_after_a_failure_begins_it_anew(time: Time) -> None:
    """Not the failure: the database may have come back long after it."""
    contact = Contact(gap_for(15))
    heard(contact, time, 3, 3, 3, 3)
    contact.lost()
    assert heard(contact, time, 7) == 0
    assert heard(contact, time, 3) == 3


@pytest.mark.parametrize("jump", [60.0, -60.0])
def test_a_jump_of_the_databases_clock_begins_it_anew(time: Time, jump: float) -> None:
    contact, date = Contact(gap_for(15)), datetime(2026, 1, 1)
    for shift in (0.0, 0.1, jump):
        heard(contact, time, 3, 3)
        contact.dated(date + timedelta(seconds=time.now + shift))
    assert heard(contact, time, 3) == 3


def test_no_living_holders_lease_ends_in_a_gap_that_does_not_count() -> None:
    """It was renewed within a heartbeat (a fifth of the lease) before the gap."""
    for lease in (2, 15, 3600):
        assert gap_for(lease) <= lease - 2 * lease / 5


def test_a_round_that_takes_longer_than_the_gap_keeps_in_contact(time: Time) -> None:
    """On a busy machine its answers come one by one, each of them soon enough."""
    calls: list[Callable[..., Any]] = []
    db = SimpleNamespace(look=object(), now=object())

    async def run(call: Callable[..., Any], *args: object, **kwargs: object) -> Any:
        time.now += 0.3 * gap_for(LEASE)
        calls.append(call)
        date = datetime(2026, 1, 1) + timedelta(seconds=time.now)
        return {leases.expired_holders: {"silent"}, next: None, db.look: date}.get(call, 0)

    loop = SimpleNamespace(
        control=SimpleNamespace(run=run), slot=SimpleNamespace(living_neighbours=set), link=None,
        settings=SimpleNamespace(lease=LEASE, heartbeat=LEASE / 5),
    )  # fmt: skip
    loop.slot.worker = "worker"
    reaper = Reaper(cast(ClaimLoop, loop), cast(Database, db))
    for _ in range(3):
        asyncio.run(reaper.round())
    assert reap_once in calls
