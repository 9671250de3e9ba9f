"""Since when the database was heard from without a gap."""

from __future__ import annotations

import pytest

from scrapy_resume import clock
from scrapy_resume.reaper import Contact, gap_for


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


def test_a_failure_begins_it_anew(time: Time) -> None:
    contact = Contact(gap_for(15))
    heard(contact, time, 3, 3, 3, 3)
    contact.lost()
    assert heard(contact, time, 3) == 3


def test_no_living_holders_lease_ends_in_a_gap_that_does_not_count() -> None:
    """It was renewed within a heartbeat (a fifth of the lease) before the gap."""
    for lease in (2, 15, 3600):
        assert gap_for(lease) <= lease - 2 * lease / 5
