"""The embedded default: one SQLite file, many processes."""

from __future__ import annotations

import sqlite3
import time

from tests.acceptance.harness import Bench, wait_until

SHELVES = """\
class Rows(Numbered):
    name = 'rows'
    last_page = 8

    def __init__(self, shelf="", **kwargs):
        super().__init__(**kwargs)
        self.shelf = shelf

    def parse(self, response):
        for item in rows(response):
            yield {**item, "key": f"{self.shelf} {item['key']}"}
"""


def test_sql_1_four_crawls_a_reader_and_a_writer_share_a_file(sqlite_bench: Bench) -> None:
    bench = sqlite_bench
    bench.write(SHELVES)
    bench.site.delay = 0.05
    bench.settings = {"RESUME_COMMIT_PAGES": 1, "RESUME_COMMIT_DELAY": 0}
    path = bench.database_url.removeprefix("sqlite:///")
    crawls = [bench.start("rows", f"shelf={shelf}", RESUME_SHARDS=2) for shelf in "abcd"]
    wait_until(lambda: len(bench.items) >= 10)
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    seen = reader.execute(f"SELECT count(*) FROM {bench.prefix}item").fetchone()
    writer = sqlite3.connect(path, isolation_level=None, timeout=20)
    writer.execute("BEGIN IMMEDIATE")
    begun = time.monotonic()
    status = bench.run_scrapy(
        "resume", "status", "--json", "-s", f"RESUME_TABLE_PREFIX={bench.prefix}"
    )
    assert status.wait().code == 0, status.tail  # nobody who only looks has to wait
    time.sleep(max(0.0, 2.0 - (time.monotonic() - begun)))
    writer.rollback()
    for crawl in crawls:
        crawl.wait()
    assert reader.execute(f"SELECT count(*) FROM {bench.prefix}item").fetchone() == seen
    reader.close()
    writer.close()
    bench.assert_sound({})
    assert [task["verdict"] for task in bench.tasks] == ["complete"] * 4
    expected = {f"{shelf} {key}" for shelf in "abcd" for key in bench.site.listing.keys[:80]}
    assert set(bench.items) == expected
    for crawl in crawls:
        assert crawl.finish_reason == "finished"
        assert "locked" not in crawl.log and not crawl.said("ERROR")
