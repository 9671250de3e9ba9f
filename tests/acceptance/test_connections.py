"""How many connections a crawl has on the server, at once and after it has ended."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pymysql
import pytest

from tests.acceptance.conftest import Reference
from tests.acceptance.harness import CHAIN, NUMBERED, Bench
from tests.acceptance.tiers import rarely
from tests.services import MariaDB

SEVERAL = """\
from scrapy.commands import ScrapyCommand


class Command(ScrapyCommand):
    # Crawls with several spiders in one process.

    requires_project = True

    def short_desc(self):
        return "For a test"

    def run(self, args, opts):
        for name in args:
            self.crawler_process.crawl(name)
        self.crawler_process.start()
"""

REPEATED = """\
import json
import os
import threading
import time
from pathlib import Path

import pymysql
from scrapy.commands import ScrapyCommand
from sqlalchemy import make_url

URL = make_url(os.environ["RESUME_DATABASE_URL"])


class Command(ScrapyCommand):
    # Crawls again and again, and counts what is left after each crawl.

    requires_project = True

    def short_desc(self):
        return "For a test"

    def run(self, args, opts):
        self.names = args
        self.left, self.kept, self.resources = int(os.environ["RUNS"]), [], []
        self.server = pymysql.connect(host=URL.host, port=URL.port, user=URL.username)
        self.again()
        self.crawler_process.start()
        Path("kept").write_text(json.dumps([self.kept, self.resources]))

    def again(self, done=None):
        if done is not None:
            self.kept.append(self.connections())
            self.resources.append((threading.active_count(), len(os.listdir("/proc/self/fd"))))
        if self.left:
            self.left -= 1
            crawl = self.crawler_process.crawl(self.names[self.left % len(self.names)])
            add = getattr(crawl, "add_done_callback", None) or crawl.addBoth
            add(self.again)

    def connections(self):
        deadline = time.monotonic() + 20  # the server takes its time to notice
        while (count := self.count()) and time.monotonic() < deadline:
            time.sleep(0.002)
        return count

    def count(self):
        query = "SELECT COUNT(*) FROM information_schema.processlist WHERE db = %s"
        with self.server.cursor() as cursor:
            cursor.execute(query, URL.database)
            return cursor.fetchone()[0]
"""

PLAIN = """\


class Plain(scrapy.Spider):
    name = "plain"
    item_key = "key"
    start_urls = [SITE + "/list?page=1"]

    def parse(self, response):
        yield from rows(response)
"""


def write(bench: Bench, spiders: str, settings: str = "") -> None:
    (bench.directory / "bench" / "commands").mkdir()
    modules = {"commands/__init__": "", "commands/several": SEVERAL, "commands/repeated": REPEATED}
    bench.write(spiders, settings=f"COMMANDS_MODULE = 'bench.commands'\n{settings}", **modules)


@contextmanager
def limited(mariadb: MariaDB, most: int) -> Iterator[pymysql.cursors.Cursor]:
    """Let the server take *most* clients; yields a cursor of one of them."""
    with mariadb.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SELECT @@GLOBAL.max_connections")
        ((before,),) = cursor.fetchall()
        cursor.execute(f"SET GLOBAL max_connections = {most}")
        try:
            yield cursor
        finally:
            cursor.execute(f"SET GLOBAL max_connections = {before}")


def count(cursor: pymysql.cursors.Cursor, name: str) -> int:
    cursor.execute("SELECT COUNT(*) FROM information_schema.processlist WHERE db = %s", (name,))
    ((number,),) = cursor.fetchall()
    return int(number)


def test_txn_7_more_spiders_than_the_server_has_connections_for(
    mariadb_bench: Bench, mariadb: MariaDB, mariadb_name: str, reference: Reference
) -> None:
    """6 processes with 2 spiders each want up to 24 connections; the server has 10."""
    bench = mariadb_bench
    numbered = NUMBERED.replace("class Rows", "class Numbers").replace("'rows'", "'numbers'")
    write(
        bench,
        f"{CHAIN}\n\n{numbered}",
        "DOWNLOAD_DELAY = 0.05\nRESUME_MAX_WAIT = 30\nRESUME_RUN = 'one'\n",
    )
    peak, held = 0, bench.site.behave(hold=True)  # until all of them are there
    with limited(mariadb, 10) as cursor:
        crawls = [
            bench.run_scrapy("several", "rows", "numbers", *options(bench, f"home-{n}"))
            for n in range(6)
        ]
        while any(crawl.code is None for crawl in crawls):
            peak = max(peak, count(cursor, mariadb_name))
            if peak >= 8:
                held.heal()
            time.sleep(0.02)
    assert 8 <= peak <= 10
    bench.assert_sound()
    assert [task["verdict"] for task in bench.tasks] == ["complete", "complete"]
    items = {key: row["payload"] for (_, key), row in bench.snapshot().items.items()}
    assert items == reference(CHAIN)
    for crawl in crawls:  # each got in, if only to find that all is done
        assert "resume_refused" not in crawl.log
        assert "Traceback" not in crawl.log


@pytest.mark.parametrize("runs", [16, rarely(50)])
def test_txn_7_runs_in_one_process_leave_nothing(
    mariadb_bench: Bench, mariadb: MariaDB, runs: int
) -> None:
    bench = mariadb_bench
    write(bench, CHAIN + PLAIN, "RESUME_RUN = 'new'\n")
    bench.site.listing.__init__(pages=2, rows=2)
    bench.env["RUNS"] = str(runs)
    bench.run_scrapy("repeated", "rows", "plain", *options(bench)).wait()
    kept, resources = json.loads((bench.directory / "kept").read_text())
    assert kept == [0] * runs
    # Threads and open files after the last runs: no more than after the first ones. A thread
    # may take a moment to end.
    most, least = (
        map(max, zip(*resources[:4], strict=True)),
        map(min, zip(*resources[-3:], strict=True)),
    )
    assert all(late <= early for early, late in zip(most, least, strict=True)), resources
    assert len(bench.tasks) == runs // 2


def options(bench: Bench, home: str = "home") -> list[str]:
    given = {"RESUME_HOME": bench.directory / home, "RESUME_TABLE_PREFIX": bench.prefix}
    return [part for name, value in given.items() for part in ("-s", f"{name}={value}")]


def test_a_spider_has_two_connections_at_most(
    mariadb_bench: Bench, mariadb: MariaDB, mariadb_name: str
) -> None:
    bench = mariadb_bench
    write(bench, CHAIN + PLAIN)
    peaks = {}
    with mariadb.connect() as connection, connection.cursor() as cursor:
        for spider in ("rows", "plain"):
            held = bench.site.behave(page=1, hold=True)
            crawl = bench.start(spider)
            held.wait()
            bench.site.heal()
            peaks[spider] = 0
            while crawl.code is None:
                peaks[spider] = max(peaks[spider], count(cursor, mariadb_name))
                time.sleep(0.005)
    assert max(peaks.values()) <= 2
    assert min(peaks.values()) >= 1
