"""Transactions on MariaDB: what the server does to a page that is being stored."""

from __future__ import annotations

import json
from contextlib import closing

import pytest

from tests.acceptance.conftest import Reference
from tests.acceptance.harness import CHAIN, Bench, wait_until
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
