"""Runs: which one a process works on, with whom, and what it refuses."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from scrapy_resume.testing import Observer
from tests.acceptance.conftest import Reference
from tests.acceptance.harness import CHAIN, NUMBERED, Bench, wait_until
from tests.acceptance.test_res import ONE_BY_ONE
from tests.acceptance.tiers import mostly_on, rarely


@mostly_on("mariadb")
def test_run_new_supersedes_an_unfinished_run(bench: Bench, reference: Reference) -> None:
    bench.write(CHAIN)
    bench.crawl_killed("commit.after:4", **ONE_BY_ONE)
    with bench.requests() as asked:
        bench.crawl(RESUME_RUN="new")
    assert asked == dict.fromkeys(range(1, 13), 1)
    old, new = bench.tasks
    assert (old["run_no"], old["status"], old["verdict"]) == (1, "failed", "incomplete")
    assert (new["run_no"], new["status"], new["verdict"]) == (2, "done", "complete")
    acts = [act for act in bench.snapshot().operations if act["task_id"] == old["id"]]
    assert "supersede" in [act["kind"] for act in acts]
    bench.assert_complete(reference(CHAIN))


@mostly_on("mariadb")
def test_run_new_is_refused_while_one_is_worked_on(bench: Bench, reference: Reference) -> None:
    bench.write(CHAIN)
    held = bench.site.behave(page=4, hold=True)
    first = bench.start()
    held.wait()
    second = bench.crawl(home="other", RESUME_RUN="new")
    assert second.finish_reason == "resume_nothing_to_do"
    assert len(second.said("ERROR")) == 1
    assert "Traceback" not in second.log
    bench.site.heal()
    first.wait()
    assert len(bench.tasks) == 1
    bench.assert_complete(reference(CHAIN))


def test_run_resume_only_resumes(sqlite_bench: Bench, reference: Reference) -> None:
    bench = sqlite_bench
    bench.write(CHAIN)
    refused = bench.crawl(RESUME_RUN="resume")
    assert refused.finish_reason == "resume_nothing_to_do"
    assert bench.site.pages() == []
    bench.crawl_killed("commit.after:4", **ONE_BY_ONE)
    bench.crawl(RESUME_RUN="resume")
    bench.assert_complete(reference(CHAIN))
    assert bench.crawl(RESUME_RUN="resume").finish_reason == "resume_nothing_to_do"
    assert len(bench.tasks) == 1


def test_a_named_run_is_made_resumed_and_then_over(
    sqlite_bench: Bench, reference: Reference
) -> None:
    bench = sqlite_bench
    bench.write(CHAIN)
    bench.crawl_killed("commit.after:4", RESUME_RUN="monday", **ONE_BY_ONE)
    bench.crawl(RESUME_RUN="monday")
    assert [(t["run_name"], t["run_no"]) for t in bench.tasks] == [("monday", 1)]
    bench.assert_complete(reference(CHAIN))
    with bench.requests() as asked:
        again = bench.crawl(RESUME_RUN="monday")
    assert not asked
    assert again.finish_reason in ("finished", "resume_nothing_to_do")
    bench.crawl(RESUME_RUN="tuesday")
    assert [(t["run_name"], t["run_no"]) for t in bench.tasks] == [("monday", 1), ("tuesday", 2)]


IN_SIX = NUMBERED + "    shard_pages = 2\n"


@pytest.mark.parametrize(
    ("database_url", "homes"),
    [
        pytest.param("sqlite", ("one", "one"), id="sqlite-machine"),
        rarely("sqlite", ("one", "two"), id="sqlite-machines"),
        rarely("mariadb", ("one", "one"), id="mariadb-machine"),
        pytest.param("mariadb", ("one", "two"), id="mariadb-machines"),
    ],
    indirect=["database_url"],
)
def test_two_processes_share_a_run_and_fetch_no_page_twice(
    bench: Bench, reference: Reference, homes: tuple[str, str]
) -> None:
    bench.write(IN_SIX)
    bench.settings = {"RESUME_SHARDS": 1, "RESUME_PAGES_IN_FLIGHT": 1}
    held = bench.site.behave(page=1, hold=True)
    observer = Observer(bench.database_url, prefix=bench.prefix, served=bench.served)
    first = bench.start(home=homes[0])
    held.wait()
    with observer.watching(0.05):
        second = bench.start(home=homes[1])
        wait_until(lambda: bench.committed())
        bench.site.heal()
        first.wait()
        second.wait()
    assert observer.violations == []
    bench.assert_complete(reference(IN_SIX))
    assert sorted(bench.site.pages()) == list(range(1, 13))
    both = [crawl.stats["resume/pages/committed"] for crawl in (first, second)]
    assert sum(both) == 12 and min(both) >= 1
    assert {first.finish_reason, second.finish_reason} == {"finished"}


def test_join_can_be_refused(sqlite_bench: Bench, reference: Reference) -> None:
    bench = sqlite_bench
    bench.write(IN_SIX)
    held = bench.site.behave(page=1, hold=True)
    first = bench.start(RESUME_SHARDS=1)
    held.wait()
    second = bench.crawl(RESUME_JOIN=False)
    assert second.finish_reason == "resume_nothing_to_do"
    assert "RESUME_JOIN" in "".join(second.said("ERROR"))
    bench.site.heal()
    first.wait()
    bench.assert_complete(reference(IN_SIX))


def test_a_held_page_waits_for_its_time_over_restarts(
    sqlite_bench: Bench, reference: Reference
) -> None:
    bench = sqlite_bench
    bench.write(NUMBERED)
    slow = {"RESUME_BACKOFF_BASE": 500, "RESUME_BACKOFF_MAX": 1000}
    bench.site.behave(page=5, status=503)
    crawl = bench.crawl(**slow)
    bench.assert_sound()
    assert bench.committed() == set(range(1, 13)) - {5}
    assert crawl.finish_reason == "resume_incomplete"
    assert [shard["status"] for shard in bench.shards] == ["done", "pending", "done"]
    assert (bench.shards[1]["cur_page"], bench.shards[1]["ahead"]) == (4, "6-8")
    bench.site.heal()
    with bench.requests() as asked:
        crawl = bench.crawl(**slow)
    assert not asked
    assert crawl.finish_reason == "resume_incomplete"
    assert "due" in crawl.log
    assert len(bench.tasks) == 1


def test_a_page_that_never_works_is_given_up(sqlite_bench: Bench) -> None:
    bench = sqlite_bench
    bench.write(NUMBERED)
    bench.site.behave(page=5, status=503)
    crawl = bench.crawl(RESUME_MAX_ATTEMPTS=3, RESUME_MAX_WAIT=5)
    bench.assert_sound()
    assert (bench.task["verdict"], bench.task["status"]) == ("incomplete", "failed")
    assert crawl.finish_reason == "resume_incomplete"
    assert [shard["status"] for shard in bench.shards] == ["done", "failed", "done"]
    assert len(bench.items) == 110
    # (attempts without progress + 1) x (one retry in place + 1) x (one retry of Scrapy + 1)
    assert bench.site.hits(page=5) <= 4 * 2 * 2


POISON = """\
import signal

class Rows(Numbered):
    name = 'rows'

    def parse(self, response):
        if number_of(response) == 6:
            os.kill(os.getpid(), signal.SIGKILL)
        yield from rows(response)
"""


@pytest.mark.parametrize("held", [1, 8])
def test_a_page_that_kills_the_process_is_given_up_and_the_rest_is_read(
    sqlite_bench: Bench, held: int
) -> None:
    """However many shards are held at every death: the others are not taken down."""
    bench = sqlite_bench
    bench.write(POISON)
    bench.settings = {"RESUME_SHARDS": held, "RESUME_MAX_ATTEMPTS": 3, "RESUME_MAX_WAIT": 5}
    deaths = 0
    for _ in range(12):
        crawl = bench.crawl()
        bench.assert_sound()
        deaths += crawl.code == -signal.SIGKILL
        if bench.task["verdict"]:
            break
    assert 3 <= deaths <= 8
    assert bench.task["verdict"] == "incomplete"
    assert [shard["status"] for shard in bench.shards] == ["done", "failed", "done"]
    assert bench.committed() >= {1, 2, 3, 4, 9, 10, 11, 12}


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        ("yield Shard('a', 1, 2)\n        yield Shard('a', 3, 4)", "twice"),
        ("yield Shard('a', 5, 2)", "before its first page"),
        ("yield 'a'", "Shard"),
        ("raise ValueError('the site has no such list')", "no such list"),
        ("yield Shard('a', 1, 2)\n        raise ValueError('half a plan')", "half a plan"),
    ],
    ids=["twice", "backwards", "type", "raises", "half"],
)
def test_a_plan_that_fails_reads_nothing_and_says_why(
    sqlite_bench: Bench, plan: str, said: str
) -> None:
    bench = sqlite_bench
    bench.write(
        f"class Rows(Numbered):\n    name = 'rows'\n\n    def plan(self):\n        {plan}\n"
    )
    crawl = bench.crawl()
    assert said in "".join(crawl.said("ERROR"))
    assert crawl.finish_reason not in ("finished", None)
    assert bench.site.pages() == []
    assert bench.shards == [] or bench.task["planned_at"] is None
    bench.write(NUMBERED)
    bench.crawl()
    assert bench.task["verdict"] == "complete"


def test_a_plan_of_nothing_is_nothing_read(sqlite_bench: Bench) -> None:
    bench = sqlite_bench
    bench.write(
        "class Rows(Numbered):\n    name = 'rows'\n\n    def plan(self):\n        return []\n"
    )
    crawl = bench.crawl()
    assert bench.task["verdict"] == "nothing_read"
    assert crawl.finish_reason == "resume_nothing_read"


WRONG: dict[str, tuple[dict[str, Any], tuple[str, ...], str]] = {
    "lease": ({"RESUME_LEASE": 1}, (), "RESUME_HEARTBEAT"),
    "number": ({"RESUME_SHARDS": "many"}, (), "RESUME_SHARDS"),
    "choice": ({"RESUME_ON_FAILED_PAGE": "skip"}, (), "RESUME_ON_FAILED_PAGE"),
    "unknown": ({"RESUME_SHARD": 4}, (), "RESUME_SHARDS"),
    "jobdir": ({"JOBDIR": "job"}, (), "JOBDIR"),
    "filter": ({"DUPEFILTER_CLASS": "scrapy_redis.dupefilter.RFPDupeFilter"}, (), "DUPEFILTER"),
    "scheduler": ({"SCHEDULER": "scrapy_redis.scheduler.Scheduler"}, (), "scrapy-redis"),
    "memory": ({"RESUME_DATABASE_URL": "sqlite://"}, (), "RESUME_DATABASE_URL"),
    "backend": ({"RESUME_DATABASE_URL": "postgresql://u:p@h/d"}, (), "RESUME_DATABASE_URL"),
    "prefix": ({"RESUME_TABLE_PREFIX": "a-b"}, (), "RESUME_TABLE_PREFIX"),
    "fault": ({"RESUME_FAULT": "commit.never:1:kill"}, (), "RESUME_FAULT"),
    "argument": ({}, ("last_page=many",), "last_page"),
    "home": ({"RESUME_HOME": "/proc/none"}, (), "RESUME_HOME"),
}


@pytest.mark.parametrize("mistake", WRONG)
def test_a_mistake_in_the_settings_is_refused_in_one_line(
    sqlite_bench: Bench, mistake: str
) -> None:
    bench = sqlite_bench
    settings, args, named = WRONG[mistake]
    bench.write(NUMBERED)
    crawl = bench.crawl("rows", *args, **settings)
    errors = [line for line in crawl.log.splitlines() if named in line]
    assert errors, crawl.tail
    assert "Traceback" not in crawl.log, crawl.tail
    assert len(crawl.said("ERROR") + crawl.said("CRITICAL")) <= 1
    assert crawl.finish_reason not in ("finished",)
    assert bench.site.requests == []
    assert crawl.code is not None and crawl.code >= 0


def test_a_database_that_is_not_there_is_one_line_and_no_request(sqlite_bench: Bench) -> None:
    bench = sqlite_bench
    bench.write(CHAIN)
    nobody = "mysql+pymysql://root@127.0.0.1:1/none"
    crawl = bench.crawl(RESUME_DATABASE_URL=nobody, RESUME_STORE_PATIENCE=1)
    assert crawl.finish_reason == "resume_refused"
    assert "127.0.0.1:1" in "".join(crawl.said("ERROR"))
    assert "Traceback" not in crawl.log
    assert bench.site.requests == []


def test_no_process_is_left_over(sqlite_bench: Bench) -> None:
    """The harness itself: what it kills is dead."""
    bench = sqlite_bench
    bench.write(CHAIN)
    held = bench.site.behave(page=2, hold=True)
    crawl = bench.start()
    held.wait()
    crawl.kill()
    with pytest.raises(ProcessLookupError):
        os.kill(crawl.process.pid, 0)
