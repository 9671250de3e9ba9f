"""Transactions on MariaDB: what the server does to a page that is being stored."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.acceptance.conftest import Reference
from tests.acceptance.harness import CHAIN, Bench, Crawl, wait_until
from tests.acceptance.test_res import ONE_BY_ONE
from tests.proxy import Proxy, Rule
from tests.services import MariaDB

BOOK = """\
CREATE TABLE book (
    `key` VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL PRIMARY KEY,
    title VARCHAR(255), price VARCHAR(20)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4
"""

BOOKS = """\
class Rows(Chain):
    name = 'rows'
    item_table = ItemTable("book", key=["key"])

    def parse(self, response):
        for output in super().parse(response):
            if isinstance(output, dict) and output["key"] in ("k061", "k062"):
                del output["price"]  # other fields, so a statement of its own
            yield output
"""
WAITING = "SELECT trx_id FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'"
IMPATIENT = """\
import scrapy_resume.store.connections as connections

connections.LOCK_WAIT_TIMEOUT = 1
"""


def test_txn_1_a_lock_wait_timeout_undoes_the_whole_page(
    mariadb_bench: Bench, mariadb: MariaDB, mariadb_name: str
) -> None:
    bench = mariadb_bench
    bench.write(BOOKS, settings=IMPATIENT)
    mariadb.execute(BOOK, database=mariadb_name)
    for key in bench.served[7]:
        mariadb.execute("INSERT INTO book VALUES (%s, 'old', '0')", key, database=mariadb_name)
    with closing(mariadb.connect(mariadb_name)) as other, other.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("SELECT * FROM book WHERE `key` = 'k065' FOR UPDATE")
        # No heartbeat, so that only the page waits for a lock.
        crawl = bench.start(RESUME_LEASE=300, RESUME_HEARTBEAT=60, **ONE_BY_ONE)
        waiting: set[object] = set()

        def waited_twice() -> bool:
            waiting.update(mariadb.execute(WAITING))
            return len(waiting) >= 2

        wait_until(waited_twice, interval=0.2)  # the server shows news once in 0.1 s
        assert bench.watermark == 6
        titles = "SELECT title FROM book WHERE `key` IN ('k061', 'k062', 'k065')"
        assert set(mariadb.execute(titles, database=mariadb_name)) == {("old",)}
        other.rollback()
        crawl.wait()
    assert (bench.task["verdict"], bench.shard["page_count"]) == ("complete", 12)
    stored = dict(mariadb.execute("SELECT `key`, title FROM book", database=mariadb_name))
    assert stored == {row.key: row.title for row in bench.site.listing.rows}
    assert crawl.stats["resume/commit/retries"] >= 1
    assert not crawl.said("ERROR")


class CutAtPage7(Proxy):
    """Cuts at the COMMIT that stores page 7: before the server has it, or before its reply."""

    def __init__(self, port: int, action: str) -> None:
        super().__init__(port)
        self.action = action
        self.cut: Rule | None = None

    def match(self, statement: str) -> Rule | None:
        if self.cut is None and "item" in statement[:60] and "k061" in statement:
            self.cut = self.rule("COMMIT", self.action)
        return super().match(statement)


@pytest.mark.parametrize("action", ["cut_before", "cut_after"])
def test_txn_4_the_connection_dies_while_commit_is_answered(
    mariadb_bench: Bench, mariadb: MariaDB, mariadb_name: str, reference: Reference, action: str
) -> None:
    bench = mariadb_bench
    bench.write(CHAIN)
    proxy = CutAtPage7(mariadb.port, action)
    bench.env = {"RESUME_DATABASE_URL": mariadb.url(mariadb_name, port=proxy.port)}
    # No heartbeat within the crawl: the next COMMIT after page 7's items is page 7's.
    crawl = bench.crawl(RESUME_LEASE=300, RESUME_HEARTBEAT=60, **ONE_BY_ONE)
    proxy.close()
    assert proxy.cut is not None and proxy.cut.met.is_set()
    bench.assert_complete(reference(CHAIN))
    assert (bench.shard["page_count"], bench.shard["written_count"]) == (12, 120)
    assert crawl.stats["resume/pages/committed"] == 12
    assert crawl.stats["resume/items/written"] == 120
    assert crawl.stats["resume/commit/retries"] == 1
    assert bench.site.hits(page=7) == 1
    assert not crawl.said("ERROR")


def test_txn_6_a_page_bigger_than_max_allowed_packet(
    mariadb_bench: Bench, mariadb: MariaDB
) -> None:
    bench = mariadb_bench
    wide = [row._replace(title=row.title + "x" * 40_000) for row in bench.site.listing.rows]
    bench.site.listing.rows = wide
    bench.site.listing.rows_per_page = 60
    ((packet,),) = mariadb.execute("SELECT @@GLOBAL.max_allowed_packet")
    mariadb.execute("SET GLOBAL max_allowed_packet = 1048576")
    try:
        bench.write(CHAIN)
        bench.crawl_killed("commit.items:2", **ONE_BY_ONE)  # after all its statements
        bench.assert_sound()
        assert (bench.watermark, len(bench.items)) == (1, 60)
        crawl = bench.crawl()
    finally:
        mariadb.execute(f"SET GLOBAL max_allowed_packet = {packet}")
    assert (bench.task["verdict"], bench.watermark) == ("complete", 2)
    titles = {key: json.loads(payload)["title"] for key, payload in bench.items.items()}
    assert titles == {row.key: row.title for row in wide}
    assert not crawl.said("ERROR")


QUICK = """\
import scrapy_resume.store.repeats as repeats

repeats.AWAY_FOR = 0.3
"""


def of_ours(crawl: Crawl, level: str) -> list[str]:
    return [line for line in crawl.said(level) if "[scrapy_resume" in line]


def assert_one_outage(crawl: Crawl) -> None:
    """It was said once that the database went away, once that it came back, and no more."""
    said = [line.partition("WARNING: ")[2] for line in of_ours(crawl, "WARNING")]
    assert [line[:21] for line in said] == ["The database is away:", "The database is back "]
    assert not crawl.said("ERROR")
    assert crawl.stats["resume/commit/reconnects"] >= 1


@pytest.fixture
def relayed(mariadb_bench: Bench, mariadb: MariaDB, mariadb_name: str, proxy: Proxy) -> Bench:
    """A bench whose crawls, by a user without privileges, reach MariaDB through the proxy."""
    grant(mariadb, mariadb_name)
    url = mariadb.url(mariadb_name, port=proxy.port, user="crawler")
    mariadb_bench.env = {"RESUME_DATABASE_URL": url}
    return mariadb_bench


def grant(mariadb: MariaDB, name: str) -> None:
    for host in ("localhost", "127.0.0.1"):
        mariadb.execute(f"CREATE USER IF NOT EXISTS crawler@'{host}'")
        mariadb.execute(f"GRANT ALL ON `{name}`.* TO crawler@'{host}'")


def held_at_page_5(bench: Bench, **given: object) -> Crawl:
    """A crawl that has stored four pages and waits for the site to answer the fifth."""
    held = bench.site.behave(page=5, hold=True)
    crawl = bench.start(**{**ONE_BY_ONE, **given})
    held.wait()
    wait_until(lambda: bench.watermark == 4)
    return crawl


DEADLOCKS = """\
from scrapy_resume.store import items

_write = items.ItemWriter.write
_left = {count}


def write(self, conn, rows, **more):
    global _left
    done = _write(self, conn, rows, **more)
    if _left and any("k065" in row.key for row in rows):
        _left -= 1
        conn.exec_driver_sql("SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213")
    return done


items.ItemWriter.write = write
"""


def test_txn_2_a_victim_ten_times_in_a_row_repeats_its_page(
    mariadb_bench: Bench, reference: Reference
) -> None:
    bench = mariadb_bench
    bench.write(CHAIN, settings=DEADLOCKS.format(count=10))
    crawl = bench.crawl(**ONE_BY_ONE)
    bench.assert_complete(reference(CHAIN))
    assert crawl.stats["resume/commit/deadlocks"] == crawl.stats["resume/commit/retries"] == 10
    assert "The database is busy: " in crawl.log
    assert not crawl.said("ERROR")


def test_txn_2_a_victim_for_ever_stays_unfinished_and_is_reported(mariadb_bench: Bench) -> None:
    bench = mariadb_bench
    bench.write(CHAIN, settings=DEADLOCKS.format(count=-1))
    crawl = bench.crawl(RESUME_STORE_PATIENCE=0, **ONE_BY_ONE)
    bench.assert_sound()
    assert (crawl.finish_reason, bench.watermark) == ("resume_store_failed", 6)
    (line,) = of_ours(crawl, "ERROR")
    assert "failed 8 times, last with: " in line
    assert bench.shard["status"] == "pending"


def test_txn_3_idle_longer_than_wait_timeout(
    mariadb_bench: Bench, mariadb: MariaDB, reference: Reference
) -> None:
    bench = mariadb_bench
    bench.site.listing.__init__(pages=3, rows=10)
    bench.write(CHAIN)
    ((before,),) = mariadb.execute("SELECT @@GLOBAL.wait_timeout")
    mariadb.execute("SET GLOBAL wait_timeout = 1")
    try:
        crawl = bench.crawl(DOWNLOAD_DELAY=1.5, **ONE_BY_ONE)
    finally:
        mariadb.execute(f"SET GLOBAL wait_timeout = {before}")
    bench.assert_complete(reference(CHAIN, pages=3))
    assert not crawl.said("ERROR")
    assert not crawl.said("WARNING")


def test_txn_3_connections_that_the_server_closed_while_the_site_was_slow(
    mariadb_bench: Bench, mariadb: MariaDB, mariadb_name: str, reference: Reference
) -> None:
    bench = mariadb_bench
    bench.write(CHAIN)
    crawl = held_at_page_5(bench)
    bench.database.close()
    for number in clients(mariadb, mariadb_name):
        mariadb.execute(f"KILL {number}")
    bench.site.heal()
    crawl.wait()
    bench.assert_complete(reference(CHAIN))
    assert bench.site.hits(page=5) == 1
    assert not crawl.said("ERROR")
    assert not crawl.said("WARNING")


def clients(mariadb: MariaDB, name: str) -> set[int]:
    """The connections to a database."""
    query = "SELECT id FROM information_schema.processlist WHERE db = %s"
    return {number for (number,) in mariadb.execute(query, name)}


def test_txn_3_a_firewall_that_drops_silently(
    relayed: Bench, proxy: Proxy, reference: Reference
) -> None:
    """Noticed within the time limit for an answer, here 1 s; by default it is 15 s."""
    bench = relayed
    bench.write(CHAIN)
    bench.env["RESUME_DATABASE_URL"] += "?read_timeout=1"
    crawl = held_at_page_5(bench)
    assert proxy.swallow()
    bench.site.heal()
    crawl.wait()
    bench.assert_complete(reference(CHAIN))
    assert crawl.stats["elapsed_time_seconds"] < 15
    assert not crawl.said("ERROR")


def test_txn_5_a_server_that_is_read_only_for_a_while(
    relayed: Bench, mariadb: MariaDB, mariadb_name: str, reference: Reference
) -> None:
    bench = relayed
    bench.write(CHAIN, settings=QUICK)
    crawl = held_at_page_5(bench)
    bench.database.close()
    before = clients(mariadb, mariadb_name)
    mariadb.execute("SET GLOBAL read_only = 1")
    try:
        bench.site.heal()
        crawl.wait_until_logged("The database is away")
        assert "read-only" in of_ours(crawl, "WARNING")[0]
        assert bench.watermark == 4
        bench.database.close()
        # Every connection from before has been given up, also that of the other thread.
        wait_until(lambda: not clients(mariadb, mariadb_name) & before)
    finally:
        mariadb.execute("SET GLOBAL read_only = 0")
    crawl.wait()
    bench.assert_complete(reference(CHAIN))
    assert bench.site.hits(page=6) == 1
    assert_one_outage(crawl)


def test_txn_5_a_server_that_stays_read_only(relayed: Bench, mariadb: MariaDB) -> None:
    bench = relayed
    bench.write(CHAIN, settings=QUICK)
    crawl = held_at_page_5(bench, RESUME_STORE_PATIENCE=1)
    mariadb.execute("SET GLOBAL read_only = 1")
    try:
        bench.site.heal()
        crawl.wait()
    finally:
        mariadb.execute("SET GLOBAL read_only = 0")
    assert (crawl.finish_reason, bench.watermark) == ("resume_store_failed", 4)
    bench.assert_sound()
    (line,) = of_ours(crawl, "ERROR")
    assert "The crawl stops, since nothing can be stored" in line
    assert "read-only" in line


@pytest.fixture
def second(tmp_path: Path) -> Iterator[MariaDB]:
    server = MariaDB(tmp_path / "second")
    server.start()
    yield server
    server.discard()


def copy(source: MariaDB, target: MariaDB, name: str) -> None:
    """What replication would have done by now."""
    target.execute(f"CREATE DATABASE `{name}`")
    with closing(target.connect(name)) as connection, connection.cursor() as cursor:
        cursor.execute("SET foreign_key_checks = 0")
        for (table,) in source.execute("SHOW TABLES", database=name):
            cursor.execute(source.execute(f"SHOW CREATE TABLE {table}", database=name)[0][1])
            for row in source.execute(f"SELECT * FROM {table}", database=name):
                cursor.execute(f"INSERT INTO {table} VALUES ({','.join(['%s'] * len(row))})", row)


def test_txn_5_the_host_name_moves_to_another_server(
    relayed: Bench,
    proxy: Proxy,
    mariadb: MariaDB,
    second: MariaDB,
    mariadb_name: str,
    reference: Reference,
) -> None:
    """The old server stays up read-only, and its connections stay open and look healthy."""
    bench = relayed
    bench.write(CHAIN)
    # No heartbeat: the connection of the other thread learns of it from the commit only.
    crawl = held_at_page_5(bench, RESUME_LEASE=300, RESUME_HEARTBEAT=60)
    bench.database.close()
    mariadb.execute("SET GLOBAL read_only = 1")
    try:
        copy(mariadb, second, mariadb_name)
        grant(second, mariadb_name)
        proxy.target = second.port
        bench.site.heal()
        crawl.wait()
        old = clients(mariadb, mariadb_name)
    finally:
        mariadb.execute("SET GLOBAL read_only = 0")
    assert (old, bench.watermark) == (set(), 4)
    bench.end()
    bench.database_url, bench._database = second.url(mariadb_name), None
    bench.assert_complete(reference(CHAIN))
    assert [bench.site.hits(page=number) for number in range(1, 13)] == [1] * 12
    assert not crawl.said("ERROR")


@pytest.mark.parametrize("checks", [None, "engine=warn"])
def test_txn_8_an_item_table_that_cannot_undo(
    mariadb_bench: Bench, mariadb: MariaDB, mariadb_name: str, checks: str | None
) -> None:
    bench = mariadb_bench
    bench.write(BOOKS)
    mariadb.execute(BOOK.replace("InnoDB", "MyISAM"), database=mariadb_name)
    crawl = bench.crawl(**({"RESUME_ITEM_CHECKS": checks} if checks else {}))
    said = of_ours(crawl, "WARNING" if checks else "ERROR")
    (line,) = [line for line in said if "MyISAM" in line]
    assert "book" in line
    if checks:
        assert not crawl.said("ERROR")
        assert bench.task["verdict"] == "complete"
    else:
        assert crawl.finish_reason == "resume_refused"
        assert len(bench.site.requests) == 0


def test_txn_8_a_table_of_ours_that_cannot_undo(
    mariadb_bench: Bench, mariadb: MariaDB, mariadb_name: str
) -> None:
    bench = mariadb_bench
    bench.write(CHAIN)
    bench.crawl()
    served = len(bench.site.requests)
    bench.database.close()
    mariadb.execute(f"ALTER TABLE {bench.prefix}manifest ENGINE=MyISAM", database=mariadb_name)
    crawl = bench.crawl()
    assert crawl.finish_reason == "resume_refused"
    (line,) = of_ours(crawl, "ERROR")
    assert f"the table {bench.prefix}manifest has the engine MyISAM" in line
    assert len(bench.site.requests) == served


def test_txn_9_the_database_goes_away_for_a_while(
    relayed: Bench, proxy: Proxy, reference: Reference
) -> None:
    """Without a journal; with one it goes on reading: see test_outages.py."""
    bench = relayed
    bench.write(CHAIN, settings=QUICK)
    crawl = held_at_page_5(bench, RESUME_JOURNAL=False)
    proxy.leave()
    bench.site.heal()
    crawl.wait_until_logged("The database is away")
    failed = proxy.accepted
    wait_until(lambda: proxy.accepted > failed + 4)
    assert len(bench.site.requests) <= 6
    proxy.come_back()
    crawl.wait()
    bench.assert_complete(reference(CHAIN))
    assert_one_outage(crawl)


def test_txn_9_the_database_does_not_come_back(relayed: Bench, proxy: Proxy) -> None:
    bench = relayed
    bench.write(CHAIN, settings=QUICK)
    impatient = {"RESUME_STORE_PATIENCE": 1, "RESUME_GRACE": 1, "RESUME_JOURNAL": False}
    crawl = held_at_page_5(bench, **impatient)
    proxy.leave()
    bench.site.heal()
    crawl.wait()
    assert (crawl.finish_reason, bench.watermark) == ("resume_store_failed", 4)
    assert len(bench.site.requests) <= 6
    assert len(of_ours(crawl, "ERROR")) == 1
    # It went away; the end could not be recorded; and the grace may be over by then.
    assert len(of_ours(crawl, "WARNING")) <= 3
    assert "Traceback" not in crawl.log


def test_txn_9_the_database_is_away_at_the_start(relayed: Bench, proxy: Proxy) -> None:
    bench = relayed
    bench.write(CHAIN, settings=QUICK)
    proxy.leave()
    crawl = bench.crawl(RESUME_STORE_PATIENCE=1)
    assert crawl.finish_reason == "resume_refused"
    (line,) = of_ours(crawl, "ERROR")
    assert "failed" in line
    assert "Lost connection" in line
    assert len(bench.site.requests) == 0
    assert "Traceback" not in crawl.log
