"""Many processes that upsert the same few keys, and an oracle that knows what must be left.

``python -m tests.store.hotkeys`` reads one JSON object (:class:`Orders`) and prints
another. It forks into writers; each stores pages of random keys in random order, with
fields of its own and shared ones, and notes what it stored last. Two tables are written in
each transaction:

- ``hot``: every writer has a column of its own, so the last value it stored must be there;
- ``newest``: guarded by ``newer_by``, so the highest number of all writers must be there.
"""

from __future__ import annotations

import json
import os
import random
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scrapy_resume.exceptions import StoreUnavailable
from scrapy_resume.store import checkpoints
from scrapy_resume.store.engine import Database
from scrapy_resume.store.items import ItemTable, ItemWriter, Row
from scrapy_resume.store.items import batch as itembatch
from scrapy_resume.store.items.sending import Sender

TABLES = {
    "hot": ItemTable("hot", ["k"]),
    "newest": ItemTable("newest", ["k"], newer_by="seq"),
}
STRIDE = 64  # numbers of one writer are so far apart, so that no two writers share one


@dataclass(frozen=True)
class Orders:
    """What to do.

    *mixed*: the items of a page differ in their fields. *counted*: the key is a second
    index beside an id. *without*: a safeguard to do without, ``sorting`` or ``locking``.
    """

    url: str
    seconds: float
    writers: int = 8
    keys: int = 2000
    page: int = 100
    mixed: bool = True
    counted: bool = False
    without: str = ""
    seed: int = 1


@dataclass
class Told:
    """What one writer stored, or all of them together."""

    pages: int = 0
    rows: int = 0
    given_up: int = 0
    repeats: Counter[str] = field(default_factory=Counter)
    own: dict[str, int] = field(default_factory=dict)
    newest: dict[str, int] = field(default_factory=dict)


def create(db: Database, orders: Orders) -> None:
    """Make the tables."""
    exact = "" if db.dialect == "sqlite" else "CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
    counted = "INTEGER PRIMARY KEY" + " AUTO_INCREMENT" * (db.dialect != "sqlite")
    key = f"k VARCHAR(20) {exact} NOT NULL"
    key = f"id {counted}, {key} UNIQUE" if orders.counted else f"{key} PRIMARY KEY"
    own = ", ".join(f"w{n} BIGINT" for n in range(orders.writers))
    with db.transaction() as conn:
        for table, columns in (("hot", own), ("newest", "seq BIGINT, writer INTEGER")):
            conn.exec_driver_sql(f"CREATE TABLE {table} ({key}, {columns}, note VARCHAR(50),"
                                 " more INTEGER)")  # fmt: skip


class Writer:
    """One process."""

    def __init__(self, orders: Orders, number: int) -> None:
        self._orders, self._number = orders, number
        self._random = random.Random(orders.seed * 1000 + number)
        self._db = Database.connect(orders.url)
        self._writer = ItemWriter(self._db, TABLES.values())
        self._last = 0
        self.told = Told()

    def work(self) -> Told:
        deadline = time.monotonic() + self._orders.seconds
        while time.monotonic() < deadline:
            self._store(self._page())
        self._db.close()
        return self.told

    def _page(self) -> list[tuple[str, int]]:
        """Keys with their numbers, some keys more than once."""
        numbers = range(self._orders.keys)
        keys = self._random.choices(numbers, k=self._orders.page)
        return [(f"k{key:05}", self._next()) for key in keys]

    def _next(self) -> int:
        now = time.time_ns() // 1000 * STRIDE
        self._last = max(now, self._last + STRIDE) // STRIDE * STRIDE + self._number
        return self._last

    def _store(self, page: Sequence[tuple[str, int]]) -> None:
        rows = [row for key, number in page for row in self._rows(key, number)]
        told = self.told
        try:
            result = checkpoints.store_rows(self._db, rows, writer=self._writer)
        except StoreUnavailable as error:
            told.given_up += 1
            told.repeats.update(error.repeats)
            return
        told.pages += 1
        told.rows += len(rows)
        told.repeats.update(result.repeats)
        for key, number in page:
            told.own[key] = told.newest[key] = number  # they grow within a writer

    def _rows(self, key: str, number: int) -> Iterator[Row]:
        shared = self._shared(number) if self._orders.mixed else {"note": "n", "more": 1}
        own = {"k": key, f"w{self._number}": number, **shared}
        yield Row("hot", (key,), own)
        yield Row("newest", (key,), {"k": key, "seq": number, "writer": self._number, **shared})

    def _shared(self, number: int) -> dict[str, Any]:
        fields = {"note": f"n{number}", "more": number % 1000}
        return {name: value for name, value in fields.items() if self._random.random() < 0.5}


def run(orders: Orders) -> tuple[list[Told], Told]:
    """Fork into the writers; what each of them stored, and all of them together."""
    with tempfile.TemporaryDirectory() as name:
        files = [Path(name) / str(number) for number in range(orders.writers)]
        pids = [_fork(orders, number, file) for number, file in enumerate(files)]
        codes = [os.waitpid(pid, 0)[1] for pid in pids]
        if any(codes):
            raise SystemExit(f"writers failed: {codes}")
        each = [Told(**json.loads(file.read_text())) for file in files]
    return each, _together(each)


def _fork(orders: Orders, number: int, told: Path) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        _do_without(orders.without)
        told.write_text(json.dumps(vars(Writer(orders, number).work())))
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _do_without(safeguard: str) -> None:
    if safeguard == "sorting":
        assert itembatch._sorted
        itembatch._sorted = lambda entries: entries
    if safeguard == "locking":
        assert Sender._lock
        Sender._lock = lambda self, entries: list(entries)


def _together(each: Sequence[Told]) -> Told:
    every = Told()
    for told in each:
        every.pages += told.pages
        every.rows += told.rows
        every.given_up += told.given_up
        every.repeats.update(told.repeats)
        for key, number in told.newest.items():
            every.newest[key] = max(number, every.newest.get(key, 0))
    return every


def lost(db: Database, each: Sequence[Told], every: Told) -> list[str]:
    """Every key whose row is not what the writers stored last."""
    with db.read() as conn:
        hot = {row.k: row._mapping for row in conn.exec_driver_sql("SELECT * FROM hot")}
        newest = {row.k: row for row in conn.exec_driver_sql("SELECT k, seq, writer FROM newest")}
    found = [
        f"{key}: writer {n} stored {number}, the table has {hot[key][f'w{n}']}"
        for n, told in enumerate(each)
        for key, number in told.own.items()
        if key not in hot or hot[key][f"w{n}"] != number
    ]
    for key, number in every.newest.items():
        row = newest.get(key)
        if row is None or (row.seq, row.writer) != (number, number % STRIDE):
            found.append(f"{key}: the newest is {number}, the table has {row}")
    return found


def main() -> None:
    orders = Orders(**json.load(sys.stdin))
    db = Database.connect(orders.url)
    create(db, orders)
    begun = time.monotonic()
    db.close()
    each, every = run(orders)
    seconds = time.monotonic() - begun
    missing = lost(db, each, every)
    db.close()
    print(json.dumps({
        "seconds": round(seconds, 1), "pages": every.pages, "rows": every.rows,
        "rows_per_second": round(every.rows / seconds), "keys": len(every.newest),
        "repeats": every.repeats, "given_up": every.given_up, "lost": missing[:10],
        "lost_count": len(missing),
    }))  # fmt: skip


if __name__ == "__main__":
    main()
