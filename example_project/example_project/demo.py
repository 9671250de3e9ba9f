"""``python -m example_project.demo``: kill a crawl twice with SIGKILL, compare what it stored.

Serves the local site, crawls some Unicode blocks (those of the ``blocks`` spider's own
selection, or those given as an argument: ``"Arrows,Emoticons"``), kills the crawl at
a third and at two thirds of the way, and lets the third start finish. Then the item
table is compared with the site, character by character. Ends with 0 if they are equal.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

from example_project.site import Site, catalogue
from example_project.spiders.blocks import DEMO

PROJECT = Path(__file__).parents[1]
FEW_IN_FLIGHT = ("-s", "RESUME_SHARDS=2", "-s", "RESUME_PAGES_IN_FLIGHT=2")


def main(blocks: str = DEMO) -> int:
    began = time.monotonic()
    codes = catalogue.codes(blocks)
    with Site() as site, tempfile.TemporaryDirectory() as home:
        database = Path(home, "resume.db")
        print(f"{len(codes)} characters to crawl, each with a page of its own, at {site.url}")
        for third in (1, 2):
            _crawl(site, database, blocks, kill_at=len(codes) * third // 3)
            print(f"  kill -9 after {len(site.requests)} requests: {_progress(database)}")
        _crawl(site, database, blocks)
        print(f"  end after {len(site.requests)} requests: {_progress(database)}")
        wrong = _compare(codes, _items(database))
        verdict = _one(database, "SELECT verdict FROM resume_task")
        print(f"{_asked_again(site)} list pages were asked for again, {wrong}")
    print(f"Verdict of the run: {verdict}. It took {time.monotonic() - began:.0f} s.")
    return 0 if wrong.good and verdict == "complete" else 1


class Difference:
    """How the stored items differ from what the site serves."""

    def __init__(self, missing: int, surplus: int, different: int) -> None:
        self._text = f"{missing} characters are missing, {surplus} too many, {different} differ"
        self.good = not (missing or surplus or different)

    def __str__(self) -> str:
        return self._text


def _crawl(site: Site, database: Path, blocks: str, kill_at: int | None = None) -> None:
    """Start the crawl; kill it when the site has had *kill_at* requests, or let it end."""
    command = [sys.executable, "-m", "scrapy", "crawl", "blocks", "-a", f"base={site.url}"]
    command += ["-a", f"blocks={blocks}", "-s", "LOG_LEVEL=WARNING", *FEW_IN_FLIGHT]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "RESUME_HOME": str(database.parent),
        "RESUME_DATABASE_URL": f"sqlite:///{database}",
        "RESUME_PROGRESS": "0",
    }
    with subprocess.Popen(command, cwd=PROJECT, env=environment) as process:
        while process.poll() is None:
            if kill_at is not None and len(site.requests) >= kill_at:
                process.send_signal(signal.SIGKILL)
            time.sleep(0.01)
    if process.returncode != (0 if kill_at is None else -signal.SIGKILL):
        sys.exit(f"the crawl ended with {process.returncode}")


def _query(database: Path, sql: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(database)) as connection:
        return connection.execute(sql).fetchall()


def _one(database: Path, sql: str) -> Any:
    return _query(database, sql)[0][0]


def _progress(database: Path) -> str:
    pages = _one(database, "SELECT SUM(page_count) FROM resume_task_shard")
    return f"{pages} pages with {len(_items(database))} characters are stored"


def _items(database: Path) -> list[dict[str, Any]]:
    return [json.loads(row[0]) for row in _query(database, "SELECT payload FROM resume_item")]


def _compare(codes: tuple[int, ...], items: list[dict[str, Any]]) -> Difference:
    expected = {f"U+{code:04X}": catalogue.record(code) for code in codes}
    found = {item["code"]: item for item in items}
    different = [code for code in expected.keys() & found.keys() if expected[code] != found[code]]
    surplus = len(items) - len(expected.keys() & found.keys())
    return Difference(len(expected.keys() - found.keys()), surplus, len(different))


def _asked_again(site: Site) -> int:
    asked = Counter((r.path, r.page) for r in site.requests if r.path.startswith("/block/"))
    return sum(times - 1 for times in asked.values())


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
