"""The rules for values as the reference page has them, each tried on SQLite and MariaDB."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest

from scrapy_resume.itemrows import ItemRows
from scrapy_resume.store import migrate
from scrapy_resume.store.engine import Database
from scrapy_resume.store.items import ItemTable, ItemWriter
from tests.docs.pages import ROOT, rows

NAMES = {
    "date": date, "datetime": datetime, "time": time, "timedelta": timedelta,
    "timezone": timezone, "Decimal": Decimal,
}  # fmt: skip
REFUSED = "refused: "
COUNTED = " (counted)"
_CODE = re.compile(r"`([^`]+)`")


@dataclass(frozen=True)
class Rule:
    """One row of the page: a column, the values, and what is stored or why nothing is."""

    column: str
    values: list[str]
    stored: str
    everywhere: bool

    @property
    def refusal(self) -> str | None:
        return self.stored.removeprefix(REFUSED) if self.stored.startswith(REFUSED) else None

    @property
    def counted(self) -> bool:
        return self.stored.endswith(COUNTED)

    @property
    def expected(self) -> Any:
        return evaluated(_CODE.findall(self.stored)[0])


def rules() -> list[Rule]:
    page = (ROOT / "docs/reference/values.md").read_text()
    return [
        Rule(_CODE.findall(column)[0], _CODE.findall(values), stored, column.endswith("`"))
        for column, values, stored in rows(page)
    ]


def evaluated(expression: str) -> Any:
    return eval(expression, dict(NAMES))


def plain(value: Any) -> Any:
    """*value* as it is compared: numbers as numbers, dates as ISO text."""
    if isinstance(value, timedelta):
        return (datetime(2024, 1, 1) + value).time().isoformat()
    if isinstance(value, datetime):
        text = value.isoformat(" ")
        return text[:-3] if value.microsecond and not value.microsecond % 1000 else text
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return float(value)
    return bytes(value) if isinstance(value, (bytearray, memoryview)) else value


@pytest.fixture(scope="module", params=["sqlite", "mariadb"])
def db(request: pytest.FixtureRequest, tmp_path_factory: Any) -> Iterator[Database]:
    """A database of each kind, shared by the rules."""
    url = f"sqlite:///{tmp_path_factory.mktemp('values') / 'resume.db'}"
    if request.param == "mariadb":
        server = request.getfixturevalue("mariadb")
        server.execute("CREATE DATABASE value_rules CHARACTER SET utf8mb4")
        url = server.url("value_rules")
    made = Database.connect(url)
    migrate.ensure_schema(made)
    yield made
    made.close()
    if request.param == "mariadb":
        server.execute("DROP DATABASE value_rules")


def test_the_page_has_rules_of_every_kind() -> None:
    found = rules()
    assert len(found) > 60
    assert sum(rule.refusal is not None for rule in found) > 30
    assert sum(rule.counted for rule in found) >= 4


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: f"{rule.column}-{rule.values[0]}")
def test_every_value_is_stored_as_the_page_says(db: Database, rule: Rule) -> None:
    if db.dialect == "sqlite" and not rule.everywhere:
        return  # it has no such type
    table = ItemTable("one", ["k"])
    items = ItemRows(SimpleNamespace(name="values", item_table=table))
    with db.transaction() as conn:
        conn.exec_driver_sql("DROP TABLE IF EXISTS one")
        conn.exec_driver_sql(
            f"CREATE TABLE one (k INTEGER NOT NULL PRIMARY KEY, v {rule.column} NULL)"
        )
    for key, expression in enumerate(rule.values):
        value = evaluated(expression)
        reason, coerced = None, 0
        try:
            row = items.row({"k": key, "v": value})
        except (TypeError, ValueError) as error:
            reason = str(error)
        else:
            writer = ItemWriter(db, [table])
            written = db.run(lambda conn, w=writer, r=row: w.write(conn, [r], now=db.now(conn)))
            coerced = written.coerced
            if written.rejected:
                (rejection,) = written.rejected
                assert rejection.column == "v"
                reason = rejection.error
        if rule.refusal is not None:
            assert reason is not None and rule.refusal in reason, expression
            continue
        assert reason is None, expression
        assert bool(coerced) is rule.counted, expression
        with db.read() as conn:
            stored = conn.exec_driver_sql(f"SELECT v FROM one WHERE k = {key}").scalar()
        assert plain(stored) == plain(rule.expected), expression
        assert isinstance(stored, (str, bytes)) == isinstance(rule.expected, (str, bytes)) or (
            isinstance(stored, (date, timedelta))
        )
