"""What a running crawl does when an operator pauses, cancels or puts pages back."""

from __future__ import annotations

import time
from typing import Any

import pytest

from scrapy_resume.exceptions import ActRefused
from scrapy_resume.store import acts, operations, quarantine
from scrapy_resume.testing import Observer
from scrapy_resume.watermark import PageRanges
from tests.acceptance.conftest import Reference
from tests.acceptance.harness import CHAIN, DETAILS, NUMBERED, SLACK, Bench, wait_until
from tests.acceptance.test_res import ONE_BY_ONE as COMMITS_ONE_BY_ONE
from tests.acceptance.test_res import PICKY, WITH_PICKY
from tests.acceptance.tiers import mostly_on

WHO: dict[str, Any] = {"actor": "alice@desk", "reason": "they asked us to"}
HEARTBEAT = 0.5
OPEN = NUMBERED + "    last_page = None\n"
ONE_BY_ONE = {"RESUME_PAGES_IN_FLIGHT": 1, "RESUME_SHARDS": 1}


@pytest.mark.parametrize(
    "spider", [NUMBERED, CHAIN, OPEN, DETAILS], ids=["numbered", "chain", "open", "details"]
)
@mostly_on("mariadb")
def test_a_pause_is_noticed_within_two_heartbeats_and_nothing_is_read_twice(
    bench: Bench, reference: Reference, spider: str
) -> None:
    bench.write(spider)
    bench.site.delay = 0.5
    with Observer(bench.database_url, prefix=bench.prefix).watching(0.1) as observer:
        crawl = bench.start(**ONE_BY_ONE)
        bench.site.wait_for(page=2)
        acts.pause(bench.database, bench.task["id"], **WHO)
        paused = time.monotonic()
        crawl.wait()
        assert time.monotonic() - paused < 2 * HEARTBEAT + SLACK
        read_by_then = len(bench.site.requests)
        assert {shard["status"] for shard in bench.shards} <= {"paused", "done"}
        assert bench.task["status"] == "paused"
        assert all(shard["attempt_count"] == 0 for shard in bench.shards)
        assert "the run is paused (scrapy resume unpause" in crawl.log
        assert crawl.finish_reason == "resume_incomplete"
        again = bench.crawl()  # it sees so at once, and asks for nothing
        assert "the run is paused" in again.log
        assert len(bench.site.requests) == read_by_then
        bench.site.delay = 0
        acts.unpause(bench.database, bench.task["id"], **WHO)
        bench.crawl()
    bench.assert_complete(reference(spider))
    pages = bench.site.pages()
    # Those in flight were finished and stored; an open end is checked by one known page.
    assert len(pages) - len(set(pages)) <= int(spider == OPEN)
    assert observer.violations == []


def test_no_page_is_asked_for_two_heartbeats_after_a_pause(
    sqlite_bench: Bench, reference: Reference
) -> None:
    """The process stays, since another one holds a shard of the run."""
    bench = sqlite_bench
    bench.write(NUMBERED)
    bench.site.delay = 0.4
    held = bench.site.behave(page=4, hold=True, times=1)
    crawl = bench.start(**ONE_BY_ONE)
    held.wait()
    other = bench.start(home="other", **ONE_BY_ONE)
    bench.site.wait_for(page=6)
    acts.pause(bench.database, bench.task["id"], **WHO)
    wait_until(
        lambda: [one["status"] for one in bench.shards].count("running") == 1,
        2 * HEARTBEAT + SLACK,
    )
    asked = len(bench.site.requests)
    time.sleep(2 * HEARTBEAT)
    assert other.code is None
    held.release()
    crawl.wait(), other.wait()
    assert len(bench.site.requests) == asked
    assert [shard["status"] for shard in bench.shards].count("running") == 0
    assert bench.task["status"] == "paused"
    acts.unpause(bench.database, bench.task["id"], **WHO)
    bench.crawl()
    bench.assert_complete(reference(NUMBERED))


def test_a_page_that_waits_to_be_tried_again_does_not_hold_a_pause_up(
    sqlite_bench: Bench, reference: Reference
) -> None:
    bench = sqlite_bench
    bench.write(NUMBERED)
    held = bench.site.behave(page=1, status=503, retry_after=60, times=1, hold=True)
    settings = {"RETRY_ENABLED": False, "RESUME_MAX_WAIT": 60, "RESUME_SHARDS": 1}
    crawl = bench.start(**settings)
    wait_until(lambda: bench.shards and bench.shards[0]["ahead"] == "2-4")
    held.release()
    crawl.wait_until_logged("Ignoring response <503")
    acts.pause(bench.database, bench.task["id"], **WHO)
    crawl.wait(50)  # the page would wait for 60 s
    row = bench.shards[0]
    assert (row["status"], row["cur_page"], row["ahead"]) == ("paused", 0, "2-4")
    assert (row["failed_pages"], row["attempt_count"]) == ("", 0)
    acts.unpause(bench.database, bench.task["id"], **WHO)
    bench.crawl()
    bench.assert_complete(reference(NUMBERED))
    assert bench.site.hits(page=2) == 1


@mostly_on("mariadb")
def test_a_cancelled_run_ends_with_its_pages_in_flight_stored(bench: Bench) -> None:
    bench.write(NUMBERED)
    bench.site.delay = 0.5
    crawl = bench.start(**ONE_BY_ONE)
    bench.site.wait_for(page=3)
    acts.cancel(bench.database, bench.task["id"], **WHO)
    crawl.wait()
    assert crawl.finish_reason == "resume_incomplete"
    assert (bench.task["status"], bench.task["verdict"]) == ("failed", "incomplete")
    assert bench.committed() == set(bench.site.pages())
    reasons = {shard["reason"] for shard in bench.shards if shard["status"] == "failed"}
    assert reasons == {"cancelled by alice@desk: they asked us to"}
    bench.assert_sound()
    acts.retry(bench.database, bench.task["id"], **WHO)
    bench.site.delay = 0
    bench.crawl()
    assert bench.task["verdict"] == "complete"
    assert sorted(bench.site.pages()) == list(range(1, 13))


def test_an_unpause_in_the_midst_of_a_pause_loses_nothing(
    sqlite_bench: Bench, reference: Reference
) -> None:
    bench = sqlite_bench
    bench.write(NUMBERED)
    held = bench.site.behave(page=2, hold=True, times=1)
    crawl = bench.start(RESUME_SHARDS=1)
    held.wait()
    acts.pause(bench.database, bench.task["id"], **WHO)
    crawl.wait_until_logged("The run is paused: no page")
    acts.unpause(bench.database, bench.task["id"], **WHO)
    held.release()
    crawl.wait()
    bench.assert_complete(reference(NUMBERED))
    assert sorted(bench.site.pages()) == list(range(1, 13))


def test_pages_that_are_put_back_ask_for_their_details_again_in_the_same_process(
    sqlite_bench: Bench, reference: Reference
) -> None:
    """What the process remembers of pages it has committed must not hide these requests."""
    bench = sqlite_bench
    bench.write(DETAILS)
    held = bench.site.behave(page=12, hold=True, times=1)
    crawl = bench.start(RESUME_SHARDS=8)
    held.wait()
    wait_until(lambda: bench.shards[0]["status"] == "done")
    acts.backfill(bench.database, bench.task["id"], PageRanges(((1, 1),)), **WHO)
    wait_until(lambda: bench.site.hits(path="/item/k010") == 2 or crawl.code is not None)
    held.release()
    crawl.wait()
    bench.assert_complete(reference(DETAILS))
    again = [path for path in bench.served[1] if bench.site.hits(path=f"/item/{path}") == 2]
    assert again == bench.served[1]
    assert bench.site.hits(page=1) == 2 and bench.site.hits(page=2) == 1


@pytest.mark.parametrize("way", ["requeue", "resolve"])
def test_res_4_a_failed_item_is_mended_by_its_record(
    sqlite_bench: Bench, reference: Reference, way: str
) -> None:
    """Put back once the pipeline is mended, or closed with a word; its run says so."""
    bench = sqlite_bench
    bench.write(NUMBERED, settings=WITH_PICKY, pipelines=PICKY)
    bench.crawl()
    (record,) = bench.quarantine
    whole = {key: row for key, row in reference(NUMBERED).items() if key != "k044"}
    if way == "resolve":
        acts.resolve(bench.database, [record["id"]], "no such product", **WHO)
        assert "k043" not in bench.items
        assert quarantine.find(bench.database, bench.task["id"], resolved=False) == []
    else:
        acts.requeue(bench.database, [record["id"]], **WHO)
        bench.env = {"MENDED": "1"}
        with bench.requests() as asked:
            bench.crawl()
        assert asked == {5: 1}
        bench.assert_complete(whole)
    acts_done = [act for _, act in operations.find(bench.database, bench.task["id"])]
    assert [(act.kind, act.actor, act.reason) for act in acts_done] == [(way, *WHO.values())]


def test_res_7_a_reset_is_an_act_that_names_what_it_erases(bench: Bench) -> None:
    bench.write(CHAIN + "\n\nclass Other(Chain):\n    name = 'other'\n")
    bench.crawl("other")
    bench.settings = {"RESUME_JOURNAL": False, "RESUME_LEASE": 60}
    bench.crawl_killed("commit.after:6", **COMMITS_ONE_BY_ONE)
    with pytest.raises(ActRefused, match="is being read by worker"):
        acts.reset(bench.database, bench.task["id"], **WHO)
    bench.expire_leases()
    before = bench.snapshot()
    told = acts.reset(bench.database, bench.task["id"], dry_run=True, **WHO)
    assert bench.snapshot() == before
    done = acts.reset(bench.database, bench.task["id"], **WHO)
    assert done.sentences == told.sentences
    assert done.sentences[:2] == ("1 shard is erased.", "The checkpoints of 6 pages are erased.")
    after = bench.snapshot()
    assert after.items == before.items and len(after.items) == 120 + 60
    others = {number for number, row in before.shards.items() if row["task_id"] == 1}
    assert {number: before.shards[number] for number in others} == after.shards


@mostly_on("mariadb")
def test_res_7_a_restarted_run_reads_everything_again(bench: Bench, reference: Reference) -> None:
    bench.write(CHAIN)
    bench.crawl()
    acts.restart(bench.database, bench.task["id"], **WHO)
    bench.assert_sound()
    bench.crawl()
    bench.assert_complete(reference(CHAIN))
    assert bench.site.pages() == [*range(1, 13)] * 2
    assert bench.task["run_no"] == 1
