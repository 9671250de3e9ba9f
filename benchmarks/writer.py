"""Rows per second of the item writer, as ratios to SQL written by hand.

A page is 100 items; each page is a transaction of its own, into a table of the user's own
in a private MariaDB (or SQLite file). The contenders take turns at every page, each with a
database of its own, and each ratio is taken within a round:

- *writer*: what ``UpsertPipeline`` does from the item to the COMMIT.
- *rows*: one INSERT … ON DUPLICATE KEY UPDATE per row, as public pipelines do it, but
  with one COMMIT per page instead of per row.
- *hand*: multi-row SQL written by hand for this table: ``executemany`` of the driver.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.report import Ratio, circumstances
from benchmarks.services import DATABASES, Databases
from scrapy_resume.itemrows import ItemRows
from scrapy_resume.store import checkpoints, migrate
from scrapy_resume.store.engine import Database
from scrapy_resume.store.items import ItemTable, ItemWriter

RESULTS = Path(__file__).parent / "results"
PAGE_ROWS = 100
FASTER = 5.0
"""How many times the rows/s of one statement per row the writer must reach on MariaDB."""
SLOWER = 1.5
"""How many times as long as SQL written by hand it may take there."""

FIELDS = ("isbn", "title", "price", "stock", "url", "seen")
CREATE = (
    "CREATE TABLE book (isbn VARCHAR(20) {exact} NOT NULL PRIMARY KEY, title VARCHAR(200),"
    " price DOUBLE, stock INTEGER, url VARCHAR(500), seen DATETIME) {all}"
)
MYSQL = (
    "INSERT INTO book (isbn, title, price, stock, url, seen) VALUES (%s, %s, %s, %s, %s, %s)"
    " ON DUPLICATE KEY UPDATE title = VALUES(title), price = VALUES(price),"
    " stock = VALUES(stock), url = VALUES(url), seen = VALUES(seen)"
)
SQLITE = (
    "INSERT INTO book (isbn, title, price, stock, url, seen) VALUES (?, ?, ?, ?, ?, ?)"
    " ON CONFLICT (isbn) DO UPDATE SET title = excluded.title, price = excluded.price,"
    " stock = excluded.stock, url = excluded.url, seen = excluded.seen"
)

Item = dict[str, Any]
Page = list[Item]
Write = Callable[[Page], None]


class Shelf:
    """A database with the table, and the ways to write pages into it."""

    def __init__(self, db: Database) -> None:
        self.db = db
        self.sql = SQLITE if db.dialect == "sqlite" else MYSQL
        words = {"exact": "", "all": ""}
        if db.dialect == "mysql":
            words = {"exact": "COLLATE utf8mb4_nopad_bin", "all": "CHARACTER SET utf8mb4"}
        with db.transaction() as conn:
            conn.exec_driver_sql(CREATE.format(**words))
        table = ItemTable("book", "isbn")
        self._rows = ItemRows(SimpleNamespace(name="books", item_table=table))
        self._writer = ItemWriter(db, [table])

    def writer(self, page: Page) -> None:
        rows = [self._rows.row(item) for item in page]
        result = checkpoints.store_rows(self.db, rows, writer=self._writer)
        assert result.written == len(page)

    @contextmanager
    def _cursor(self) -> Iterator[Any]:
        """A plain cursor of the driver, in a transaction."""
        with self.db.transaction() as conn:
            raw: Any = conn.connection.dbapi_connection
            if self.db.dialect == "sqlite":
                yield raw.cursor()
            else:
                from pymysql.cursors import Cursor

                yield raw.cursor(Cursor)

    def rows(self, page: Page) -> None:
        with self._cursor() as cursor:
            for item in page:
                cursor.execute(self.sql, self._values(item))

    def hand(self, page: Page) -> None:
        with self._cursor() as cursor:
            cursor.executemany(self.sql, [self._values(item) for item in page])

    def _values(self, item: Item) -> tuple[Any, ...]:
        values = tuple(item[name] for name in FIELDS)
        return (*values[:-1], str(values[-1])) if self.db.dialect == "sqlite" else values


WAYS = ("writer", "rows", "hand")


def main() -> int:
    options = _options()
    seconds: dict[str, dict[str, list[float]]] = {}
    with Databases() as servers:
        for kind in options.database:
            seconds[kind] = _measure(servers, kind, options.pages, options.runs)
    ratios = {kind: _ratios(taken) for kind, taken in seconds.items()}
    for kind, one in ratios.items():
        print(f"{kind}: {one['rows']} times the rows/s of one statement per row")
        print(f"{kind}: {one['hand']} times as long as multi-row SQL written by hand", flush=True)
    if options.output is not None:
        _write(options.output, ratios)
    return _judge(ratios)


def _measure(servers: Databases, kind: str, pages: int, rounds: int) -> dict[str, list[float]]:
    """Seconds of each way in every round."""
    taken: dict[str, list[float]] = defaultdict(list)
    for number in range(rounds):
        with ExitStack() as stack:
            shelves = {way: stack.enter_context(_shelf(servers, kind)) for way in WAYS}
            for way, seconds in _round(shelves, _pages(pages, number)).items():
                taken[way].append(seconds)
        print(f"round {number + 1} of {rounds}: {kind}", file=sys.stderr, flush=True)
    return taken


def _round(shelves: dict[str, Shelf], pages: list[Page]) -> dict[str, float]:
    """Let the ways take turns at every page, each in a database of its own."""
    writes: dict[str, Write] = {way: getattr(shelf, way) for way, shelf in shelves.items()}
    taken = dict.fromkeys(writes, 0.0)
    for number, page in enumerate(pages):
        turn = number % len(WAYS)
        for way in WAYS[turn:] + WAYS[:turn]:
            started = time.perf_counter()
            writes[way](page)
            if number:  # the first page connects, and learns the table
                taken[way] += time.perf_counter() - started
    return taken


@contextmanager
def _shelf(servers: Databases, kind: str) -> Iterator[Shelf]:
    with tempfile.TemporaryDirectory() as home, servers.fresh(kind) as url:
        db = Database.connect(url or f"sqlite:///{home}/resume.db")
        migrate.ensure_schema(db)
        try:
            yield Shelf(db)
        finally:
            db.close()


def _pages(count: int, seed: int) -> list[Page]:
    """Pages of which every second one repeats the keys of the one before, changed."""
    chance = random.Random(seed)
    start = datetime(2024, 1, 1)
    pages: list[Page] = []
    for number in range(count + 1):
        isbns = [f"978{(number // 2) * PAGE_ROWS + n:010d}" for n in range(PAGE_ROWS)]
        chance.shuffle(isbns)
        pages.append(
            [
                {
                    "isbn": isbn,
                    "title": f"A book of many words, the {n}th of its page — édition {number}",
                    "price": round(chance.uniform(1, 99), 2),
                    "stock": chance.randrange(500),
                    "url": f"https://shop.example/books/{isbn}/index.html?from=list&page={number}",
                    "seen": start + timedelta(seconds=number),
                }
                for n, isbn in enumerate(isbns)
            ]
        )
    return pages


def _ratios(taken: dict[str, list[float]]) -> dict[str, Ratio]:
    ours = taken["writer"]
    faster = tuple(his / own for his, own in zip(taken["rows"], ours, strict=True))
    longer = tuple(own / his for his, own in zip(taken["hand"], ours, strict=True))
    return {"rows": Ratio(faster), "hand": Ratio(longer)}


def _judge(ratios: dict[str, dict[str, Ratio]]) -> int:
    """1 if the writer misses a bar on MariaDB; SQLite has no round trips to save."""
    one = ratios.get("mariadb")
    if one is None:
        return 0
    good = median(one["rows"].values) >= FASTER and median(one["hand"].values) <= SLOWER
    print(f"The bars are {FASTER} and {SLOWER} on MariaDB: {'met' if good else 'missed'}.")
    return 0 if good else 1


def _write(directory: Path, ratios: dict[str, dict[str, Ratio]]) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    lines = {
        kind: {
            "times_the_rows_of_one_statement_per_row": one["rows"].rounded(),
            "times_as_long_as_hand_written_sql": one["hand"].rounded(),
        }
        for kind, one in ratios.items()
    }
    bars = {"rows": FASTER, "hand": SLOWER, "page_rows": PAGE_ROWS}
    result = {"measured_on": circumstances(), "bars": bars, "ratios": lines}
    (directory / "writer.json").write_text(json.dumps(result, indent=1) + "\n", "utf-8")


def _options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="writer.py", description=__doc__)
    add = parser.add_argument
    add("--pages", type=int, default=200, help="pages of each turn (default 200)")
    add("--runs", type=int, default=7, help="rounds (default 7)")
    add("--database", choices=DATABASES, action="append", help="only this one")
    add("--quick", action="store_true", help="few rounds; writes no result")
    add("--output", type=Path, help="directory for the result (default benchmarks/results)")
    options = parser.parse_args(arguments)
    if options.quick:
        options.pages, options.runs = 50, 3
    whole = options.database is None and not options.quick
    options.output = options.output or (RESULTS if whole else None)
    options.database = options.database or list(DATABASES)
    return options


if __name__ == "__main__":
    sys.exit(main())
