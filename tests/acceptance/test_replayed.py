"""Journals of processes that died: brought into the database by whoever may, once, and in time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from scrapy_resume.store import operations
from tests.acceptance.forkserver import ForkServer
from tests.acceptance.harness import wait_until
from tests.acceptance.outages import Outage, Servers, harmed, struck_bench

__all__ = ["harmed"]  # a fixture

PAGES, ROWS, SHARDS = 80, 2, 4


@pytest.fixture
def outage(tmp_path: Path, harmed: Servers, forks: ForkServer | None) -> Iterator[Outage]:
    """A list of 80 pages whose database may be stopped."""
    with struck_bench(tmp_path, harmed, forks, pages=PAGES, rows=ROWS) as bench:
        bench.site.delay = 0.1
        yield Outage(bench, harmed.mariadb, PAGES, SHARDS)


def killed_in_an_outage(outage: Outage, home: str = "home") -> set[int]:
    """The pages that are in the journal of a process that was killed while it was away."""
    bench = outage.bench
    crawl = bench.start(home=home)
    outage.begin(after=12)
    wait_until(lambda: len(bench.journalled(home)) > 20)  # more than one step
    crawl.kill()
    bench.site.delay = 0
    return bench.journalled(home)


@pytest.mark.parametrize("point", ["replay.settled:1"])
def test_txn_9_killed_in_the_replay_too(outage: Outage, point: str) -> None:
    kept = killed_in_an_outage(outage)
    outage.end()
    outage.bench.crawl_killed(point)
    crawl = outage.bench.crawl()
    assert crawl.finish_reason == "finished", crawl.tail
    outage.assert_whole()
    assert not kept & {*outage.read_again()}
    assert outage.bench.journalled() == set()


def test_txn_9_a_neighbour_stores_what_a_dead_process_had_read(outage: Outage) -> None:
    """A second process of the same home, which works on shards of its own meanwhile."""
    bench = outage.bench
    bench.settings = {**bench.settings, "RESUME_SHARDS": 2}
    first, second = bench.start(), bench.start()
    wait_until(lambda: {row["status"] for row in bench.shards} == {"running"})
    outage.begin(after=16)
    wait_until(lambda: len(bench.journalled()) >= 16)
    first.kill()
    kept = bench.journalled()
    bench.site.delay = 0
    outage.end()
    assert second.wait().finish_reason == "finished", second.tail
    outage.assert_whole()
    assert not kept & {*outage.read_again()}
    assert bench.journalled() == set()
    assert "was replayed" in second.log


def test_a_disk_that_comes_back_overwrites_nothing(outage: Outage) -> None:
    """The machine is lost with its journal; others have its shards when the disk is back."""
    bench = outage.bench
    kept = killed_in_an_outage(outage, "lost")
    outage.end()
    bench.expire_leases()
    assert "Took back 4 shard(s)" in said(outage, "reap")
    before = bench.shards, bench.items
    disk = str(bench.directory / "lost")
    assert f"{len(kept)} page(s) salvaged" in said(outage, "relay", "--journal", disk)
    assert bench.shards == before[0]
    assert len(bench.items) == len(before[1]) + len(kept) * ROWS
    notes = [one for _, one in operations.find(bench.database, bench.task["id"])]
    assert {one.kind for one in notes} >= {"reclaim", "salvage"}
    assert bench.crawl(home="other").finish_reason == "finished"
    outage.assert_whole()
    assert "holds nothing" in said(outage, "relay", "--journal", disk)
    outage.assert_whole()


def said(outage: Outage, verb: str, *options: str) -> str:
    """What a verb says, called on another machine."""
    words = outage.bench.words("", home="elsewhere", verb=verb)
    call = outage.bench.run_scrapy("resume", *words, *options).wait()
    assert call.code == 0, call.tail
    return call.log
