"""Workers of one run: how they join, keep and lose their shards, wait, and end."""

from __future__ import annotations

import json
import re
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from scrapy_resume.store.migrate import SCHEMA_VERSION
from scrapy_resume.testing import Observer
from tests.acceptance.conftest import Reference
from tests.acceptance.harness import NUMBERED, Bench, Crawl, frozen, wait_until
from tests.acceptance.tiers import mostly_on
from tests.services import Redis

IN_SIX = NUMBERED + "    shard_pages = 2\n"
ONE_SHARD = NUMBERED + "    shard_pages = 12\n"
LONG = {"RESUME_LEASE": 3000, "RESUME_HEARTBEAT": 600}  # nothing is noticed by time
ONE = {"RESUME_SHARDS": 1, "RESUME_PAGES_IN_FLIGHT": 1}

COMPUTES = """\
class Rows(Numbered):
    name = 'rows'
    shard_pages = 6

    def parse(self, response):
        if number_of(response) == 2 and os.environ.get('COMPUTES'):
            while not os.path.exists('computed'):
                sum(range(1000))
        yield from rows(response)
"""


def computing(bench: Bench, **given: Any) -> Crawl:
    """A crawl that computes in a callback, until :func:`computed` lets it end."""
    bench.write(COMPUTES)
    bench.settings = ONE | {"RESUME_LEASE": 3, "RESUME_HEARTBEAT": 0.3, "RESUME_MAX_WAIT": 10}
    bench.env["COMPUTES"] = "1"
    crawl = bench.start(home="one", **given)
    bench.site.wait_for(page=2)
    del bench.env["COMPUTES"]
    return crawl


def computed(bench: Bench) -> None:
    (bench.directory / "computed").touch()


@mostly_on("sqlite")
def test_red_2_a_callback_that_computes_longer_than_the_lease_keeps_its_shard(
    bench: Bench, reference: Reference
) -> None:
    first = computing(bench)
    second = bench.start(home="two")
    begun = bench.shards[0]["lease_until"]
    wait_until(lambda: bench.shards[0]["lease_until"] - begun > timedelta(seconds=4))
    computed(bench)
    first.wait(), second.wait()
    bench.assert_complete(reference(NUMBERED))
    assert sorted(bench.site.pages()) == list(range(1, 13))
    assert [act["kind"] for act in bench.snapshot().operations] == []
    assert all(shard["fencing_token"] == 1 for shard in bench.shards)


@mostly_on("mariadb")
def test_red_2_a_loop_that_hangs_loses_its_shard_at_a_known_time(
    bench: Bench, reference: Reference
) -> None:
    first = computing(bench, RESUME_LOOP_PATIENCE=1)
    second = bench.start(home="two")
    wait_until(lambda: bench.snapshot().operations)
    computed(bench)
    first.wait(), second.wait()
    bench.assert_complete(reference(NUMBERED))
    assert "RESUME_LOOP_PATIENCE" in "".join(first.said("ERROR"))
    assert "its lease ran out" in {act["reason"] for act in bench.snapshot().operations}
    assert first.log.count("lost lease") == 1


def test_red_3_a_lost_shards_requests_are_not_asked_for(
    sqlite_bench: Bench, reference: Reference
) -> None:
    """Neither those in the scheduler nor those that wait for their turn at the downloader."""
    bench = sqlite_bench
    bench.write(ONE_SHARD)
    held = bench.site.behave(path="/list", skip=2, hold=True)
    slow = {"CONCURRENT_REQUESTS_PER_DOMAIN": 1, "RESUME_PAGES_IN_FLIGHT": 8}
    lease = {"RESUME_LEASE": 3, "RESUME_HEARTBEAT": 0.3, "RESUME_MAX_WAIT": 10}
    first = bench.start(home="one", **slow, **lease)
    held.wait()  # the third page, whichever it is; others wait behind it
    wait_until(lambda: len(bench.committed()) == 2)
    bench.freeze(first)
    bench.site.heal()
    second = bench.crawl(home="two", **lease)
    assert second.finish_reason == "finished"
    before = bench.site.hits()
    first.signal(signal.SIGCONT)
    first.wait()
    assert bench.site.hits() == before, bench.site.pages()
    assert first.log.count("lost lease") == 1
    assert "Traceback" not in first.log
    bench.assert_complete(reference(NUMBERED))


@mostly_on("sqlite")
def test_a_neighbour_on_the_same_machine_is_recovered_without_waiting_for_its_lease(
    bench: Bench, reference: Reference
) -> None:
    bench.write(IN_SIX)
    bench.settings = ONE | {"RESUME_LEASE": 3000, "RESUME_HEARTBEAT": 0.3}
    held = bench.site.behave(page=1, hold=True)
    first = bench.start()
    held.wait()
    second = bench.start()
    wait_until(lambda: len(bench.committed()) == 10)
    killed = time.monotonic()
    first.kill()
    bench.site.heal()
    second.wait()
    assert time.monotonic() - killed < 60  # its lease has 3000 s
    bench.assert_complete(reference(IN_SIX))
    assert "Took back 1 shard(s) of a process that died on this machine" in second.log


def test_a_frozen_neighbour_holds_its_slot_and_has_one_more_lease(
    sqlite_bench: Bench, reference: Reference
) -> None:
    bench = sqlite_bench
    bench.write(IN_SIX)
    bench.settings = ONE | {"RESUME_LEASE": 2, "RESUME_HEARTBEAT": 0.2}
    held = bench.site.behave(page=1, hold=True)
    first = bench.start()
    held.wait()
    second = bench.start()
    second.wait_until_logged("Working on run")
    bench.freeze(first)
    ended = bench.shards[0]["lease_until"]
    wait_until(lambda: len(bench.committed()) == 10)
    bench.site.heal()
    second.wait()
    (act,) = (act for act in bench.snapshot().operations if act["kind"] == "reclaim")
    assert act["at"] - ended > timedelta(seconds=2)  # one more lease
    first.signal(signal.SIGCONT)
    first.wait()
    bench.assert_complete(reference(IN_SIX))
    assert first.log.count("lost lease") == 1


@mostly_on("sqlite")
def test_prc_3_join_false_says_who_holds_the_run(bench: Bench) -> None:
    bench.write(IN_SIX)
    held = bench.site.behave(page=1, hold=True)
    first = bench.start(RESUME_SHARDS=1)
    held.wait()
    begun = time.monotonic()
    second = bench.crawl(home="two", RESUME_JOIN=False)
    assert time.monotonic() - begun < 60
    (said,) = second.said("ERROR")
    assert re.search(
        rf"run 1 of rows is worked on by worker [0-9a-f]{{8}} \(\S+, pid {first.process.pid}\)"
        r" since \S+ \S+ UTC, which holds \d of its shards, until \S+ \S+ UTC or longer;"
        r" RESUME_JOIN is False",
        said,
    ), said
    assert second.finish_reason == "resume_nothing_to_do"
    joined = bench.start(home="three")
    joined.wait_until_logged("This process joins: run 1 of rows is worked on by worker ")
    bench.site.heal()
    first.wait()
    joined.wait()
    assert bench.task["verdict"] == "complete"
    third = bench.crawl(RESUME_JOIN=False)  # nobody is left
    assert (third.finish_reason, bench.task["run_no"]) == ("finished", 2)


def test_prc_3_of_starts_at_the_same_moment_one_stays_alone(
    bench: Bench, reference: Reference
) -> None:
    bench.write(IN_SIX)
    crawls = [bench.start(home=f"m{n}", RESUME_JOIN=False) for n in range(4)]
    for crawl in crawls:
        crawl.wait()
    assert sorted(bench.site.pages()) == sorted([*range(1, 13)] * len(bench.tasks))
    ends = [crawl.finish_reason for crawl in crawls]
    # One that started when the first had ended begins a new run; no two were in one run.
    assert ends.count("finished") == len(bench.tasks)
    assert set(ends) <= {"finished", "resume_nothing_to_do"}
    bench.assert_complete(reference(IN_SIX))


def test_a_worker_whose_intake_leaves_it_nothing_ends_and_says_so(sqlite_bench: Bench) -> None:
    bench = sqlite_bench
    bench.write(
        NUMBERED + "\n    def plan(self):\n"
        "        yield Shard('a', 1, 6, priority=0, site='a')\n"
        "        yield Shard('b', 7, 12, priority=5, site='b')\n"
    )
    first = bench.crawl(RESUME_SITES="a")
    assert bench.committed() == set(range(1, 7))
    assert first.finish_reason == "resume_incomplete"
    said = (
        "nothing is left that this process takes: 1 unfinished shard(s) are not for RESUME_SITES=a"
    )
    assert said in first.log
    assert said in first.stats["resume/verdict_reason"]
    bench.crawl(RESUME_PRIORITIES="0-4", RESUME_LANES="fresh")
    assert bench.committed() == set(range(1, 7))
    bench.crawl(RESUME_PRIORITIES="5", RESUME_LANES="fresh")
    assert bench.task["verdict"] == "complete"


@mostly_on("mariadb")
def test_no_site_is_read_by_more_shards_than_its_cap(bench: Bench, reference: Reference) -> None:
    bench.write(IN_SIX)
    bench.settings = {"RESUME_SITE_SHARDS": 2, "RESUME_HEARTBEAT": 0.2, "RESUME_LEASE": 2}
    held = bench.site.behave(hold=True)
    crawls = [bench.start(home=home) for home in ("one", "two")]
    held.wait()
    bench.site.heal()
    bench.site.behave(delay=0.2)
    most = 0
    while any(crawl.code is None for crawl in crawls):
        most = max(most, sum(shard["status"] == "running" for shard in bench.shards))
    assert most == 2
    bench.assert_complete(reference(IN_SIX))


@mostly_on("sqlite")
def test_a_run_whose_last_owner_died_is_declared_over_by_others(
    bench: Bench, reference: Reference
) -> None:
    """A process of quite another task does it."""
    bench.write(NUMBERED + "\n\nclass Others(Numbered):\n    name = 'others'\n    last_page = 1\n")
    crawl = bench.start(RESUME_FAULT="finish.before:3:stop", RESUME_COMMIT_DELAY=0)
    wait_until(lambda: frozen(crawl))
    crawl.kill()
    shard = bench.database.tables.task_shard
    with bench.database.transaction() as conn:  # as if it had died a moment later
        done = {"status": "done", "worker": None, "instance": None, "lease_until": None}
        conn.execute(shard.update().where(shard.c.status == "running").values(done))
    held = bench.site.behave(page=1, hold=True)
    other = bench.start("others", home="two")
    held.wait()
    wait_until(lambda: bench.tasks[0]["verdict"] is not None)
    assert bench.tasks[0]["verdict"] == "complete"
    bench.site.heal()
    other.wait()


@mostly_on("sqlite")
def test_tables_upgraded_under_a_running_worker_end_it_politely(
    bench: Bench, reference: Reference
) -> None:
    bench.write(IN_SIX)
    bench.settings = ONE
    held = bench.site.behave(page=3, hold=True)
    crawl = bench.start()
    held.wait()
    _version(bench, "9999")
    crawl.wait_until_logged("newer than")
    bench.site.heal()
    crawl.wait()
    assert crawl.finish_reason == "resume_refused"
    (said,) = crawl.said("ERROR")
    assert "this worker needs scrapy_resume" in said
    assert all(shard["status"] != "running" for shard in bench.shards)
    _version(bench, SCHEMA_VERSION)
    bench.assert_sound()
    bench.crawl()
    bench.assert_complete(reference(IN_SIX))


def _version(bench: Bench, version: str) -> None:
    with bench.database.transaction() as conn:
        table = f"{bench.prefix}alembic_version"
        conn.exec_driver_sql(f"UPDATE {table} SET version_num = '{version}'")


SEVERAL = """\
import json
import sys

from scrapy.crawler import AsyncCrawlerProcess
from scrapy.utils.project import get_project_settings
from bench.spiders.rows import Rows, Others

process = AsyncCrawlerProcess(get_project_settings())
crawlers = [process.create_crawler(cls) for cls in (Rows, Others, Rows)]
given = [{}, {}, {"shop": "two"}]
for crawler, args in zip(crawlers, given):
    process.crawl(crawler, **args)

def stop(response, request, spider):
    if spider.name == "others" and "page=2" in request.url:
        spider.crawler.engine  # it is stopped early
        import asyncio
        asyncio.ensure_future(spider.crawler.stop_async())

from scrapy import signals
crawlers[1].signals.connect(stop, signals.response_received)
process.start()
print("OUTCOMES " + json.dumps([
    [crawler.stats.get_value("finish_reason"), crawler.stats.get_value("resume/pages/committed"),
     crawler.stats.get_value("resume/verdict")] for crawler in crawlers
]))
"""


@mostly_on("mariadb")
def test_prc_4_several_spiders_in_one_process(bench: Bench) -> None:
    bench.write(
        """
        class Rows(Numbered):
            name = 'rows'
            identity_args = ('shop',)

        class Others(Numbered):
            name = 'others'
            last_page = 5
            shard_pages = 1
            custom_settings = {"RESUME_SHARDS": 1, "RESUME_PAGES_IN_FLIGHT": 1}
        """
    )
    script = bench.directory / "several.py"
    script.write_text(SEVERAL)
    bench.env |= {"RESUME_HOME": str(bench.directory / "home"), "RESUME_TABLE_PREFIX": bench.prefix}
    crawl = bench.run([sys.executable, str(script)]).wait()
    found = re.search(r"OUTCOMES (.*)", crawl.log)
    assert found, crawl.tail
    (first, other, second) = json.loads(found[1])
    assert first == second == ["finished", 12, "complete"]
    assert (other[0], other[2]) == ("shutdown", "incomplete")
    tasks = {task["name"]: task for task in bench.tasks}
    assert {name: task["verdict"] for name, task in tasks.items()} == {
        "rows": "complete", "others": None, "rows shop=two": "complete",
    }  # fmt: skip
    assert "Traceback" not in crawl.log
    slots = list(Path(bench.directory / "home").glob("slot-*"))
    assert len(slots) == 3
    assert not list(Path(bench.directory / "home").glob("slot-*/instance"))
    bench.crawl("others")
    assert {task["verdict"] for task in bench.tasks} == {"complete"}


@pytest.fixture
def redis_bench(bench: Bench, redis_server: Redis) -> Bench:
    """A bench whose crawls share a Redis."""
    bench.env["RESUME_REDIS_URL"] = redis_server.url
    return bench


@mostly_on("mariadb")
def test_with_redis_an_idle_worker_is_woken_and_ends_at_once(
    redis_bench: Bench, reference: Reference
) -> None:
    """Neither its heartbeat nor a lease would tell it for hours."""
    bench = redis_bench
    bench.write(IN_SIX)
    bench.settings = ONE | LONG
    held = bench.site.behave(page=1, hold=True)
    first = bench.start(home="one")
    held.wait()
    second = bench.start(home="two")
    wait_until(lambda: len(bench.committed()) == 10)
    time.sleep(0.5)  # the second has asked and found nothing
    bench.site.heal()
    first.wait()
    second.wait()
    bench.assert_complete(reference(IN_SIX))
    assert {first.finish_reason, second.finish_reason} == {"finished"}


@mostly_on("mariadb")
def test_with_redis_a_stopped_workers_shards_are_taken_at_once(
    redis_bench: Bench, reference: Reference
) -> None:
    bench = redis_bench
    bench.write(ONE_SHARD)
    bench.settings = ONE | LONG
    held = bench.site.behave(page=4, hold=True)
    first = bench.start(home="one", RESUME_GRACE=0.5)
    held.wait()
    second = bench.start(home="two")
    second.wait_until_logged("Working on run")
    time.sleep(0.5)
    first.stop().wait()
    bench.site.heal()
    second.wait()
    bench.assert_complete(reference(ONE_SHARD))


@mostly_on("mariadb")
def test_shards_are_hinted_by_redis_and_confirmed_by_the_database(
    redis_bench: Bench, reference: Reference
) -> None:
    bench = redis_bench
    bench.write(NUMBERED + "    shard_pages = 1\n")
    held = bench.site.behave(page=1, hold=True)
    with Observer(bench.database_url, prefix=bench.prefix).watching(0.05) as observer:
        crawls: list[Crawl] = [bench.start(home=f"m{n}", RESUME_SHARDS=2) for n in range(3)]
        held.wait()
        for crawl in crawls:
            crawl.wait_until_logged("Working on run")
        bench.site.heal()
        for crawl in crawls:
            crawl.wait()
    assert observer.violations == []
    assert sum(crawl.stats.get("resume/queue/taken", 0) for crawl in crawls) > 0
    bench.assert_complete(reference(NUMBERED))
    assert sorted(bench.site.pages()) == list(range(1, 13))
