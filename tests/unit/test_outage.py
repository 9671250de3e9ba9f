"""An outage of the database is said once when it begins and once when it is over."""

from __future__ import annotations

import pytest

from scrapy_resume.exceptions import StoreUnavailable
from scrapy_resume.outage import Outage


def test_it_is_over_when_the_last_duty_got_through(caplog: pytest.LogCaptureFixture) -> None:
    outage = Outage(60)
    for duty in ("commits", "claims", "commits"):
        outage.began(duty, StoreUnavailable("gone"))
    outage.ended("commits")
    assert len(caplog.messages) == 1
    outage.ended("claims")
    assert [message[:21] for message in caplog.messages][1:] == ["The database is back "]


def test_a_crawl_whose_end_is_on_record_is_in_no_outage(caplog: pytest.LogCaptureFixture) -> None:
    outage = Outage(60)
    outage.began("heartbeat", StoreUnavailable("gone"))
    outage.closed()
    outage.closed()
    assert [message[:21] for message in caplog.messages][1:] == ["The database is back "]
