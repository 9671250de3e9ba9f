"""A fleet: four machines that work on one run, its servers, and all that happens to them.

What happens is drawn from a seed before anything starts, so that it can be repeated, and
is printed with the time at which it really happened. A watcher looks at the database
throughout; at the end the item table is compared with what the site serves.
"""

from __future__ import annotations

import heapq
import itertools
import json
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scrapy_resume.testing import Observer
from tests.acceptance import journals
from tests.acceptance.acts import Act
from tests.acceptance.harness import NUMBERED, SLACK, Bench, Crawl, frozen, wait_until
from tests.services import MariaDB, Redis, Service

SHARDS, ROWS = 100, 2
WORKERS, HELD, IN_FLIGHT = 4, 4, 2
LEASE = 1.0
SETTINGS: dict[str, Any] = {
    "RESUME_RUN": "fleet",  # whoever starts too late finds it over and begins no other
    "RESUME_SHARDS": HELD,
    "RESUME_PAGES_IN_FLIGHT": IN_FLIGHT,
    "RESUME_COMMIT_PAGES": 4,
    "RESUME_LEASE": LEASE,
    "RESUME_HEARTBEAT": LEASE / 5,
    "RESUME_MAX_WAIT": 5,
    "RESUME_MAX_ATTEMPTS": 10000,
}
SPIDER = NUMBERED + "    last_page = {}\n    shard_pages = {}\n"
FAULTS = {
    "freeze in a commit": "commit.fenced:2:stop",
    "kill in the journal": "journal.synced:2:kill",
}
SPARE = 1.0  # seconds from the end of a process to its next start, as a supervisor does it
STANDS = 6 * LEASE  # at most so long in a commit
CATCHES_UP = 0  # the machine that takes resumed shards only, so that they do not wait to the end
SECONDS_TO_END = 15.0 + SLACK
FINDS_NONE = ("resume_incomplete", "resume_nothing_read")  # no resumed shard is left, or yet
SAYS_OVER = ("finished", "resume_nothing_to_do")  # the run has a name, and anyone may join it


@dataclass
class Machine:
    """One place in the fleet: a home directory, and the process that works there now."""

    number: int
    home: str
    crawl: Crawl | None = None
    not_before: float = 0.0
    fault: str = ""
    stands_until: float = 0.0
    thawed_at: float = 0.0  # until then it stands still by an act, not by its fault
    held: dict[int, int] = field(default_factory=dict)  # version by shard, as it froze


class Fleet:
    """Starts the processes, does to them what was drawn, and starts again what has died."""

    def __init__(self, bench: Bench, mariadb: MariaDB, redis: Redis, shard_pages: int) -> None:
        self.bench, self.mariadb, self.redis = bench, mariadb, redis
        self.shard_pages, self.pages = shard_pages, SHARDS * shard_pages
        self.counts: Counter[str] = Counter()
        bench.write(SPIDER.format(self.pages, shard_pages))
        bench.settings = SETTINGS
        bench.env["RESUME_REDIS_URL"] = redis.url
        self.observer = Observer(bench.database_url, prefix=bench.prefix, served=self._served())
        self.machines = [Machine(number, f"machine-{number}") for number in range(WORKERS)]
        self._told_over = False
        self._excused: Counter[int] = Counter()  # pages in journals, by shard
        self._begun = time.monotonic()
        self._numbers = itertools.count()
        self._later: list[tuple[float, int, str, Callable[[], object]]] = []

    def _served(self) -> dict[str, dict[int, list[str]]]:
        """What the site serves, by shard and page."""
        size, served = self.shard_pages, self.bench.served
        firsts = range(1, self.pages + 1, size)
        pages = {first: range(first, first + size) for first in firsts}
        return {f"{p[0]}-{p[-1]}": {page: served[page] for page in p} for p in pages.values()}

    def run(self, acts: list[Act], seconds: float) -> None:
        """Do *acts* while the site is so slow that the run lasts *seconds*; then let it end."""
        for act in acts:
            self._at(act.at, str(act), lambda act=act: self._do(act))  # type: ignore[misc]
        with self.observer.watching(max(0.3, self.pages / 5000), patient=True):
            while self._now() < seconds and not self.over:
                self._step(seconds)
            self._calm()
            wait_until(lambda: self.over or self._step(0), timeout=300)
            self._say("the run is over")
            self._all_end()
        self.counts["looks"] = self.observer.looks
        self.counts["looks missed"] = self.observer.missed

    # What the driver does

    def _step(self, seconds: float) -> None:
        """One round: what is due, who has died, how slow the site has to be."""
        while self._later and self._later[0][0] <= self._now():
            _, _, text, do = heapq.heappop(self._later)
            self._say(text)
            do()
        for machine in self.machines:
            self._supervise(machine)
        slots = WORKERS * HELD * IN_FLIGHT
        pace = slots * max(0.0, seconds - self._now()) / max(1, self.pages - self.committed)
        self.bench.site.delay = min(1.5, 0.7 * pace)
        threading.Event().wait(0.05)

    def _do(self, act: Act) -> None:
        self.counts[act.what] += 1
        machine = self.machines[act.worker]
        if act.server is not None:
            self._strike(self.redis if act.server == "redis" else self.mariadb, act)
        elif act.what == "freeze":
            self._freeze(machine, act.lasts)
        else:
            machine.fault = FAULTS.get(act.what, machine.fault)
            self._kill(machine, elsewhere=act.what.endswith("elsewhere"))

    def _strike(self, server: Service, act: Act) -> None:
        if act.what.startswith("flush"):
            self.redis.client().flushall()
            return
        freezes = act.what.startswith("freeze")
        if freezes:
            server.freeze()
        else:
            server.kill()
        back = server.thaw if freezes else server.start
        self._at(self._now() + act.lasts, f"{server.name} is back", back)

    def _kill(self, machine: Machine, *, elsewhere: bool) -> None:
        if machine.crawl is not None:
            machine.crawl.kill()
            self._may_be_lost(machine)
        machine.crawl, machine.not_before, machine.stands_until = None, 0.0, 0.0
        if elsewhere:  # a machine that never comes back, and a new one
            machine.home += "'"

    def _freeze(self, machine: Machine, lasts: float) -> None:
        if machine.crawl is not None:
            machine.crawl.signal(signal.SIGSTOP)
            self._may_be_lost(machine)
            machine.thawed_at = self._now() + lasts + 0.3
            self._thaw(machine, machine.crawl, lasts)

    def _may_be_lost(self, machine: Machine) -> None:
        """What its journal holds now is read again if others take its shards over (I9)."""
        self._excused.update(one.shard_id for one in journals.records(self._home(machine)))

    def _home(self, machine: Machine) -> Path:
        return self.bench.directory / machine.home

    def _thaw(self, machine: Machine, crawl: Crawl, after: float) -> None:
        text = f"worker {machine.number} goes on"
        self._at(self._now() + after, text, lambda: crawl.signal(signal.SIGCONT))

    def _supervise(self, machine: Machine) -> None:
        """Start what has ended, as long as there is work; thaw what a fault point froze."""
        crawl = machine.crawl
        if crawl is None:
            if not self.over and self._now() >= machine.not_before:
                lanes = "resumed" if machine.number == CATCHES_UP else ""
                machine.crawl = self.bench.start(
                    home=machine.home, RESUME_FAULT=machine.fault, RESUME_LANES=lanes
                )
                self.counts["starts"] += 1
        elif crawl.code is not None:
            self._ended(machine, crawl)
        elif machine.fault.endswith("stop") and self._now() > machine.thawed_at and frozen(crawl):
            self._say(f"worker {machine.number} stands in a commit")
            self.counts["frozen in a commit"] += 1
            machine.fault, machine.stands_until = "", self._now() + STANDS
            machine.held = self._held_by(crawl)
            self._may_be_lost(machine)
        elif machine.stands_until and (self._outrun(machine) or self._now() > machine.stands_until):
            self._say(f"worker {machine.number} goes on with its commit")
            machine.stands_until = 0.0
            crawl.signal(signal.SIGCONT)

    def _held_by(self, crawl: Crawl) -> dict[int, int]:
        named = re.search(r"as worker (\w+)", crawl.log)
        shards = self.observer.latest.shards.values() if self.observer.latest and named else ()
        return {
            row["id"]: row["version"]
            for row in shards
            if named and row["worker"] and row["worker"].startswith(named[1])
        }

    def _outrun(self, machine: Machine) -> bool:
        """Have others stored pages of every shard that it held?"""
        latest = self.observer.latest
        now = latest.shards if latest else {}
        return bool(machine.held) and all(
            now[number]["version"] > version for number, version in machine.held.items()
        )

    def _ended(self, machine: Machine, crawl: Crawl) -> None:
        """The run is over, or there was no database when it started, or it killed itself."""
        self._may_be_lost(machine)
        if crawl.code == -signal.SIGKILL:
            self._say(f"worker {machine.number} is dead, with pages in its journal")
            self.counts["killed in the journal"] += 1
            machine.crawl, machine.fault = None, ""
            return
        machine.crawl, machine.not_before, machine.stands_until = None, self._now() + SPARE, 0.0
        self.counts[f"ends with {crawl.finish_reason}"] += 1
        self._told_over = self._told_over or crawl.finish_reason in SAYS_OVER
        idle = machine.number == CATCHES_UP and crawl.finish_reason in FINDS_NONE
        if not self.over and not idle:
            self.counts["ends early"] += 1
            outages = self.counts["restart mariadb"] + self.counts["freeze mariadb"]
            assert self.counts["ends early"] <= WORKERS * outages, crawl.tail

    def _calm(self) -> None:
        """Undo what is still to be undone, and cause nothing more."""
        undone = [one for one in self._later if one[2].endswith(("goes on", "is back"))]
        self._later = [(0.0, *one[1:]) for one in undone]
        heapq.heapify(self._later)
        for machine in self.machines:
            machine.stands_until = min(machine.stands_until, self._now())
        self._say(f"calm; {self.committed} of {self.pages} pages are stored")

    def _all_end(self) -> None:
        """Everyone notices that the run is over, and says the same."""
        begun = time.monotonic()
        try:
            wait_until(lambda: self._step(0) or all(m.crawl is None for m in self.machines))
        finally:
            self._ask_what_they_wait_for()
        self._say("all have ended")
        assert time.monotonic() - begun < SECONDS_TO_END, "the processes outlive the run"

    def _ask_what_they_wait_for(self) -> None:
        for crawl in [m.crawl for m in self.machines if m.crawl is not None]:
            crawl.signal(signal.SIGUSR1)
            time.sleep(1)
            print("\n".join(crawl.log.splitlines()[-300:]))

    # What is known

    @property
    def _verdict(self) -> str | None:
        latest = self.observer.latest
        tasks = latest.tasks.values() if latest else ()
        return next((task["verdict"] for task in tasks), None)

    @property
    def over(self) -> bool:
        """Has the run its verdict, as far as the watcher or a process says?"""
        return self._told_over or self._verdict is not None

    @property
    def committed(self) -> int:
        """How many pages are stored, as far as the watcher knows."""
        latest = self.observer.latest
        return sum(row["page_count"] for row in latest.shards.values()) if latest else 0

    def _now(self) -> float:
        return time.monotonic() - self._begun

    def _at(self, when: float, text: str, do: Callable[[], object]) -> None:
        heapq.heappush(self._later, (when, next(self._numbers), text, do))

    def _say(self, text: str) -> None:
        print(f"{self._now():6.1f} s  {text}", flush=True)

    # What must be true at the end

    def judge(self) -> None:
        """No invariant was violated at any look, and the items are those of the site (I2)."""
        found = self.observer.violations
        assert found == [], "\n".join(map(str, found[:10]))
        served = {row.key: row for row in self.bench.site.listing.rows}
        expected = {
            key: {"key": key, "title": row.title, "price": f"{row.price / 100:.2f}"}
            for key, row in served.items()
        }
        items = {key: json.loads(payload) for key, payload in self.bench.items.items()}
        self.bench.assert_complete(self.bench.items)
        assert items == expected
        self._redo_is_bounded()
        for crawl in self.bench.crawls:
            assert "Traceback" not in crawl.log, crawl.tail

    def _redo_is_bounded(self) -> None:
        """I9: each claim of a shard reads at most the pages in flight again, and those that were
        in a journal when its process was struck."""
        snapshot = self.bench.snapshot()
        acts = (act for act in snapshot.operations if act["kind"] == "reclaim")
        reclaimed = Counter(act["shard_no"] for act in acts)
        asked = Counter((page - 1) // self.shard_pages for page in self.bench.site.pages())
        for row in self.bench.shards:
            claims = row["fencing_token"] - reclaimed[row["shard_no"]]
            again = asked[(row["first_page"] - 1) // self.shard_pages] - self.shard_pages
            most = IN_FLIGHT * (claims - 1) + self._excused[row["id"]]
            assert again <= most, f"{row['shard_key']} read {again} again"
            self.counts["claims"] += claims
            self.counts["pages read again"] += again
        self.counts["take-overs"] = sum(reclaimed.values())
