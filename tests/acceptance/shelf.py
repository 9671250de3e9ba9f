"""Crawls whose pages hold any items, into a table of any shape, on each database alike.

The items of a test are Python text, so that they may be objects of any kind; what is
stored and what was refused is read back in a form that is the same on every database.
"""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from textwrap import dedent
from typing import Any

from tests.acceptance.harness import Bench, Crawl

SPIDER = """\
from bench.given import *


class Rows(Numbered):
    name = 'rows'
    shard_pages = 100
    last_page = max(PAGES)
    item_table = TABLE

    def parse(self, response):
        yield from PAGES[number_of(response)]
"""

GIVEN = """\
import dataclasses
import json
import os
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal

import scrapy

from scrapy_resume import ItemTable

PASS = int(os.environ["BENCH_PASS"])
TABLE = None
"""

EXACT = "CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin"
IN_ORDER: dict[str, Any] = {"RESUME_PAGES_IN_FLIGHT": 1}


class Shelf:
    """A bench whose spider yields what a test says, and the tables that it fills."""

    def __init__(
        self, bench: Bench, given: str, *, spider: str = SPIDER, settings: str = ""
    ) -> None:
        """*given* sets ``PAGES``, and ``TABLE`` unless items go to the default one."""
        self.bench = bench
        bench.settings = {**IN_ORDER, **bench.settings}
        bench.env["BENCH_PASS"] = "1"
        bench.write(spider, given=GIVEN + dedent(given), settings=settings)

    @property
    def is_sqlite(self) -> bool:
        return self.bench.database.dialect == "sqlite"

    def crawl(self, number: int = 1, **given: Any) -> Crawl:
        """Crawl to the end of the process; the items may ask which ``PASS`` it is."""
        self.bench.env["BENCH_PASS"] = str(number)
        return self.bench.crawl(**given)

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        """Run a statement, with the words put in that differ by database."""
        statement = statement.replace("{exact}", "" if self.is_sqlite else EXACT)
        with self.bench.database.transaction() as conn:
            text = statement if self.is_sqlite else statement.replace("%", "%%")
            result = conn.exec_driver_sql(text)
            return [tuple(map(plain, row)) for row in result] if result.returns_rows else []

    def count(self, table: str) -> int:
        return int(self.sql(f"SELECT COUNT(*) FROM `{table}`")[0][0])

    def rejects(self) -> list[tuple[Any, ...]]:
        """Page, key, column and value of what was set aside, in the order it came."""
        names = ("page", "item_key", "column_name", "value")
        return [tuple(row[name] for name in names) for row in self.bench.quarantine]


def plain(value: Any) -> Any:
    """*value* as it is compared: numbers as numbers, times as text."""
    if isinstance(value, (Decimal, float)):
        exact = Decimal(str(value))
        return int(exact) if exact == exact.to_integral_value() else float(exact)
    if isinstance(value, datetime):
        return value.isoformat(" ")
    if isinstance(value, date):
        return value.isoformat()
    return value
