"""Ownership: an owner that was only frozen comes back and changes nothing."""

from __future__ import annotations

import json
import signal

from scrapy_resume.testing import Observer
from tests.acceptance.harness import NUMBERED, Bench, Crawl, frozen, wait_until
from tests.acceptance.test_res import ONE_BY_ONE
from tests.acceptance.tiers import mostly_on

ONE_SHARD = NUMBERED + "    shard_pages = 12\n"
QUICK = {"RESUME_LEASE": 2, "RESUME_HEARTBEAT": 0.2, "RESUME_MAX_WAIT": 5}


def freeze_at_page_4(bench: Bench) -> Crawl:
    """A crawl that asked for page 4, froze, and has the answer waiting."""
    held = bench.site.behave(page=4, hold=True)
    crawl = bench.start(**ONE_BY_ONE)
    held.wait()
    bench.freeze(crawl)
    assert bench.committed() == {1, 2, 3}
    bench.site.heal()
    wait_until(lambda: all(request.status for request in bench.site.requests))
    return crawl


def test_a_frozen_owner_is_fenced_and_changes_nothing(bench: Bench) -> None:
    bench.write(ONE_SHARD)
    bench.settings = QUICK
    first = freeze_at_page_4(bench)
    bench.site.listing.change("k031", title="the newer title")
    observer = Observer(bench.database_url, prefix=bench.prefix, served=bench.served)
    with observer.watching(0.05):
        second = bench.crawl(home="another machine")
        assert second.finish_reason == "finished"
        bench.assert_sound()
        before = bench.snapshot()
        assert json.loads(bench.items["k031"])["title"] == "the newer title"
        first.signal(signal.SIGCONT)
        first.wait()
    assert observer.violations == []
    after = bench.snapshot()
    assert (after.shards, after.items, after.tasks) == (before.shards, before.items, before.tasks)
    assert "lost lease" in first.log
    assert first.stats["resume/leases/lost"] == 1
    assert "Traceback" not in first.log
    acts = [act for act in after.operations if act["kind"] == "reclaim"]
    assert len(acts) == 1
    assert bench.shard["fencing_token"] >= 3  # claimed, reclaimed, claimed


def test_a_late_page_of_a_former_owner_is_refused(bench: Bench) -> None:
    """Its page arrives while the new owner works on the same one."""
    bench.write(ONE_SHARD)
    # Without a heartbeat in between, only the fence can tell it.
    slow = {"RESUME_LEASE": 3000, "RESUME_HEARTBEAT": 600}
    first = bench.start(RESUME_FAULT="page.response:4:stop", **slow, **ONE_BY_ONE)
    wait_until(lambda: frozen(first))
    assert bench.committed() == {1, 2, 3}
    bench.expire_leases()
    held = bench.site.behave(page=4, hold=True)
    with Observer(bench.database_url, prefix=bench.prefix).watching(0.05) as observer:
        second = bench.start(home="another machine", **QUICK, **ONE_BY_ONE)
        held.wait()
        first.signal(signal.SIGCONT)
        first.wait_until_logged("lost lease")
        assert bench.committed() == {1, 2, 3}
        # With a journal its items are salvaged: inserted where there are none, and read again.
        assert "k031" not in bench.items or bench.database.dialect == "mysql"
        bench.site.heal()
        second.wait()
        first.stop().wait()
    assert observer.violations == []
    bench.assert_sound()
    assert (bench.task["verdict"], len(bench.items)) == ("complete", 120)


@mostly_on("sqlite")
def test_the_same_machine_takes_a_killed_owners_shards_at_once(bench: Bench) -> None:
    bench.write(ONE_SHARD)
    bench.settings = {"RESUME_LEASE": 3000, "RESUME_HEARTBEAT": 600}
    bench.crawl_killed("commit.after:3", **ONE_BY_ONE)
    token = bench.shard["fencing_token"]
    bench.crawl()
    assert bench.task["verdict"] == "complete"
    assert bench.shard["fencing_token"] > token
    assert [act["kind"] for act in bench.snapshot().operations] == ["reclaim"]


@mostly_on("mariadb")
def test_another_machine_waits_for_the_lease(bench: Bench) -> None:
    bench.write(ONE_SHARD)
    bench.settings = {"RESUME_LEASE": 3, "RESUME_HEARTBEAT": 0.3}
    bench.crawl_killed("commit.after:3", **ONE_BY_ONE)
    with Observer(bench.database_url, prefix=bench.prefix).watching(0.05) as observer:
        bench.crawl(home="another machine")
    assert observer.violations == []
    assert bench.task["verdict"] == "complete"
    assert "its lease ran out" in [act["reason"] for act in bench.snapshot().operations]
    assert sorted(bench.site.pages()) == list(range(1, 13))
