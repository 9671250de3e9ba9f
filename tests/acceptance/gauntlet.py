"""Kill a crawl, look at what it left, let it go on, compare with a run that nobody killed."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from example_project.site import Site

from scrapy_resume.testing import Observer
from tests.acceptance.forkserver import ForkServer
from tests.acceptance.harness import CHAIN, DETAILS, Bench, Crawl, wait_until

PAGES, ROWS, IN_FLIGHT = 12, 2, 2

SETTINGS: dict[str, Any] = {
    "RESUME_PAGES_IN_FLIGHT": IN_FLIGHT,
    "RESUME_SHARDS": 2,
    "RESUME_COMMIT_PAGES": 2,
    "RESUME_LEASE": 0.5,
    "RESUME_HEARTBEAT": 0.1,
    "RESUME_MAX_WAIT": 5,
    "RESUME_MAX_ATTEMPTS": 1000,
}
SPIDERS = {"details": DETAILS, "chain": CHAIN}


@dataclass
class Tally:
    """What all gauntlets of a test run came to."""

    counts: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        counted = ", ".join(f"{number} {what}" for what, number in sorted(self.counts.items()))
        return f"kill gauntlet: {counted}"


class Run:
    """A crawl that is killed again and again. Every kill is followed by a look."""

    def __init__(self, bench: Bench, spider: str, tally: Tally) -> None:
        self.bench, self.tally = bench, tally
        bench.write(SPIDERS[spider])
        bench.settings = SETTINGS
        self.observer = Observer(bench.database_url, prefix=bench.prefix, served=bench.served)

    def killed_at(self, fault: str, **given: Any) -> None:
        """Crawl until the fault point *fault* (``POINT:N``) kills it."""
        home = given.get("home", "home")
        self._then_look(lambda: self.bench.crawl_killed(fault, **given), home)

    def killed_after(self, requests: int, delay: float) -> None:
        """Kill it *delay* seconds after so many more requests, if it still runs then."""

        def crawl() -> Crawl:
            crawl = self.bench.start()
            wanted = len(self.bench.site.requests) + requests
            while len(self.bench.site.requests) < wanted and crawl.code is None:
                time.sleep(0.001)
            time.sleep(delay)
            return crawl.kill()

        self._then_look(crawl)

    @property
    def over(self) -> bool:
        """Has the run its verdict?"""
        return bool(self.bench.tasks) and self.bench.task["verdict"] is not None

    def finish(self, reference: Mapping[str, str]) -> None:
        """Crawl to the end: nothing that was kept is read again, and I2 holds."""
        if not self.over:
            self._then_look(self.bench.crawl)
        self.tally.counts["resumed runs"] += 1
        self.bench.assert_complete(reference)

    def _then_look(self, crawl: Callable[[], Crawl], home: str = "home") -> None:
        kept = set() if self.over else self._kept(home)
        before = len(self.bench.site.requests)
        code = crawl().code
        self.tally.counts["kills"] += code == -signal.SIGKILL
        asked = [r.page for r in self.bench.site.requests[before:] if r.page is not None]
        assert not kept & set(asked), f"pages that were kept were read again: {kept & set(asked)}"
        assert max(Counter(asked).values(), default=0) <= 1, f"pages were fetched twice: {asked}"
        self._bounded(set(asked), home)
        found = self.observer.look()
        assert found == [], "\n".join(map(str, found[:5]))
        self.tally.counts["looks"] += 1

    def _kept(self, home: str) -> set[int]:
        """The pages of the run at hand that are committed, or in the journals of *home*."""
        return self.bench.committed() | self.bench.journalled(home) if self.bench.tasks else set()

    def _bounded(self, asked: set[int], home: str) -> None:
        """I9: of what a process asked for at most the pages in flight have to be read again."""
        kept = self._kept(home)
        for shard in self.bench.shards if self.bench.tasks else []:
            own = set(range(shard["first_page"], (shard["last_page"] or PAGES) + 1))
            again = own & asked - kept
            assert len(again) <= IN_FLIGHT, f"shard {shard['shard_no']} reads {again} again"
            self.tally.counts["pages to read again"] += len(again)


def taken_over(bench: Bench) -> Crawl:
    """Another machine works on what a dead one held; the site answers it nothing."""
    bench.site.behave(path="/list", hold=True)
    bench.expire_leases()
    reaped = bench.run_scrapy("resume", *bench.words("", home="another machine", verb="reap"))
    assert "Took back" in reaped.wait().log, reaped.log
    crawl = bench.start(home="another machine")
    wait_until(lambda: {row["status"] for row in bench.shards} & {"running"})
    return crawl


@contextmanager
def benches(
    directory: Path, url: str, forks: ForkServer | None, names: list[str]
) -> Iterator[dict[str, Bench]]:
    """A bench with a site of its own for each name, all in the database at *url*."""
    with ExitStack() as stack:
        made = {}
        for number, name in enumerate(names):
            site = stack.enter_context(Site(pages=PAGES, rows=ROWS))
            own = url
            if url.startswith("sqlite"):  # one file would make them wait for each other
                own = f"sqlite:///{directory / f'{number}.db'}"
            bench = Bench(directory / f"{number}", own, site, f"g{number}_", forks)
            stack.callback(bench.end)
            stack.callback(lambda bench=bench: print(bench.logs()))
            made[name] = bench
        yield made


def random_kills(
    bench: Bench, spider: str, reference: Mapping[str, str], tally: Tally, kills: int, seed: int
) -> None:
    """Kill one run after another at random moments, *kills* times in all."""
    dice = random.Random(seed)
    total = PAGES * (1 + ROWS * (spider == "details"))
    wanted = tally.counts["kills"] + kills
    while tally.counts["kills"] < wanted:
        run = Run(bench, spider, tally)
        for _ in range(dice.randint(1, 4)):
            run.killed_after(dice.randint(0, total // 3), dice.random() * 0.03)
            if run.over:
                break
        run.finish(reference)
