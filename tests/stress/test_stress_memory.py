"""Memory while pages come faster than the database takes them; ``make stress``."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from tests.acceptance.harness import NUMBERED, Bench, Crawl

pytestmark = pytest.mark.stress

PAGES = int(os.environ.get("MEMORY_PAGES", "3000"))
ROWS, WIDE = 50, 2000  # rows of a page, characters of a row
STEP = PAGES // 30
SLOW = f"""\
import time

from scrapy_resume.store.items import ItemWriter

_write = ItemWriter.write


def write(self, conn, rows, **more):
    time.sleep(0.1 * len(rows) / {ROWS})
    return _write(self, conn, rows, **more)


ItemWriter.write = write
"""


def rss(crawl: Crawl) -> float:
    """The resident memory of the process now, in MiB."""
    status = Path(f"/proc/{crawl.process.pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found is not None, status
    return int(found[1]) / 1024


def stored(bench: Bench) -> int:
    """How many items there are: to read them all, hundreds of megabytes, takes too long."""
    with bench.database.transaction() as conn:
        return conn.execute(
            select(func.count()).select_from(bench.database.tables.item)
        ).scalar_one()


@pytest.mark.parametrize("journal", [True, False], ids=["journal", "no journal"])
def test_stress_prc_6_memory_is_flat_behind_a_slow_database(
    mariadb_bench: Bench, journal: bool
) -> None:
    """3,000 pages of 50 rows of 2 KB; the database needs 100 ms more for a page than the site."""
    bench = mariadb_bench
    bench.site.listing.__init__(pages=PAGES, rows=ROWS, filler=WIDE)  # type: ignore[misc]
    bench.write(NUMBERED + f"    last_page = {PAGES}\n    shard_pages = 200\n", settings=SLOW)
    given: dict[str, Any] = {"RESUME_JOURNAL": journal, "RESUME_LEASE": 15, "RESUME_HEARTBEAT": 3}
    crawl = bench.start(**given)
    sizes: dict[int, float] = {}
    while crawl.code is None and (asked := len(bench.site.requests)) < PAGES:
        sizes[asked // STEP] = max(rss(crawl), sizes.get(asked // STEP, 0.0))
        time.sleep(0.1)
    print("MiB:", ", ".join(f"{size:.0f} at page {at * STEP}" for at, size in sizes.items()))
    assert crawl.wait(3600).finish_reason == "finished", crawl.tail
    assert stored(bench) == PAGES * ROWS
    early, last = max(size for at, size in sizes.items() if at <= 3), sizes[max(sizes)]
    assert last / early <= 1.2
    assert max(sizes.values()) / early <= 1.2
