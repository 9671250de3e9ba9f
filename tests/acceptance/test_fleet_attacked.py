"""What attacks on a fleet found: claims nobody knows of, plans taken over, homes copied."""

from __future__ import annotations

import shutil
import signal
import time

from tests.acceptance.conftest import Reference
from tests.acceptance.harness import CHAIN, NUMBERED, Bench, frozen, wait_until
from tests.acceptance.tiers import mostly_on

QUICK = {"RESUME_LEASE": 2, "RESUME_HEARTBEAT": 0.3, "RESUME_MAX_WAIT": 10}
ONE = QUICK | {"RESUME_SHARDS": 1, "RESUME_PAGES_IN_FLIGHT": 1}

LATE_COMMIT = (
    NUMBERED
    + """
from scrapy_resume.exceptions import StoreUnavailable
from scrapy_resume.store import leases

claim, claims = leases.claim, []

def claim_without_reply(*args, **kwargs):
    got = claim(*args, **kwargs)
    claims.extend(got)
    if got and len(claims) == 2:
        raise StoreUnavailable('no reply to COMMIT')
    return got

leases.claim = claim_without_reply
"""
)

SLOW_PLAN = """\
import asyncio

class Rows(Numbered):
    name = 'rows'

    async def plan(self):
        for first in range(1, 13, 4):
            await asyncio.sleep(0.1)
            yield Shard(str(first), first, first + 3)
"""


@mostly_on("mariadb")
def test_a_claim_that_was_stored_unseen_is_given_back(bench: Bench, reference: Reference) -> None:
    """The database stored it after we had given up waiting: on record the shard is ours."""
    bench.write(LATE_COMMIT)
    bench.settings = ONE
    crawl = bench.crawl()
    assert crawl.finish_reason == "finished", crawl.tail
    assert "no reply to COMMIT" in crawl.log
    bench.assert_complete(reference(NUMBERED))
    assert sorted(bench.site.pages()) == list(range(1, 13))


def test_a_start_that_was_read_in_part_plans_no_run(
    mariadb_bench: Bench, reference: Reference
) -> None:
    """Neither an empty plan nor the rest of one may pass for the whole."""
    bench = mariadb_bench
    bench.write(CHAIN)
    bench.settings = QUICK
    sleeper = bench.start(home="one", RESUME_FAULT="plan.before:1:stop")
    wait_until(lambda: frozen(sleeper))
    bench.crawl_killed("plan.before:1", home="two")
    sleeper.signal(signal.SIGCONT)
    assert sleeper.wait().finish_reason == "resume_refused", sleeper.tail
    assert "start() cannot be read twice" in "".join(sleeper.said("ERROR"))
    assert bench.task["planned_at"] is None
    assert bench.crawl(home="two").finish_reason == "finished"
    bench.assert_complete(reference(CHAIN))


def test_processes_with_copied_homes_do_not_rob_each_other_of_the_plan_for_ever(
    mariadb_bench: Bench, reference: Reference
) -> None:
    """They may have the same worker id, as if each were the next start of the other."""
    bench = mariadb_bench
    bench.settings = QUICK
    bench.write(NUMBERED)
    bench.crawl(home="one")
    shutil.copytree(bench.directory / "one", bench.directory / "two")
    bench.write(SLOW_PLAN)
    crawls = [bench.start(home=home) for home in ("one", "two")]
    for crawl in crawls:
        assert crawl.wait().finish_reason == "finished", crawl.tail
    assert sum(crawl.log.count("taken over by another process") for crawl in crawls) <= 1
    bench.assert_complete(reference(NUMBERED))


@mostly_on("sqlite")
def test_a_process_with_a_copied_home_takes_nothing_from_the_one_it_was_copied_from(
    bench: Bench, reference: Reference
) -> None:
    bench.write(NUMBERED)
    bench.settings = ONE
    bench.crawl(home="one", RESUME_RUN="earlier")
    shutil.copytree(bench.directory / "one", bench.directory / "two")
    before, held = bench.site.hits(), bench.site.behave(page=2, hold=True)
    first = bench.start(home="one")
    held.wait()
    second = bench.start(home="two")
    second.wait_until_logged("Working on run")
    bench.site.heal()
    for crawl in (first, second):
        assert crawl.wait().finish_reason == "finished", crawl.tail
    assert "RESUME_HOME is a copy" in "".join(second.said("WARNING"))
    assert "lost lease" not in first.log
    assert sorted(bench.site.pages()[before:]) == list(range(1, 13))
    bench.assert_complete(reference(NUMBERED))


@mostly_on("mariadb")
def test_a_process_that_waits_for_a_due_shard_notices_that_its_run_is_superseded(
    bench: Bench,
) -> None:
    bench.write(NUMBERED)
    bench.settings = QUICK | {"RESUME_MAX_WAIT": 3000}
    bench.site.behave(page=3, status=503)
    waiting = bench.start(RESUME_BACKOFF_BASE=2000, RESUME_BACKOFF_MAX=2000)
    wait_until(lambda: [shard["status"] for shard in bench.shards] == ["pending", "done", "done"])
    bench.site.heal()
    assert waiting.code is None, waiting.tail
    bench.crawl(home="two", RESUME_RUN="new")
    over = time.monotonic()
    waiting.wait()
    assert time.monotonic() - over < 60  # it waits for 2000 s
    assert [task["verdict"] for task in bench.tasks] == ["incomplete", "complete"]
