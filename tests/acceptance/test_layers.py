"""Three layers of state: each may be lost, and the database may be away at the start.

What is read on before the database answers goes into the journal, and is stored or salvaged
once it does. ``docs/explanation/layers.md`` says which layer holds what.
"""

from __future__ import annotations

import itertools
import random
import time

import pytest

from tests.acceptance import journals
from tests.acceptance.conftest import Reference
from tests.acceptance.harness import CHAIN, NUMBERED, Bench, Crawl, wait_until
from tests.acceptance.test_red import watched
from tests.acceptance.test_txn import QUICK, grant, of_ours
from tests.proxy import Proxy
from tests.services import MariaDB, Redis

ONE_LIST = NUMBERED + "    shard_pages = 12\n"
SETTINGS = {
    "RESUME_LEASE": 2,
    "RESUME_HEARTBEAT": 0.2,
    "RESUME_PAGES_IN_FLIGHT": 1,
    "RESUME_COMMIT_PAGES": 1,
}


@pytest.fixture
def layered(
    mariadb_bench: Bench, mariadb: MariaDB, mariadb_name: str, proxy: Proxy, redis_server: Redis
) -> Bench:
    """A bench with all three layers, whose crawls reach MariaDB through the proxy."""
    grant(mariadb, mariadb_name)
    bench = mariadb_bench
    url = mariadb.url(mariadb_name, port=proxy.port, user="crawler")
    bench.env = {"RESUME_DATABASE_URL": url, "RESUME_REDIS_URL": redis_server.url}
    bench.settings = SETTINGS
    return bench


def killed_at(bench: Bench, proxy: Proxy, *, away: int, killed: int) -> Crawl:
    """A crawl whose database goes away while page *away* is read, and which is killed while
    page *killed* is."""
    first, last = (bench.site.behave(page=page, hold=True) for page in (away, killed))
    crawl = bench.start()
    first.wait()
    wait_until(lambda: bench.watermark == away - 1)
    proxy.leave()
    first.release()
    last.wait()
    wait_until(lambda: bench.journalled() == set(range(away, killed)))
    crawl.kill()
    last.release()
    return crawl


def test_it_reads_on_from_the_journal_before_the_database_is_back(
    layered: Bench, proxy: Proxy, reference: Reference
) -> None:
    """And again from there, when that process is killed too."""
    bench = layered
    bench.write(CHAIN, settings=QUICK)
    killed_at(bench, proxy, away=4, killed=6)
    with bench.requests() as asked:
        held = bench.site.behave(page=8, hold=True)
        crawl = bench.start()
        wait_until(lambda: bench.journalled() == {4, 5, 6, 7})
        crawl.kill()
        held.release()
        held = bench.site.behave(page=10, hold=True)
        crawl = bench.start(RESUME_LEASE=20)  # half of it is for pages in flight
        wait_until(lambda: bench.journalled() == set(range(4, 10)))
        assert bench.watermark == 3
        lease = bench.shard["lease_until"]
        with watched(bench):
            proxy.come_back()
            wait_until(lambda: bench.shard["lease_until"] > lease)  # it is renewed first of all
            held.release()
            crawl.wait()
    assert asked == {6: 1, 7: 1, 8: 2, **dict.fromkeys(range(9, 13), 1)}
    bench.assert_complete(reference(CHAIN))
    assert crawl.finish_reason == "finished" and bench.journalled() == set()
    assert [line.partition("The database ")[2][:13] for line in of_ours(crawl, "WARNING")] == [
        "cannot be rea", "is back after",
    ]  # fmt: skip


def test_it_reads_on_from_the_mirror_if_the_journal_is_gone(
    layered: Bench, proxy: Proxy, reference: Reference
) -> None:
    bench = layered
    bench.write(ONE_LIST, settings=QUICK)
    killed_at(bench, proxy, away=4, killed=6)
    journals.delete(bench.directory / "home")
    with bench.requests() as asked:
        crawl = bench.start()
        wait_until(lambda: bench.journalled() == set(range(4, 13)))
        proxy.come_back()
        crawl.wait()
    assert asked == dict.fromkeys(range(4, 13), 1)
    bench.assert_complete(reference(ONE_LIST))


def test_it_waits_if_neither_says_where_to_read_on(
    layered: Bench, proxy: Proxy, reference: Reference
) -> None:
    bench = layered
    bench.write(CHAIN, settings=QUICK)
    killed_at(bench, proxy, away=4, killed=6)
    journals.delete(bench.directory / "home")
    with bench.requests() as asked:
        crawl = bench.start(RESUME_REDIS_URL="off")
        crawl.wait_until_logged("since nothing says where to read on")
        proxy.come_back()
        crawl.wait()
    assert asked == dict.fromkeys(range(4, 13), 1)
    bench.assert_complete(reference(CHAIN))
    assert len(of_ours(crawl, "WARNING")) == 2 and of_ours(crawl, "ERROR") == []


@pytest.mark.stress
def test_what_was_taken_over_meanwhile_is_salvaged(
    layered: Bench, proxy: Proxy, reference: Reference
) -> None:
    """The other's pages stand; ours are there where it did not come so far."""
    bench = layered
    bench.write(CHAIN, settings=QUICK)
    killed_at(bench, proxy, away=4, killed=6)
    held = bench.site.behave(page=9, hold=True)
    crawl = bench.start()
    wait_until(lambda: bench.journalled() == set(range(4, 9)))
    bench.expire_leases()
    slower = bench.site.behave(page=6, hold=True)
    other = bench.start(home="other", RESUME_DATABASE_URL=bench.database_url)
    wait_until(lambda: bench.watermark == 5)
    proxy.come_back()
    crawl.wait_until_logged("salvaged")
    assert bench.watermark == 5 and len(bench.items) == 80
    for page in (held, slower):
        page.release()
    for one in (crawl, other):
        one.wait()
    bench.assert_complete(reference(CHAIN))
    (salvaged,) = [act for act in bench.snapshot().operations if act["kind"] == "salvage"]
    assert bench.journalled() == set() and salvaged["task_id"] == bench.task["id"]
    assert "lost lease" in crawl.log


@pytest.mark.stress
def test_stopped_before_the_database_is_back(
    layered: Bench, proxy: Proxy, reference: Reference
) -> None:
    bench = layered
    bench.write(CHAIN, settings=QUICK)
    killed_at(bench, proxy, away=4, killed=6)
    held = bench.site.behave(page=9, hold=True)
    crawl = bench.start(RESUME_GRACE=1)
    wait_until(lambda: bench.journalled() == set(range(4, 9)))
    crawl.stop().wait(10)
    assert "5 page(s) are in the journal" in crawl.log
    assert of_ours(crawl, "ERROR") == [] and "Traceback" not in crawl.log
    held.release()
    with bench.requests() as asked:
        crawl = bench.start()
        wait_until(lambda: bench.journalled() == set(range(4, 13)))
        proxy.come_back()
        crawl.wait()
    assert asked == dict.fromkeys(range(9, 13), 1)
    bench.assert_complete(reference(CHAIN))


LAYERS = ("journal", "redis", "database")
PAIRS = [pair for size in (1, 2) for pair in itertools.combinations(LAYERS, size)]
# Only a database that is lost is not lost in any other test.
CASES = [
    pytest.param(lost, id="+".join(lost), marks=[pytest.mark.stress] * (lost != ("database",)))
    for lost in PAIRS
]


@pytest.mark.parametrize("lost", CASES)
def test_each_layer_and_any_two_of_them_may_be_lost(
    sqlite_bench: Bench, redis_server: Redis, reference: Reference, lost: tuple[str, ...]
) -> None:
    bench = sqlite_bench
    bench.write(ONE_LIST)
    bench.env["RESUME_REDIS_URL"] = redis_server.url
    bench.settings = {**SETTINGS, "RESUME_JOURNAL": True}
    bench.crawl_killed("journal.synced:5")
    kept = bench.journalled()
    assert kept
    if "journal" in lost:
        journals.delete(bench.directory / "home")
    if "redis" in lost:
        redis_server.client().flushall()
    if "database" in lost:
        bench.database.close()
        for part in bench.directory.parent.glob("resume.db*"):
            part.unlink()
    with bench.requests() as asked:
        crawl = bench.crawl()
    assert crawl.finish_reason == "finished"
    bench.assert_complete(reference(ONE_LIST))
    if not {"journal", "database"} & {*lost}:
        assert not kept & asked.keys()
    assert "Traceback" not in crawl.log


@pytest.mark.stress
@pytest.mark.parametrize("seed", range(4))
def test_a_database_that_comes_and_goes_at_the_start(
    layered: Bench, proxy: Proxy, reference: Reference, seed: int
) -> None:
    """With kills in between; whatever was opened when it went away is opened again."""
    bench, chance = layered, random.Random(seed)
    bench.write(CHAIN, settings=QUICK)
    bench.site.delay = 0.1
    killed_at(bench, proxy, away=3, killed=4)
    with watched(bench):
        for _ in range(4):
            crawl = bench.start()
            for _ in range(chance.randrange(3, 8)):
                time.sleep(chance.uniform(0.05, 0.6))
                chance.choice([proxy.leave, proxy.come_back])()
            if crawl.code is None:
                crawl.kill()
        proxy.come_back()
        crawl = bench.crawl()
    assert crawl.finish_reason in ("finished", "resume_nothing_to_do"), crawl.tail
    bench.assert_complete(reference(CHAIN))
    assert all("Traceback" not in one.log for one in bench.crawls)
