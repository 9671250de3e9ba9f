"""A bench: a small Scrapy project in a directory, crawled by real ``scrapy`` processes.

Nothing here knows how the package works inside. A crawl is a process of its own; it is
killed by a fault point or while the site holds an answer back, and what it left is read
from the database.
"""

from __future__ import annotations

import datetime
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent
from typing import Any

from example_project.site import Site

from scrapy_resume.store.engine import Database
from scrapy_resume.testing import check
from scrapy_resume.testing.snapshot import Snapshot, read_snapshot
from tests.acceptance.forkserver import Forked, ForkServer

ROOT = Path(__file__).parents[2]
TIMEOUT = 60.0  # seconds until a crawl that should have ended counts as hung

SETTINGS = """\
BOT_NAME = "bench"
SPIDER_MODULES = ["bench.spiders"]
ADDONS = {"scrapy_resume.ResumeAddon": 500}
LOG_LEVEL = "INFO"
DOWNLOAD_DELAY = 0
CONCURRENT_REQUESTS_PER_DOMAIN = 16
ROBOTSTXT_OBEY = False
TELNETCONSOLE_ENABLED = False
REMOTE_CONTROL_ENABLED = False
RETRY_TIMES = 1
RESUME_PAGE_RETRIES = 1
RESUME_PAGE_RETRY_DELAY = 0.01
RESUME_BACKOFF_BASE = 0.02
RESUME_BACKOFF_MAX = 0.1
RESUME_MAX_WAIT = 0
RESUME_LEASE = 2.5
RESUME_HEARTBEAT = 0.5
"""

PAGES = '''\
"""What the spiders of the bench share."""

import os

import scrapy
from scrapy import Request

from scrapy_resume import ItemTable, NotAPage, ResumeSpiderMixin, Shard, SiteBlocked

SITE = os.environ["BENCH_SITE"]


def number_of(response):
    return int(response.url.partition("page=")[2].partition("&")[0] or 1)


def row_of(row):
    return {
        "key": row.attrib["data-key"],
        "title": row.css("a.title::text").get(),
        "price": row.css(".price::text").get(),
    }


def rows(response):
    return [row_of(row) for row in response.css("li.row")]


class Chain(ResumeSpiderMixin, scrapy.Spider):
    """The smallest spider of the documentation."""

    item_key = "key"
    start_urls = [SITE + "/list?page=1"]

    def parse(self, response):
        yield from rows(response)
        for href in response.css("a.next::attr(href)").getall():
            yield self.next_page(response.follow(href))


class Numbered(ResumeSpiderMixin, scrapy.Spider):
    item_key = "key"
    page_url = SITE + "/list?page={page}"
    last_page = 12
    shard_pages = 4

    def parse(self, response):
        yield from rows(response)


class Details(Numbered):
    """Every row from a detail page."""

    def parse(self, response):
        for row in response.css("li.row a.title"):
            yield response.follow(row, self.parse_item)

    def parse_item(self, response):
        yield {
            "key": response.css(".key::text").get(),
            "title": response.css("h1.title::text").get(),
            "price": response.css(".price::text").get(),
        }
'''

HEADER = "from bench.pages import *\n\n\n"

CHAIN = "class Rows(Chain):\n    name = 'rows'\n"
NUMBERED = "class Rows(Numbered):\n    name = 'rows'\n"
DETAILS = "class Rows(Details):\n    name = 'rows'\n"


class Crawl:
    """One ``scrapy`` process. What it prints and logs is in :attr:`log`."""

    def __init__(self, process: Forked | subprocess.Popen[bytes], log: Path) -> None:
        self.process, self.path = process, log

    @property
    def log(self) -> str:
        return self.path.read_text(errors="replace")

    @property
    def code(self) -> int | None:
        """The exit code, -9 after SIGKILL; None while it runs."""
        return self.process.poll()

    def wait(self, timeout: float = TIMEOUT) -> Crawl:
        """Wait for the end. Raises AssertionError for a crawl that does not end."""
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGUSR1)  # a forked crawl says what it waits for
            time.sleep(1)
            self.kill()
            raise AssertionError(f"the crawl did not end in {timeout} s:\n{self.tail}") from None
        return self

    def wait_until_logged(self, text: str, timeout: float = TIMEOUT) -> None:
        """Wait until *text* is in the log. Raises AssertionError."""
        wait_until(lambda: text in self.log or self.code is not None, timeout)
        assert text in self.log, f"it never said {text!r}:\n{self.tail}"

    def kill(self) -> Crawl:
        """SIGKILL, and wait until it is dead."""
        self.process.kill()
        self.process.wait()
        return self

    def stop(self) -> Crawl:
        """One polite signal."""
        self.process.send_signal(signal.SIGTERM)
        return self

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    @property
    def tail(self) -> str:
        """The end of the log without what Scrapy says at every start."""
        lines = self.log.splitlines()
        start = next((at for at, line in enumerate(lines) if "Spider opened" in line), 0)
        return "\n".join(lines[start:][-50:])

    @property
    def stats(self) -> dict[str, Any]:
        """The stats that Scrapy dumps at the end; {} after a kill."""
        found = re.search(r"Dumping Scrapy stats:\n(\{.*?\})\n\d{4}-", self.log, re.DOTALL)
        return eval(found[1], {"datetime": datetime}) if found else {}

    @property
    def finish_reason(self) -> str | None:
        return self.stats.get("finish_reason")

    def said(self, level: str) -> list[str]:
        """The log lines of *level*."""
        return [line for line in self.log.splitlines() if f"] {level}: " in line]


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

        Processes with the same *home* are on the same machine.
        """
        settings = {
            "RESUME_HOME": str(self.directory / home),
            "RESUME_TABLE_PREFIX": self.prefix,
            **self.settings,
            **given,
        }
        options = [part for name, value in settings.items() for part in ("-s", f"{name}={value}")]
        options += [part for arg in args for part in ("-a", arg)]
        return self.run_scrapy(verb, *([spider] if spider else []), *options)

    def run_scrapy(self, *words: str) -> Crawl:
        """Start ``scrapy`` with *words* in the project, forked if there is a fork server."""
        if self.forks is None:
            return self.run([sys.executable, "-m", "scrapy", *words])
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
        """Let every lease end now, as if its time had passed."""
        shard = self.database.tables.task_shard
        expired = shard.update().where(shard.c.status == "running")
        with self.database.transaction() as conn:
            conn.execute(expired.values(lease_until=datetime.datetime(2000, 1, 1)))

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


def wait_until(true: Any, timeout: float = 20.0, interval: float = 0.02) -> None:
    """Wait until *true()* holds, asked every *interval* seconds. Raises AssertionError."""
    deadline = time.monotonic() + timeout
    while not true():
        assert time.monotonic() < deadline, f"it did not happen in {timeout} s"
        time.sleep(interval)
