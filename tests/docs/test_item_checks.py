"""The checks of item tables as the page has them: each is provoked, and mended as it says."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from scrapy_resume.store import migrate
from scrapy_resume.store.engine import Database
from scrapy_resume.store.items import ItemTable, inspect, rowerrors
from scrapy_resume.store.items.findings import CODES, FIXED
from tests.docs.pages import rows, section
from tests.services import MariaDB

PAGE = "docs/how-to/item-tables.md"
EXACT = "CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin"
SKU = f"sku varchar(20) {EXACT} NOT NULL"
WHOLE = f"CREATE TABLE product ({SKU} PRIMARY KEY, price int)"

# What makes each check find something in the table `product` with the key `sku`.
PROVOKED: dict[str, tuple[str, ...]] = {
    "missing_table": (),
    "missing_column": (f"CREATE TABLE product ({SKU} PRIMARY KEY)",),
    "no_key": (WHOLE,),
    "view": (WHOLE.replace("product", "thing"), "CREATE VIEW product AS SELECT * FROM thing"),
    "generated_column": (WHOLE.replace("price int", "price int AS (1) STORED"),),
    "no_unique_index": (f"CREATE TABLE product ({SKU}, price int)",),
    "nullable_key": (f"CREATE TABLE product ({SKU}, price int, UNIQUE (sku))".replace(
        "NOT NULL", "NULL"),),
    "second_unique_index": (WHOLE.replace("price int", "price int, slug varchar(20),"
                                          " UNIQUE product_slug (slug)"),),
    "prefix_index": (f"CREATE TABLE product ({SKU}, price int, UNIQUE sku (sku(10)))",),
    "engine": (WHOLE + " ENGINE=MyISAM",),
    "collation": (WHOLE.replace("utf8mb4_nopad_bin", "utf8mb4_general_ci"),),
    "padding": (WHOLE.replace("utf8mb4_nopad_bin", "utf8mb4_bin"),),
    "charset": (WHOLE.replace("price int", "price int, title varchar(50) CHARACTER SET latin1"),),
    "small_id": (f"CREATE TABLE product (id int AUTO_INCREMENT PRIMARY KEY, {SKU} UNIQUE,"
                 " price int)",),
    "trigger": (WHOLE, "CREATE TRIGGER product_log BEFORE INSERT ON product FOR EACH ROW"
                       " SET NEW.price = 1"),
    "strict_mode": (WHOLE,),
}  # fmt: skip


def documented() -> dict[str, list[str]]:
    """Default, message and mend of each check."""
    found = rows(section(PAGE, "What is looked at before the first request"))
    return {cells[0].strip("`"): cells[1:] for cells in found}


def test_every_check_is_documented_with_what_it_does() -> None:
    does = {code: action + (", always" * (code in FIXED)) for code, action in CODES.items()}
    assert {code: cells[0] for code, cells in documented().items()} == does


@pytest.fixture
def db(mariadb: MariaDB, mariadb_name: str) -> Iterator[Database]:
    made = Database.connect(mariadb.url(mariadb_name))
    migrate.ensure_schema(made)
    yield made
    made.close()


@contextmanager
def lax(mariadb: MariaDB, code: str) -> Iterator[None]:
    ((mode,),) = mariadb.execute("SELECT @@GLOBAL.sql_mode")
    if code == "strict_mode":
        mariadb.execute("SET GLOBAL sql_mode = 'NO_ENGINE_SUBSTITUTION'")
    try:
        yield
    finally:
        mariadb.execute("SET GLOBAL sql_mode = %s", mode)


@pytest.mark.parametrize("code", CODES)
def test_every_message_and_its_mend_are_as_documented(
    db: Database, mariadb: MariaDB, code: str
) -> None:
    _, message, mend = documented()[code]
    table = ItemTable("product", () if code == "no_key" else ["sku"], update=["price"])
    with lax(mariadb, code):
        for statement in PROVOKED[code]:
            execute(db, statement)
        (found,) = [one for one in inspect(db, [table]) if one.code == code]
        assert message == f"`{found.text}`"
        assert mend.startswith("`") is bool(found.mend)
        assert not found.mend or mend.strip("`") == found.mend.strip("`")
        if found.mend:
            execute(db, found.mend)
            assert [one for one in inspect(db, [table]) if one.code == code] == []


def execute(db: Database, statement: str) -> Any:
    with db.transaction() as conn:
        return conn.exec_driver_sql(statement)


def test_every_reason_of_a_refusal_is_documented() -> None:
    known = {*rowerrors._NUMBERS.values(), *rowerrors._TEXTS.values()}
    known |= {"NoKey", "UnknownField", "KeyTooLong", "RowTooLarge"}
    reasons = {cells[0].strip("`") for cells in rows(section(PAGE, "Rows that are refused"))}
    assert reasons == known
