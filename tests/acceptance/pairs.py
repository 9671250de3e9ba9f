"""Two things that go wrong at once, at any fault point of a crawl.

The crawl is stopped at the point, so that both strike at that very moment and the outcome
does not hang on luck; then it goes on, or its successor does, while what was taken away is
still away. A watcher looks on throughout.
"""

from __future__ import annotations

import itertools
import signal
import time
from collections.abc import Callable, Mapping
from typing import Any

from scrapy_resume.testing import Observer
from tests.acceptance import journals
from tests.acceptance.gauntlet import SETTINGS, SPIDERS, Tally, taken_over
from tests.acceptance.harness import Bench, Crawl, frozen, wait_until
from tests.acceptance.outages import QUICK, Servers

KILL, DATABASE, REDIS = "kill the worker", "stop the database", "stop Redis"
DELETE, FLUSH = "delete the journal", "FLUSHALL"
PAIRS = tuple(itertools.combinations((KILL, DATABASE, DELETE, FLUSH, REDIS), 2))

# How often a point is passed until both strike: somewhere in the middle of the crawl.
STRUCK_AT = {
    "page.response": 6, "page.item": 9, "page.complete": 5,
    "journal.append": 3, "journal.synced": 3, "journal.trimmed": 2,
    "commit.begin": 3, "commit.fenced": 3, "commit.items": 3, "commit.before": 3,
    "commit.after": 3, "commit.acked": 3,
    "claim.begin": 2, "claim.before": 2, "claim.after": 2,
    "plan.before": 1, "renew.before": 3, "finish.before": 2,
    "reap.selected": 1, "reap.before": 1,
    "replay.before": 1, "replay.settled": 1, "salvage.before": 1,
}  # fmt: skip
SLOW = {"renew.before": 0.1}  # seconds of an answer, or the crawl is over before
# These deal with what an earlier process left behind, which was killed elsewhere.
KILLED_BEFORE = {
    "reap.selected": "commit.before:3", "reap.before": "commit.before:3",
    "replay.before": "journal.synced:3", "replay.settled": "journal.synced:3",
    "salvage.before": "journal.synced:3",
}  # fmt: skip
NOTICED, AWAY = 2.0, 0.3  # seconds until it is noticed at most, and that it is away from then on
PATIENCE = 30.0
ENDS = ("finished", "resume_nothing_to_do")


class Pair:
    """One crawl that is struck twice at *point*, and what it comes to."""

    def __init__(self, bench: Bench, made: Servers, point: str, pair: tuple[str, str]) -> None:
        self.bench, self.servers, self.point, self.pair = bench, made, point, pair
        self.home = bench.directory / "home"
        self.observer = Observer(bench.database_url, prefix=bench.prefix, served=bench.served)
        self._kept: set[int] = set()
        self._other: Crawl | None = None
        # The run has a name: who starts when it is over finds nothing to do, and begins no other.
        bench.settings = {**SETTINGS, "RESUME_STORE_PATIENCE": PATIENCE, "RESUME_RUN": "struck"}
        bench.env["RESUME_REDIS_URL"] = made.redis.url
        bench.write(SPIDERS["details"], settings=QUICK)

    def run(self, reference: Mapping[str, str], tally: Tally) -> None:
        """Strike, let it go on, and judge."""
        with self.observer.watching(0.1, patient=True):
            crawl = self._at_the_point()
            before = len(self.bench.site.requests)
            self._strike(crawl)
            crawl = self._goes_on(crawl)
            self._ends(crawl)
        found = self.observer.violations
        assert found == [], "\n".join(map(str, found[:5]))
        self.bench.assert_complete(reference)
        asked = {r.page for r in self.bench.site.requests[before:] if r.page is not None}
        assert not asked & self._kept, f"pages that were kept were read again: {asked & self._kept}"
        for one in self.bench.crawls:
            assert "Traceback" not in one.log, one.tail
        tally.counts["pairs"] += 1

    def _at_the_point(self) -> Crawl:
        """A crawl that stands at the point."""
        if self.point in KILLED_BEFORE:
            self.bench.crawl_killed(KILLED_BEFORE[self.point])
        if self.point == "salvage.before":
            self._other = taken_over(self.bench)
        self.bench.site.delay = SLOW.get(self.point, 0.0)
        crawl = self.bench.start(RESUME_FAULT=f"{self.point}:{STRUCK_AT[self.point]}:stop")
        wait_until(lambda: frozen(crawl) or crawl.code is not None)
        assert crawl.code is None, f"{self.point} was never passed:\n{crawl.tail}"
        return crawl

    def _strike(self, crawl: Crawl) -> None:
        """Do both; what is safe at this moment must not be read again."""
        if {DATABASE, DELETE} == {*self.pair}:
            pass  # a start has the mirror in Redis alone, which may be behind
        elif self.bench.tasks:
            self._kept = self.bench.committed()
        if DELETE not in self.pair and self._other is None:
            self._kept |= journals.pages(self.home)
        self.bench.database.close()
        acts: dict[str, Callable[[], Any]] = {
            KILL: crawl.kill,
            DATABASE: self.servers.mariadb.kill,
            REDIS: self.servers.redis.kill,
            DELETE: lambda: journals.delete(self.home),
            FLUSH: lambda: self.servers.redis.client().flushall(),
        }
        for what in self.pair:
            acts[what]()

    def _goes_on(self, crawl: Crawl) -> Crawl:
        """The crawl, or its successor, goes on without what was taken away."""
        if crawl.code is None:
            crawl.signal(signal.SIGCONT)
        else:
            crawl = self.bench.start()
        if {DATABASE, REDIS} & {*self.pair}:
            noticed = time.monotonic() + NOTICED
            while crawl.code is None and "away" not in crawl.log and time.monotonic() < noticed:
                time.sleep(0.02)
            time.sleep(AWAY)
            self.servers.back()
        return crawl

    def _ends(self, crawl: Crawl) -> None:
        """The run ends; a process that started in the outage may have given up before."""
        self.bench.site.heal()
        crawl.wait()
        if crawl.finish_reason not in ENDS:
            assert DATABASE in self.pair, crawl.tail
            crawl = self.bench.crawl()
        assert crawl.finish_reason in ENDS, crawl.tail
        if self._other is not None:
            assert self._other.wait().finish_reason == "finished", self._other.tail
