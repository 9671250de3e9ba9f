"""A bench: a small Scrapy project in a directory, crawled by real ``scrapy`` processes.

Nothing here knows how the package works inside. A crawl is a process of its own; it is
killed by a fault point or while the site holds an answer back, and what it left is read
from the database.
"""

from __future__ import annotations

import datetime
import os
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from textwrap import dedent
from typing import Any

from example_project.site import Site
from sqlalchemy import make_url, select
from sqlalchemy.exc import OperationalError

from scrapy_resume.store.engine import Database
from scrapy_resume.testing import check
from scrapy_resume.testing.snapshot import Snapshot, read_snapshot
from tests.acceptance import journals, project
from tests.acceptance.crawl import SLACK, Crawl, frozen, wait_until
from tests.acceptance.forkserver import Forked, ForkServer
from tests.acceptance.project import CHAIN, DETAILS, HEADER, NUMBERED, PAGES, SETTINGS

__all__ = [
    "CHAIN", "DETAILS", "HEADER", "NUMBERED", "ROOT", "SLACK", "Bench", "Crawl", "frozen",
    "wait_until",
]  # fmt: skip

ROOT = Path(__file__).parents[2]


class Bench:
    """A project, its database, and the site it crawls."""

    def __init__(
        self,
        directory: Path,
        database_url: str,
        site: Site,
        prefix: str,
        forks: ForkServer | None = None,
    ) -> None:
        self.directory, self.database_url, self.site = directory, database_url, site
        self.prefix, self.forks = prefix, forks
        self.crawls: list[Crawl] = []
        self.settings: dict[str, Any] = {}
        self.env: dict[str, str] = {}
        self._database: Database | None = None
        self._own_waits = False
        package = directory / "bench"
        (package / "spiders").mkdir(parents=True)
        (directory / "scrapy.cfg").write_text("[settings]\ndefault = bench.settings\n")
        (package / "__init__.py").touch()
        (package / "spiders" / "__init__.py").touch()
        (package / "settings.py").write_text(SETTINGS)
        (package / "pages.py").write_text(PAGES)

    def write(
        self, spiders: str, *, name: str = "rows", settings: str = "", **modules: str
    ) -> None:
        """Put *spiders* into the project; *settings* are added; *modules* are more files."""
        package = self.directory / "bench"
        (package / "spiders" / f"{name}.py").write_text(HEADER + dedent(spiders))
        for module, text in modules.items():
            (package / f"{module}.py").write_text(dedent(text))
        if settings:
            (package / "settings.py").write_text(SETTINGS + dedent(settings))

    def start(
        self,
        spider: str = "rows",
        *args: str,
        home: str = "home",
        verb: str = "crawl",
        **given: Any,
    ) -> Crawl:
        """Start a crawl: *args* are spider arguments ``name=value``, *given* are settings.

        Processes with the same *home* are on the same machine. What failed before is due,
        unless the test says how long that waits.
        """
        self._let_time_pass()
        return self.run_scrapy(*self.words(spider, *args, home=home, verb=verb, **given))

    def words(
        self, spider: str, *args: str, home: str = "home", verb: str = "crawl", **given: Any
    ) -> list[str]:
        """The words of the ``scrapy`` command that :meth:`start` runs."""
        settings = {
            "RESUME_HOME": str(self.directory / home),
            "RESUME_TABLE_PREFIX": self.prefix,
            **self.settings,
            **given,
        }
        if {"RESUME_BACKOFF_BASE", "RESUME_BACKOFF_MAX"} & settings.keys():
            self._own_waits = True
        elif not settings.get("RESUME_MAX_WAIT"):
            settings |= project.LATER
        options = [part for name, value in settings.items() for part in ("-s", f"{name}={value}")]
        options += [part for arg in args for part in ("-a", arg)]
        return [verb, *([spider] if spider else []), *options]

    def run_scrapy(self, *words: str) -> Crawl:
        """Start ``scrapy`` with *words* in the project, forked if there is a fork server."""
        if self.forks is None:
            return self.run([sys.executable, "-m", "scrapy", *words])
        self._log.touch()  # it may be killed before it gets to it
        process = self.forks.start(list(words), self.directory, self.environment, self._log)
        return self._started(process)

    def run(self, command: list[str]) -> Crawl:
        """Start any command in the project, with the database in its environment."""
        with self._log.open("wb") as out:
            process = subprocess.Popen(
                command, cwd=self.directory, env=self.environment, stdout=out, stderr=out
            )
        return self._started(process)

    def _started(self, process: Forked | subprocess.Popen[bytes]) -> Crawl:
        crawl = Crawl(process, self._log)
        self.crawls.append(crawl)
        return crawl

    @property
    def _log(self) -> Path:
        return self.directory / f"crawl-{len(self.crawls) + 1}.log"

    def crawl(self, spider: str = "rows", *args: str, **given: Any) -> Crawl:
        """Crawl to the end of the process."""
        return self.start(spider, *args, **given).wait()

    def crawl_killed(self, fault: str, spider: str = "rows", *args: str, **given: Any) -> Crawl:
        """Crawl until the fault point *fault* (``POINT:N``) kills the process."""
        crawl = self.crawl(spider, *args, RESUME_FAULT=f"{fault}:kill", **given)
        assert crawl.code == -signal.SIGKILL, f"{fault} was never passed:\n{crawl.tail}"
        return crawl

    @property
    def environment(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("RESUME_", "SCRAPY_"))}
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        return {
            **kept,
            "PYTHONPATH": os.pathsep.join(paths),
            "PYTHONUNBUFFERED": "1",
            "BENCH_SITE": self.site.url,
            "RESUME_DATABASE_URL": self.database_url,
            **self.env,
        }

    # What the database says

    def snapshot(self) -> Snapshot:
        return read_snapshot(self.database)

    @property
    def database(self) -> Database:
        """A connection that the tests keep."""
        if self._database is None:
            self._database = Database.connect(self.database_url, prefix=self.prefix)
        return self._database

    @property
    def tasks(self) -> list[Mapping[str, Any]]:
        return [row for _, row in sorted(self.snapshot().tasks.items())]

    @property
    def task(self) -> Mapping[str, Any]:
        """The newest run."""
        return self.tasks[-1]

    @property
    def shards(self) -> list[Mapping[str, Any]]:
        """The shards of the newest run, in order."""
        snapshot = self.snapshot()
        newest = max(snapshot.tasks, default=0)
        rows = [row for row in snapshot.shards.values() if row["task_id"] == newest]
        return sorted(rows, key=lambda row: row["shard_no"])

    @property
    def shard(self) -> Mapping[str, Any]:
        """The only shard of the newest run."""
        (shard,) = self.shards
        return shard

    @property
    def watermark(self) -> int:
        """Of the only shard; 0 before there is one."""
        shards = self.shards
        return self.shard["cur_page"] if shards else 0

    @property
    def quarantine(self) -> list[Mapping[str, Any]]:
        return list(self.snapshot().quarantine)

    @property
    def items(self) -> dict[str, str]:
        """The payloads of the item table by key."""
        rows = self.snapshot().items
        return {key: row["payload"] for (_, key), row in sorted(rows.items())}

    @property
    def served(self) -> dict[int, list[str]]:
        """The keys of the site's list by page."""
        keys, size = self.site.listing.keys, self.site.listing.rows_per_page
        pages = range(-(-len(keys) // size))
        return {page + 1: keys[page * size : (page + 1) * size] for page in pages}

    def assert_sound(self, served: Any = None) -> None:
        """No invariant is violated at this moment."""
        found = check(
            self.database_url, prefix=self.prefix, served=self.served if served is None else served
        )
        assert found == [], "\n".join(map(str, found[:5]))

    def assert_complete(self, reference: Mapping[str, str], verdict: str = "complete") -> None:
        """The run is over, says so, and its items are those of *reference* (I2)."""
        self.assert_sound()
        assert (self.task["verdict"], self.task["status"]) == (verdict, "done"), self.task["reason"]
        assert self.items == reference

    def expire_leases(self) -> None:
        """Let every lease end now, as if its time had passed since the last heartbeat."""
        shard, worker = self.database.tables.task_shard, self.database.tables.worker
        expired = shard.update().where(shard.c.status == "running")
        past = datetime.datetime(2000, 1, 1)
        with self.database.transaction() as conn:
            conn.execute(expired.values(lease_until=past))
            conn.execute(worker.update().values(started_at=past, heartbeat_at=past))

    def freeze(self, crawl: Crawl) -> None:
        """SIGSTOP between two transactions: within one it would lock out everyone else."""
        wait_until(lambda: self._frozen_unlocked(crawl), interval=0.2)

    def _frozen_unlocked(self, crawl: Crawl) -> bool:
        crawl.signal(signal.SIGSTOP)
        wait_until(lambda: frozen(crawl))
        if self._is_locked():
            crawl.signal(signal.SIGCONT)
            return False
        return True

    def _is_locked(self) -> bool:
        """Has anybody shards locked? Asked without waiting for it."""
        shard = self.database.tables.task_shard
        try:
            if self.database.dialect == "sqlite":
                file = make_url(self.database_url).database
                with closing(sqlite3.connect(str(file), timeout=0, isolation_level=None)) as conn:
                    conn.execute("BEGIN IMMEDIATE")
            else:
                with self.database.transaction() as locking:
                    locking.execute(select(shard.c.id).with_for_update(nowait=True))
        except (OperationalError, sqlite3.OperationalError):
            return True
        return False

    def due_at_once(self) -> None:
        """Let every shard that waits for its time fall due now, and blocked sites be tried."""
        shard, health = self.database.tables.task_shard, self.database.tables.site_health
        waits = (shard.c.status == "pending", shard.c.due == 0)
        with self.database.transaction() as conn:
            conn.execute(shard.update().where(*waits).values(due=1, next_run_at=None))
            blocked = health.update().where(health.c.state == "blocked")
            conn.execute(blocked.values(until=health.c.updated_at))

    def _let_time_pass(self) -> None:
        """Let what failed fall due, long as it would wait. A blocked site stays blocked."""
        over = all(crawl.code is not None for crawl in self.crawls)
        held = any(" is held: " in crawl.log for crawl in self.crawls)
        if over and held and not self._own_waits:
            shard = self.database.tables.task_shard
            waits = (shard.c.status == "pending", shard.c.due == 0)
            failed = shard.c.error_kind.in_(("retryable", "permanent"))
            with self.database.transaction() as conn:
                due = shard.update().where(*waits, failed)
                conn.execute(due.values(due=1, next_run_at=None))

    # What the site saw

    @contextmanager
    def requests(self) -> Iterator[Counter[int]]:
        """Count the list requests by page that arrive inside the block."""
        before = len(self.site.requests)
        counted: Counter[int] = Counter()
        yield counted
        counted.update(r.page for r in self.site.requests[before:] if r.page is not None)

    def committed(self) -> set[int]:
        """The site's pages that are committed, for lists whose shards share their numbers."""
        pages: set[int] = set()
        for shard in self.shards:
            pages.update(range(shard["first_page"], shard["cur_page"] + 1))
            for part in filter(None, shard["ahead"].split(",")):
                low, _, high = part.partition("-")
                pages.update(range(int(low), int(high or low) + 1))
        return pages

    def journalled(self, home: str = "home") -> set[int]:
        """The pages that the journals of a machine hold at this moment."""
        return journals.pages(self.directory / home)

    def logs(self) -> str:
        return "\n".join(f"=== {crawl.path.name}\n{crawl.tail}" for crawl in self.crawls)

    def end(self) -> None:
        """Kill what still runs, and let go of the database."""
        for crawl in self.crawls:
            if crawl.code is None:
                crawl.signal(signal.SIGCONT)
                crawl.kill()
        if self._database is not None:
            self._database.close()
