"""UpsertPipeline without the mixin and without any other component, in real processes."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from sqlalchemy import inspect
from sqlalchemy.engine import Connection

from tests.acceptance.harness import SLACK, Bench, Crawl, wait_until
from tests.acceptance.tiers import mostly_on
from tests.proxy import Proxy
from tests.services import MariaDB

SETTINGS = """\
ADDONS = {}
ITEM_PIPELINES = {"scrapy_resume.pipelines.UpsertPipeline": 1000}
"""

QUICK = """\
import scrapy_resume.store.repeats as repeats

repeats.AWAY_FOR = 0.3
"""

ROWS = """\
from pathlib import Path


class Rows(scrapy.Spider):
    name = "rows"
    item_key = "key"
    pages = 12

    async def start(self):
        for number in range(1, int(self.pages) + 1):
            yield Request(f"{SITE}/list?page={number}", dont_filter=True)

    @classmethod
    def from_crawler(cls, crawler, *args, **kwargs):
        spider = super().from_crawler(crawler, *args, **kwargs)
        spider.count, spider.told = 0, Path("scraped")
        crawler.signals.connect(spider.scraped, scrapy.signals.item_scraped)
        return spider

    def scraped(self, item):
        self.count += 1
        self.told.write_text(str(self.count))

    def parse(self, response):
        yield from rows(response)
"""


@pytest.fixture
def relayed(mariadb_bench: Bench, mariadb: MariaDB, mariadb_name: str, proxy: Proxy) -> Bench:
    """A bench whose crawls reach MariaDB through the proxy."""
    mariadb_bench.env = {"RESUME_DATABASE_URL": mariadb.url(mariadb_name, port=proxy.port)}
    return mariadb_bench


def write(bench: Bench, spiders: str = ROWS, settings: str = "") -> Bench:
    bench.write(spiders, settings=SETTINGS + settings)
    return bench


def scraped(bench: Bench) -> int:
    """How many items Scrapy has told the spider of."""
    told = bench.directory / "scraped"
    return int(told.read_text() or 0) if told.exists() else 0


def stored(bench: Bench) -> int:
    """How many rows the item table has; 0 while there is none."""
    name = bench.database.tables.item.name

    def count(conn: Connection) -> int:
        there = inspect(conn).has_table(name)
        return conn.exec_driver_sql(f"SELECT COUNT(*) FROM {name}").scalar_one() if there else 0

    return bench.database.look(count)


def still(value: object, within: float = 1.5) -> object:
    """*value()* once it has not changed for *within* seconds."""
    assert callable(value)
    last, since = value(), time.monotonic()
    while time.monotonic() - since < within:
        time.sleep(0.02)
        if value() != last:
            last, since = value(), time.monotonic()
    return last


def of_ours(crawl: Crawl, level: str) -> list[str]:
    return [line for line in crawl.said(level) if "[scrapy_resume" in line]


def test_every_item_is_stored_and_a_second_run_upserts_the_same_rows(bench: Bench) -> None:
    write(bench)
    for title in (None, "the newer title"):
        if title:
            bench.site.listing.change("k031", title=title)
        crawl = bench.crawl()
        assert crawl.finish_reason == "finished"
        assert crawl.stats["resume/items/written"] == crawl.stats["item_scraped_count"] == 120
        titles = {key: json.loads(text)["title"] for key, text in bench.items.items()}
        assert titles == {row.key: row.title for row in bench.site.listing.rows}
        assert not crawl.said("ERROR")
        assert not crawl.said("WARNING")
    assert bench.tasks == []
    assert bench.database.engine.pool.checkedout() == 0


@mostly_on("mariadb")
def test_a_batch_goes_when_it_is_full_and_at_the_end(bench: Bench) -> None:
    write(bench)
    crawl = bench.crawl(RESUME_COMMIT_ITEMS=50, RESUME_BATCH_DELAY=600)
    assert (stored(bench), crawl.stats["resume/batches/written"]) == (120, 3)


def test_a_batch_goes_when_its_first_row_has_waited_long_enough(sqlite_bench: Bench) -> None:
    bench = write(sqlite_bench)
    held = bench.site.behave(page=12, hold=True)
    crawl = bench.start(RESUME_COMMIT_ITEMS=100000, RESUME_BATCH_DELAY=0.2)
    held.wait()
    wait_until(lambda: scraped(bench) == 110)
    wait_until(lambda: stored(bench) == 110)
    bench.site.heal()
    assert crawl.wait().finish_reason == "finished"
    assert stored(bench) == 120


def test_a_batch_goes_when_it_is_big_enough(sqlite_bench: Bench) -> None:
    bench = write(sqlite_bench)
    wide = [row._replace(title="x" * 40_000) for row in bench.site.listing.rows]
    bench.site.listing.rows = wide
    crawl = bench.crawl(RESUME_COMMIT_ITEMS=100000, RESUME_BATCH_DELAY=600)
    # 120 rows of 40 KB; a batch is full with the 25th.
    assert (stored(bench), crawl.stats["resume/batches/written"]) == (120, 5)


def test_a_kill_loses_two_batches_at_most_and_a_stuck_database_stops_the_downloads(
    bench: Bench,
) -> None:
    """The documented bound is reached, and not passed: one batch is being written, one full."""
    write(bench)
    bench.site.listing.__init__(pages=100, rows=10)
    crawl = bench.start(
        "rows", "pages=100", RESUME_COMMIT_ITEMS=10, RESUME_FAULT="batch.before:5:sleep=60"
    )
    wait_until(lambda: scraped(bench) >= 60)
    assert still(lambda: (scraped(bench), len(bench.site.requests)))[0] == 60
    # 6 pages' worth is through; others were under way, in the downloader and the scraper.
    assert len(bench.site.requests) <= 60
    crawl.kill()
    assert stored(bench) == 40
    again = bench.crawl("rows", "pages=100", RESUME_COMMIT_ITEMS=1000)
    assert (stored(bench), again.finish_reason) == (1000, "finished")


def test_rows_wait_while_the_database_is_away(relayed: Bench, proxy: Proxy) -> None:
    bench = write(relayed, settings=QUICK)
    held = bench.site.behave(page=5, hold=True)
    crawl = bench.start(RESUME_COMMIT_ITEMS=10, CONCURRENT_REQUESTS=1)
    held.wait()
    wait_until(lambda: stored(bench) == 40)
    proxy.leave()
    bench.site.heal()
    crawl.wait_until_logged("The database is away")
    hits = still(lambda: len(bench.site.requests))  # it was tried again meanwhile
    assert hits <= 9
    proxy.come_back()
    assert crawl.wait().finish_reason == "finished"
    assert stored(bench) == crawl.stats["item_scraped_count"] == 120
    said = of_ours(crawl, "WARNING")
    assert ["The database is away" in line for line in said] == [True, False]
    assert "The database is back after" in said[1]
    assert not crawl.said("ERROR")
    assert "resume/items/lost" not in crawl.stats
    assert crawl.stats["resume/commit/reconnects"] == crawl.stats["resume/commit/retries"] >= 2


def test_a_database_that_stays_away_ends_the_crawl_and_the_loss_is_stated(
    relayed: Bench, proxy: Proxy
) -> None:
    bench = write(relayed, settings=QUICK)
    held = bench.site.behave(page=5, hold=True)
    crawl = bench.start(RESUME_COMMIT_ITEMS=10, RESUME_STORE_PATIENCE=1, CONCURRENT_REQUESTS=1)
    held.wait()
    wait_until(lambda: stored(bench) == 40)
    proxy.leave()
    bench.site.heal()
    assert crawl.wait().finish_reason == "resume_store_failed"
    lost = crawl.stats["resume/items/lost"]
    assert crawl.stats["item_scraped_count"] == stored(bench) + lost
    assert len(of_ours(crawl, "WARNING")) == 1
    stops, states = of_ours(crawl, "ERROR")
    assert "The crawl stops, since nothing can be stored" in stops
    assert f"{lost} items of no page were not stored and are lost" in states
    assert "Traceback" not in crawl.log
    proxy.come_back()
    assert bench.crawl().finish_reason == "finished"
    assert stored(bench) == 120


def test_a_database_that_is_away_at_the_start_is_said_before_the_first_request(
    relayed: Bench, proxy: Proxy
) -> None:
    bench = write(relayed, settings=QUICK)
    proxy.leave()
    crawl = bench.crawl()
    assert crawl.finish_reason == "resume_refused"
    (line,) = of_ours(crawl, "ERROR")
    assert "Lost connection" in line
    assert len(bench.site.requests) == 0


@pytest.mark.parametrize("action", ["cut_before", "cut_after"])
def test_a_commit_whose_answer_is_lost_stores_and_counts_once(
    relayed: Bench, proxy: Proxy, action: str
) -> None:
    bench = write(relayed)
    bench.crawl(RESUME_COMMIT_ITEMS=1000)  # makes the tables
    rule = proxy.rule("COMMIT", action, skip=1)
    crawl = bench.crawl(RESUME_COMMIT_ITEMS=50)
    assert rule.met.is_set()
    assert stored(bench) == crawl.stats["resume/items/written"] == 120
    assert (crawl.stats["resume/commit/retries"], crawl.stats["resume/commit/reconnects"]) == (1, 1)
    assert not crawl.said("ERROR")


@mostly_on("mariadb")
def test_a_polite_stop_stores_what_waits(bench: Bench) -> None:
    write(bench)
    held = bench.site.behave(page=12, hold=True)
    crawl = bench.start(RESUME_COMMIT_ITEMS=1000, RESUME_BATCH_DELAY=600)
    held.wait()
    wait_until(lambda: scraped(bench) == 110)
    assert bench.items == {}
    crawl.stop()
    wait_until(lambda: stored(bench) == 110)  # at once, not when the last page has arrived
    bench.site.heal()
    assert crawl.wait().finish_reason == "shutdown"
    assert stored(bench) == crawl.stats["item_scraped_count"] == 120


def test_a_polite_stop_while_the_database_is_away_ends_within_the_grace(
    relayed: Bench, proxy: Proxy
) -> None:
    bench = write(relayed)
    crawl = bench.start(
        RESUME_COMMIT_ITEMS=20, RESUME_GRACE=1, RESUME_FAULT="batch.after:2:sleep=1"
    )
    wait_until(lambda: stored(bench) == 40)
    proxy.leave()
    started = time.monotonic()
    crawl.stop().wait()
    assert time.monotonic() - started < 1 + SLACK
    lost = crawl.stats["resume/items/lost"]
    assert crawl.stats["item_scraped_count"] == stored(bench) + lost
    assert f"{lost} items of no page were not stored and are lost" in crawl.log


def test_a_polite_stop_with_a_dead_connection_loses_nothing(relayed: Bench, proxy: Proxy) -> None:
    """The connection is a black hole, the server is well: one more attempt on a new one."""
    bench = write(relayed)
    bench.env = {"RESUME_DATABASE_URL": bench.env["RESUME_DATABASE_URL"] + "?read_timeout=2"}
    rule = proxy.rule("INSERT INTO .*item", "hold", skip=1)
    crawl = bench.start(RESUME_COMMIT_ITEMS=20, RESUME_GRACE=0.5)
    assert rule.met.wait(60)
    assert stored(bench) == 20
    crawl.stop().wait(20)
    assert crawl.finish_reason == "shutdown"
    assert stored(bench) == crawl.stats["item_scraped_count"] > 20
    assert not crawl.said("ERROR")


TABLE = """\
CREATE TABLE book (
    `key` VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL PRIMARY KEY,
    title VARCHAR(255), price VARCHAR(20), CHECK (title NOT LIKE 'bad%%')
) ENGINE={engine} DEFAULT CHARSET=utf8mb4
"""


def test_rows_that_the_database_refuses_go_to_quarantine_without_a_task(
    mariadb_bench: Bench, mariadb: MariaDB, mariadb_name: str
) -> None:
    bench = write(mariadb_bench, ROWS + '    item_table = ItemTable("book", key=["key"])\n')
    mariadb.execute(TABLE.format(engine="InnoDB").replace("%%", "%"), database=mariadb_name)
    for key in ("k007", "k031", "k119"):
        bench.site.listing.change(key, title="bad")
    crawl = bench.crawl(RESUME_COMMIT_ITEMS=50)
    ((count,),) = mariadb.execute("SELECT COUNT(*) FROM book", database=mariadb_name)
    assert (count, crawl.stats["resume/items/written"]) == (117, 117)
    assert crawl.stats["resume/items/quarantined"] == 3
    assert sorted(row["item_key"] for row in bench.quarantine) == ["k007", "k031", "k119"]
    assert {(row["task_id"], row["page"], row["kind"]) for row in bench.quarantine} == {
        (None, None, "row")
    }


UNFIT = """\
class Rows(scrapy.Spider):
    name = "rows"
    item_table = ItemTable("plain", key=["url"])

    async def start(self):
        for number in range(40):
            yield {"url": f"u{number}", "tags": [float("nan")] if number % 8 == 3 else ["a"]}
            yield {"url": None, "tags": []}
        yield {"url": "long", "tags": "x" * 41}
"""


def test_an_item_that_no_row_can_be_made_of_is_on_record_too(bench: Bench) -> None:
    write(bench, UNFIT)
    sqlite = bench.database.dialect == "sqlite"
    exact = "" if sqlite else " CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin"
    with bench.database.transaction() as conn:
        conn.exec_driver_sql(
            "CREATE TABLE plain (url VARCHAR(20) NOT NULL PRIMARY KEY, tags VARCHAR(40))" + exact
        )
    crawl = bench.crawl(RESUME_COMMIT_ITEMS=7)
    kinds = Counter(
        (row["kind"], row["error_class"], row["item_table"], row["column_name"], row["task_id"])
        for row in bench.quarantine
    )
    assert kinds == {
        ("item", "NoKey", "plain", "url", None): 40,
        ("item", "Unfit", "plain", "tags", None): 5,
        ("row", "Unfit", "plain", "tags", None): 1,
    }
    unfit = [row for row in bench.quarantine if row["error_class"] == "Unfit"]
    assert sorted(row["item_key"] for row in unfit)[:3] == ["long", "u11", "u19"]
    assert crawl.stats["resume/items/written"] == crawl.stats["item_scraped_count"] - 1 == 35
    assert crawl.stats["resume/items/quarantined"] == 46
    assert (crawl.said("ERROR"), crawl.said("Traceback")) == ([], [])
    told = [line.partition("WARNING: ")[2] for line in of_ours(crawl, "WARNING")]
    assert told == [
        "table plain, column url: rows are refused: NoKey:"
        " the key field 'url' is missing or None; said once",
        "table plain, column tags: rows are refused: Unfit:"
        " it holds NaN or an infinity, which JSON does not have; said once",
        "table plain, column url: 40 rows were refused: NoKey",
        "table plain, column tags: 6 rows were refused: Unfit",
    ]


def test_a_table_that_cannot_undo_is_refused_before_the_first_request(
    mariadb_bench: Bench, mariadb: MariaDB, mariadb_name: str
) -> None:
    bench = write(mariadb_bench, ROWS + '    item_table = ItemTable("book", key=["key"])\n')
    mariadb.execute(TABLE.format(engine="MyISAM").replace("%%", "%"), database=mariadb_name)
    crawl = bench.crawl()
    assert crawl.finish_reason == "resume_refused"
    (line,) = of_ours(crawl, "ERROR")
    assert "book" in line
    assert "MyISAM" in line
    assert len(bench.site.requests) == 0


def test_a_mistake_in_the_settings_is_said_before_the_first_request(sqlite_bench: Bench) -> None:
    bench = write(sqlite_bench)
    crawl = bench.crawl(RESUME_COMIT_ITEMS=5)
    assert crawl.finish_reason == "resume_refused"
    (line,) = of_ours(crawl, "ERROR")
    assert "did you mean RESUME_COMMIT_ITEMS?" in line
    assert len(bench.site.requests) == 0


TWO_SPIDERS = """\
import sys

from scrapy.crawler import CrawlerProcess
from scrapy.utils.project import get_project_settings

process = CrawlerProcess(get_project_settings())
process.crawl("rows")
process.crawl("others")
process.start()
"""


@mostly_on("sqlite")
def test_several_spiders_in_one_process(bench: Bench) -> None:
    others = ROWS.replace('"rows"', '"others"').replace("range(1,", "range(4,")
    write(bench)
    write(bench, ROWS + "\n\n" + others.replace("class Rows", "class Others"))
    bench.env |= {"RESUME_TABLE_PREFIX": bench.prefix}
    script = bench.directory / "both.py"
    script.write_text(TWO_SPIDERS)
    crawl = bench.run([sys.executable, str(script)]).wait()
    assert crawl.code == 0
    found = [source for source, _ in bench.snapshot().items]
    assert (found.count("rows"), found.count("others")) == (120, 90)
    assert not crawl.said("ERROR")


NEWER_THAN_5_7 = re.compile(
    r"SKIP LOCKED|NOWAIT|^WITH\b|\bRETURNING\b|\bOVER\s*\(|\bLATERAL\b|\bAS new\b|0900"
    r"|INTERSECT|EXCEPT",
    re.IGNORECASE,
)


def test_no_statement_needs_more_than_mysql_5_7(relayed: Bench, proxy: Proxy) -> None:
    bench = write(relayed)
    bench.crawl(RESUME_COMMIT_ITEMS=50)
    assert stored(bench) == 120
    # On MariaDB only: Alembic's own row comes with RETURNING, JSON columns are looked for.
    own = re.compile("alembic_version|information_schema.check_constraints")
    sent = [text for text in proxy.statements if not own.search(text)]
    assert [text for text in sent if NEWER_THAN_5_7.search(text)] == []
    assert any("INSERT INTO" in text for text in proxy.statements)


def test_a_second_kill_signal_is_not_needed(sqlite_bench: Bench) -> None:
    """SIGINT is as polite as SIGTERM."""
    bench = write(sqlite_bench)
    held = bench.site.behave(page=12, hold=True)
    crawl = bench.start(RESUME_COMMIT_ITEMS=1000, RESUME_BATCH_DELAY=600)
    held.wait()
    wait_until(lambda: scraped(bench) == 110)
    crawl.signal(signal.SIGINT)
    bench.site.heal()
    assert crawl.wait().finish_reason == "shutdown"
    assert stored(bench) == crawl.stats["item_scraped_count"]


SLOW = """\
import time

from scrapy_resume.store import items

_write = items.ItemWriter.write


def write(self, *args, **more):
    time.sleep(0.1)
    return _write(self, *args, **more)


items.ItemWriter.write = write
"""


@pytest.mark.stress
def test_memory_is_flat_while_the_database_is_slower_than_the_site(mariadb_bench: Bench) -> None:
    """60 MB of rows: 600 pages of 50 rows of 2 KB, in batches of 100 that take 0.1 s each."""
    bench = write(mariadb_bench, settings=SLOW)
    bench.site.listing.__init__(pages=600, rows=50)
    wide = [row._replace(title=row.title.ljust(2000, "x")) for row in bench.site.listing.rows]
    bench.site.listing.rows = wide
    crawl = bench.start("rows", "pages=600", RESUME_COMMIT_ITEMS=100)
    sizes = []
    for items in (3_000, 29_000):
        wait_until(lambda wanted=items: scraped(bench) >= wanted, timeout=120)
        sizes.append(resident(crawl))
    print(f"\nresident: {sizes[0]} MB after 3,000 items, {sizes[1]} MB after 29,000")
    assert crawl.wait(120).finish_reason == "finished"
    assert stored(bench) == 30_000
    assert sizes[1] <= sizes[0] * 1.2


def resident(crawl: Crawl) -> int:
    """The memory of the process in MB."""
    pages = Path(f"/proc/{crawl.process.pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE") >> 20
