"""Redis, shards and leases: work that is handed out comes back, and has one owner.

On MariaDB and a Redis of the test's own; every process has a home of its own, as if it
ran on a machine of its own.
"""

from __future__ import annotations

import json
import random
import signal
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from scrapy_resume.testing import Observer
from tests.acceptance.harness import NUMBERED, SLACK, Bench, Crawl, frozen, wait_until
from tests.acceptance.test_res import ONE_BY_ONE
from tests.services import MariaDB, Redis

QUICK: dict[str, Any] = {
    "RESUME_LEASE": 1.0,
    "RESUME_HEARTBEAT": 0.2,
    "RESUME_MAX_WAIT": 5,
    "RESUME_MAX_ATTEMPTS": 1000,
}
OPEN_TRANSACTIONS = "SELECT count(*) FROM information_schema.innodb_trx"


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[Redis]:
    """A Redis of the test's own, which it may harm."""
    server = Redis(tmp_path / "redis")
    server.start()
    yield server
    server.discard()


@pytest.fixture
def red(mariadb_bench: Bench, redis: Redis) -> Bench:
    """A project on MariaDB and Redis."""
    mariadb_bench.env["RESUME_REDIS_URL"] = redis.url
    mariadb_bench.settings = QUICK
    return mariadb_bench


@contextmanager
def watched(bench: Bench) -> Iterator[Observer]:
    """No invariant is violated while the block runs."""
    observer = Observer(bench.database_url, prefix=bench.prefix, served=bench.served)
    with observer.watching(0.05):
        yield observer
    assert observer.violations == []


def fleet(bench: Bench, size: int, **given: Any) -> list[Crawl]:
    """Start *size* processes on machines of their own."""
    return [bench.start(home=f"machine {number}", **given) for number in range(size)]


def reclaims(bench: Bench) -> list[Any]:
    return [act for act in bench.snapshot().operations if act["kind"] == "reclaim"]


def assert_whole(bench: Bench, pages: int) -> None:
    """The newest run is complete, and everything that the site serves on *pages* is stored."""
    bench.assert_complete(bench.items)
    expected = [key for page in range(1, pages + 1) for key in bench.served[page]]
    assert sorted(bench.items) == sorted(expected)


# RED.1

TWELVE = NUMBERED + "    last_page = 36\n    shard_pages = 3\n"


def one_of_three_dies(bench: Bench, dice: random.Random) -> bool:
    """3 workers, 12 shards, SIGKILL at a random moment; whether it struck."""
    crawls = fleet(bench, 3, RESUME_SHARDS=2, RESUME_PAGES_IN_FLIGHT=1)
    victim = crawls[dice.randrange(3)]
    wanted = len(bench.site.requests) + dice.randint(1, 24)
    wait_until(lambda: len(bench.site.requests) >= wanted, interval=0.002)
    time.sleep(dice.random() * 0.05)
    struck = victim.kill().code == -signal.SIGKILL
    for crawl in crawls:
        crawl.wait()
    assert [shard["status"] for shard in bench.shards] == ["done"] * 12
    assert_whole(bench, 36)
    return struck


def repeated_deaths(bench: Bench, times: int, seed: int) -> int:
    """Run after run, until *times* workers were killed; how many shards came back."""
    bench.write(TWELVE)
    bench.site.listing.rows_per_page = 3
    bench.site.delay = 0.05
    dice, killed = random.Random(seed), 0
    with watched(bench):
        while killed < times:
            killed += one_of_three_dies(bench, dice)
    return len(reclaims(bench))


def test_red_1_popped_work_dies_with_the_worker(red: Bench) -> None:
    assert repeated_deaths(red, 3, seed=zlib.crc32(b"red 1")) >= 1


# RED.2

SLOW = NUMBERED + "    shard_pages = 2\n"
COMPUTES = """\
import time

class Rows(Numbered):
    name = 'rows'
    shard_pages = 2

    def parse(self, response):
        if number_of(response) == 5:
            end = time.monotonic() + float(os.environ["BENCH_SECONDS"])
            while time.monotonic() < end:
                pass
        yield from rows(response)
"""


def slow_downloads(bench: Bench, answer: float, **given: Any) -> None:
    """Every page takes longer than the lease, and nobody else starts a live shard."""
    bench.write(SLOW)
    bench.site.delay = answer
    with watched(bench):
        crawls = fleet(bench, 3, RESUME_SHARDS=2, RESUME_PAGES_IN_FLIGHT=1, **given)
        for crawl in crawls:
            crawl.wait()
    assert_whole(bench, 12)
    assert reclaims(bench) == []
    assert {shard["fencing_token"] for shard in bench.shards} == {1}
    assert sorted(bench.site.pages()) == list(range(1, 13))
    for crawl in crawls:
        assert "lost lease" not in crawl.log


def blocking_callback(bench: Bench, seconds: float, **given: Any) -> list[Crawl]:
    """A callback keeps the event loop to itself for longer than the lease."""
    bench.write(COMPUTES)
    bench.site.delay = 0
    bench.env["BENCH_SECONDS"] = str(seconds)
    with watched(bench):
        crawls = fleet(bench, 3, RESUME_SHARDS=2, RESUME_PAGES_IN_FLIGHT=1, **given)
        for crawl in crawls:
            crawl.wait()
    assert_whole(bench, 12)
    for crawl in crawls:
        assert "Traceback" not in crawl.log
    return crawls


def test_red_2_answers_slower_than_the_lease_change_no_owner(red: Bench) -> None:
    slow_downloads(red, 2.5, RESUME_LEASE=2, RESUME_HEARTBEAT=0.4)


def test_red_2_a_callback_longer_than_the_lease_harms_nothing(red: Bench) -> None:
    blocking_callback(red, 2.5, RESUME_LEASE=2, RESUME_HEARTBEAT=0.4)
    # Others may take over what it held, but only a page in flight is read twice.
    assert all(red.site.hits(page=page) <= 2 for page in range(1, 13))


# RED.3

TWO = NUMBERED + "    shard_pages = 9\n"


def freeze_outside_a_transaction(crawl: Crawl, mariadb: MariaDB) -> None:
    """SIGSTOP at a moment without row locks, which would keep everyone else out."""
    while True:
        crawl.signal(signal.SIGSTOP)
        wait_until(lambda: frozen(crawl))
        time.sleep(0.2)  # the server shows news of transactions once in 0.1 s
        if mariadb.execute(OPEN_TRANSACTIONS) == [(0,)]:
            return
        crawl.signal(signal.SIGCONT)
        time.sleep(0.03)


def frozen_at_page_7(bench: Bench, mariadb: MariaDB, **given: Any) -> Crawl:
    """A worker that asked for page 7 of its first shard, with the old answer waiting."""
    held = bench.site.behave(page=7, hold=True)
    crawl = bench.start(home="A", RESUME_SHARDS=1, **ONE_BY_ONE, **given)
    held.wait()
    wait_until(lambda: bench.committed() == set(range(1, 7)))
    freeze_outside_a_transaction(crawl, mariadb)
    bench.site.heal()
    wait_until(lambda: all(request.status for request in list(bench.site.requests)))
    bench.site.listing.change("k061", title="the newer title")
    return crawl


def wakes_up_too_late(bench: Bench, first: Crawl) -> None:
    """What the sleeper does with the page it has, and with the rest of its life."""
    before = bench.snapshot()
    first.signal(signal.SIGCONT)
    first.wait()
    after = bench.snapshot()
    taken = [number for number, row in before.shards.items() if row["status"] == "done"]
    assert [after.shards[number] for number in taken] == [before.shards[n] for n in taken]
    assert json.loads(bench.items["k061"])["title"] == "the newer title"
    assert first.log.count("lost lease") == 1
    assert first.stats["resume/leases/lost"] == 1
    assert first.finish_reason == "finished"
    assert "Traceback" not in first.log


def test_red_3_the_sleeper_is_refused_and_goes_on_with_other_work(
    red: Bench, mariadb: MariaDB
) -> None:
    red.write(TWO)
    with watched(red):
        first = frozen_at_page_7(red, mariadb)
        second = red.start(home="B", RESUME_LANES="resumed", **ONE_BY_ONE)
        wait_until(lambda: red.committed() == set(range(1, 10)))
        second.stop().wait()
        wakes_up_too_late(red, first)
    assert red.site.hits(page=7) == 2
    assert sorted(set(red.site.pages())) == list(range(1, 13))
    assert (red.task["verdict"], len(red.items)) == ("complete", 120)
    assert [act["reason"] for act in reclaims(red)] == ["its lease ran out"]
    assert first.stats["resume/shards/finished"] == 1  # the other one


# RED.10


def the_last_holder_dies(bench: Bench, lease: float, **given: Any) -> tuple[float, float]:
    """Seconds from its death to the end of the run, and from there to the last exit."""
    bench.write(NUMBERED + "    shard_pages = 3\n")
    held = bench.site.behave(page=12, hold=True)
    crawls = fleet(bench, 3, RESUME_SHARDS=1, RESUME_MAX_WAIT=lease / 4, **given)
    held.wait()
    done = ["done", "done", "done", "running"]
    wait_until(lambda: sorted(row["status"] for row in bench.shards) == done)
    (holder,) = (row["worker"] for row in bench.shards if row["status"] == "running")
    (victim,) = (crawl for crawl in crawls if f"as worker {holder[:8]}" in crawl.log)
    others = [crawl for crawl in crawls if crawl is not victim]
    bench.site.heal()
    victim.kill()
    died = time.monotonic()
    wait_until(lambda: bench.task["verdict"], timeout=3 * lease + 60)
    over = time.monotonic()
    for crawl in others:
        assert crawl.wait().finish_reason == "finished"
    return over - died, time.monotonic() - over


def test_red_10_idle_workers_stay_until_the_last_shard_is_done(red: Bench) -> None:
    with watched(red):
        waited, left = the_last_holder_dies(red, 1.0, RESUME_LEASE=1, RESUME_HEARTBEAT=0.2)
    assert_whole(red, 12)
    assert waited < 1.0 + SLACK and left < SLACK


# RED.11

# Every list page links to the details of the first one too.
AGAIN = """\
class Rows(Details):
    name = 'rows'
    shard_pages = 3

    def parse(self, response):
        yield from super().parse(response)
        yield response.follow("/item/k001", self.parse_item)
"""


def details(bench: Bench) -> int:
    """How often the detail was fetched that all list pages lead to."""
    return bench.site.hits(path="/item/k001")


def assert_details(bench: Bench) -> None:
    bench.assert_complete(bench.items)
    assert sorted(bench.items) == sorted(key for page in range(1, 13) for key in bench.served[page])


def test_red_11_a_retry_is_not_swallowed_by_the_duplicate_filter(red: Bench) -> None:
    red.write(AGAIN)
    red.site.listing.rows_per_page = 2
    red.site.delay = 0.1
    red.env["RESUME_SHARED_FINGERPRINTS"] = "1"
    red.settings = {**QUICK, "RESUME_SHARDS": 1, "RESUME_PAGES_IN_FLIGHT": 1, "RESUME_MAX_WAIT": 0}
    red.site.behave(page=8, status=503)
    held = red.site.behave(page=2, hold=True)
    red.site.behave(page=4, delay=1.0)  # long enough to hear what page 1 fetched
    with watched(red):
        backoff = {"RESUME_BACKOFF_BASE": 600, "RESUME_BACKOFF_MAX": 600}
        first = [red.start(home="A", **backoff)]
        held.wait()
        first.append(red.start(home="B", **backoff))
        wait_until(lambda: 4 in red.committed())
        held.heal()
        for crawl in first:
            assert crawl.wait().finish_reason == "resume_incomplete"
        assert red.committed() == set(range(1, 13)) - {8}
        filtered = [crawl.stats.get("dupefilter/filtered", 0) for crawl in first]
        assert details(red) + sum(filtered) == 12  # 11 pages, and page 1 twice
        assert first[1].stats["resume/duplicates/shared"] >= 1
        red.site.heal()
        with red.requests() as asked:
            red.due_at_once()
            for crawl in fleet(red, 2):  # the user starts it again, twice
                crawl.wait()
        assert asked == {8: 1}
        assert_details(red)
        fetched = details(red)
        with red.requests() as asked:
            for crawl in fleet(red, 2):
                assert crawl.wait().finish_reason == "finished"
        assert asked == dict.fromkeys(range(1, 13), 1)  # the next pass reads all pages
        assert details(red) > fetched
    assert_details(red)


# Recovery


def seconds_to_first_page(bench: Bench) -> float:
    """From the start of a process to its first request of a list page; it is killed there."""
    before = len(bench.site.requests)
    begun = time.monotonic()
    crawl = bench.start()
    wait_until(lambda: len(bench.site.requests) > before, interval=0.002)
    took = time.monotonic() - begun
    crawl.wait_until_logged("Working on run")
    crawl.kill()
    return took


def test_red_1_the_same_machine_goes_on_at_once(red: Bench) -> None:
    """After SIGKILL the first new page is asked for within a cold start and a second,
    however long the lease."""
    red.write(NUMBERED)
    red.settings = {"RESUME_LEASE": 3000, "RESUME_HEARTBEAT": 600}
    red.site.behave(page=range(1, 13), hold=True)
    prefix = f"RESUME_TABLE_PREFIX={red.prefix}"
    assert red.run_scrapy("resume", "db", "upgrade", "-s", prefix).wait().code == 0
    cold = seconds_to_first_page(red)
    warm = min(seconds_to_first_page(red) for _ in range(3))
    print(f"cold start {cold:.2f} s, after SIGKILL {warm:.2f} s")
    assert warm < cold + 1.0
    assert len(reclaims(red)) >= 3
    red.site.heal()
    red.crawl()
    assert_whole(red, 12)
