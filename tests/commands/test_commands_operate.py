"""What an operator does, beginning to end, with real crawls: no step needs SQL."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from typing import Any

import pytest

from tests.acceptance.harness import NUMBERED, Bench, wait_until
from tests.commands.conftest import Outcome, Scrapy
from tests.commands.operators import refused

DETAILED = """\
class Rows(Details):
    name = 'rows'
    last_page = 2
"""
ONE_BY_ONE: dict[str, Any] = {
    "RESUME_SHARDS": 1,
    "RESUME_PAGES_IN_FLIGHT": 1,
    "RESUME_LEASE": 2.5,
    "RESUME_HEARTBEAT": 0.3,
}
Type = Callable[..., Outcome]


@pytest.fixture
def operate(scrapy: Scrapy, bench: Bench) -> Type:
    """Call ``scrapy resume WORDS`` on the database of *bench*."""
    address = bench.database_url

    def call(*words: str, **settings: Any) -> Outcome:
        return scrapy("resume", *words, **{"RESUME_DATABASE_URL": address, **settings})

    return call


def mends(outcome: Outcome) -> list[list[str]]:
    """The commands that ``why`` tells, without those that crawl."""
    told = re.findall(r"`scrapy resume ([^`]+)`", outcome.out)
    return [shlex.split(one) for one in told if not one.startswith(("run", "quarantine list"))]


def wait_for_heartbeats(bench: Bench, count: int = 2) -> None:
    """Wait until who holds a shard has renewed its lease so many times."""
    for _ in range(count):
        leases = [one["lease_until"] for one in bench.shards]
        wait_until(lambda known=leases: [one["lease_until"] for one in bench.shards] != known)


def test_a_run_that_failed_is_retried_as_why_says(bench: Bench, operate: Type) -> None:
    bench.write(NUMBERED)
    bench.settings = {"RESUME_MAX_ATTEMPTS": 1}
    broken = bench.site.behave(page=6, status=500)
    bench.crawl()
    assert bench.task["verdict"] == "incomplete"
    assert "missing 6" in operate("why", "rows").out
    broken.heal()
    (command,) = mends(operate("why", "rows"))
    assert command == ["retry", "1", "--shards", "2"]
    assert operate(*command, "--reason", "the site was mended").code == 0
    with bench.requests() as asked:
        bench.crawl()
    assert asked == {6: 1}
    assert [(one["run_no"], one["verdict"]) for one in bench.tasks] == [(1, "complete")]
    bench.assert_sound()


def test_what_is_in_quarantine_is_requeued_as_why_says(bench: Bench, operate: Type) -> None:
    bench.write(DETAILED)
    broken = bench.site.behave(path="/item/k01[34]", status=500)
    bench.crawl()
    assert bench.task["verdict"] == "complete_with_rejects"
    assert len(bench.items) == 18
    assert refused(operate("retry", "rows", "--confirm", "1")) == (
        "run 1 of rows has no failed or waiting shard"
    )
    broken.heal()
    (command,) = mends(operate("why", "rows"))
    assert command == ["quarantine", "requeue", "--task", "1"]
    assert operate(*command).code == 0
    with bench.requests() as asked:
        bench.crawl()
    assert asked == {2: 1}
    assert (bench.task["verdict"], len(bench.items)) == ("complete", 20)
    assert operate("quarantine", "list").out == "Nothing is in quarantine.\n"
    bench.assert_sound()


def test_a_range_is_backfilled(bench: Bench, operate: Type) -> None:
    bench.write(NUMBERED)
    bench.crawl()
    operate("backfill", "rows", "--pages", "3-6", "--confirm", "1")
    with bench.requests() as asked:
        bench.crawl()
    assert asked == {3: 1, 4: 1, 5: 1, 6: 1}
    assert [(one["run_no"], one["verdict"]) for one in bench.tasks] == [(1, "complete")]
    bench.assert_sound()


@pytest.mark.parametrize("verb", ["restart", "reset"])
def test_a_run_begins_anew(bench: Bench, operate: Type, verb: str) -> None:
    bench.write(NUMBERED)
    bench.crawl()
    operate(verb, "rows", "--confirm", "1")
    with bench.requests() as asked:
        bench.crawl()
    assert asked == dict.fromkeys(range(1, 13), 1)
    assert [(one["run_no"], one["verdict"]) for one in bench.tasks] == [(1, "complete")]
    assert len(bench.items) == 120
    bench.assert_sound()


def test_a_crawl_is_paused_while_it_reads_and_goes_on(bench: Bench, operate: Type) -> None:
    bench.write(NUMBERED)
    bench.settings = ONE_BY_ONE
    held = bench.site.behave(page=2, hold=True)
    crawl = bench.start()
    held.wait()
    assert operate("pause", "rows", "--reason", "they asked us to").code == 0
    assert refused(operate("restart", "rows", "--confirm", "1")).endswith(
        "pause the run first: scrapy resume pause 1"
    )
    wait_for_heartbeats(bench)
    bench.site.heal()
    crawl.wait()
    bench.assert_sound()
    assert [one["status"] for one in bench.shards] == ["paused"] * 3
    assert bench.committed() == {1, 2}  # what was in flight is stored
    assert "they asked us to" in operate("why", "rows").out
    with bench.requests() as asked:
        bench.crawl()
    assert asked == {}
    assert mends(operate("why", "rows")) == [["unpause", "1"]]
    operate("unpause", "rows")
    with bench.requests() as asked:
        bench.crawl()
    assert asked == dict.fromkeys(range(3, 13), 1)
    assert (bench.task["verdict"], len(bench.items)) == ("complete", 120)
    bench.assert_sound()


def test_a_cancelled_crawl_ends_and_may_be_taken_back(bench: Bench, operate: Type) -> None:
    bench.write(NUMBERED)
    bench.settings = ONE_BY_ONE
    held = bench.site.behave(page=2, hold=True)
    crawl = bench.start()
    held.wait()
    operate("cancel", "rows", "--reason", "not wanted")
    wait_for_heartbeats(bench)
    bench.site.heal()
    crawl.wait()
    bench.assert_sound()
    assert (bench.task["verdict"], bench.committed()) == ("incomplete", {1, 2})
    why = operate("why", "rows")
    assert why.out.count("not wanted") >= 3
    (command,) = mends(why)
    assert operate(*command, "--reason", "it is wanted after all").code == 0
    with bench.requests() as asked:
        bench.crawl()
    assert asked == dict.fromkeys(range(3, 13), 1)
    assert [(one["run_no"], one["verdict"]) for one in bench.tasks] == [(1, "complete")]
    bench.assert_sound()


def test_a_paused_site_is_not_asked(bench: Bench, operate: Type) -> None:
    bench.write(NUMBERED)
    assert bench.run_scrapy("resume", "plan", "rows").wait().code == 0
    (site,) = {one["site"] for one in operate("health", "show", "--json").json["sites"]}
    operate("pause", "--site", site, "--reason", "they asked us to")
    with bench.requests() as asked:
        bench.crawl()
    assert asked == {}
    (command,) = mends(operate("why", "rows"))
    operate(*command)
    bench.crawl()
    assert bench.task["verdict"] == "complete"
