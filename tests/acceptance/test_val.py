"""Values: what an item may hold, and what becomes of what no table can hold."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from tests.acceptance.harness import Bench
from tests.acceptance.shelf import Shelf
from tests.acceptance.test_res import ONE_BY_ONE
from tests.services import MariaDB

TEXTS = {
    "coffee": "咖啡 😎", "sign": "™ €", "accent": "é", "right to left": "שלום עולם \u202eabc\u202c",
    "flag": "🏴\u200d☠️", "composed": "e\u0301", "quotes": "'\"`\\%s %(a)s :b ?\0\n\u2028",
}  # fmt: skip

TITLES = f"""\
TEXTS = {TEXTS!r}
PAGES = {{1: [{{"key": key, "title": title}} for key, title in TEXTS.items()]}}
"""


def test_val_1_every_text_into_the_product_s_own_tables(bench: Bench) -> None:
    """The test server's default is latin1."""
    shelf = Shelf(bench, TITLES)
    if not shelf.is_sqlite:
        assert shelf.sql("SELECT @@character_set_database") == [("latin1",)]
    shelf.crawl()
    payloads = {key: json.loads(payload)["title"] for key, payload in bench.items.items()}
    assert payloads == TEXTS
    stored = dict(shelf.sql(f"SELECT item_key, HEX(payload) FROM {bench.prefix}item"))
    for key, title in TEXTS.items():
        text = json.dumps({"key": key, "title": title}, ensure_ascii=False, separators=(",", ":"))
        assert bytes.fromhex(stored[key]) == text.encode()
    assert bench.task["verdict"] == "complete"


def test_val_1_text_that_a_narrow_column_cannot_hold(
    mariadb_bench: Bench, mariadb: MariaDB
) -> None:
    bench = mariadb_bench
    shelf = Shelf(bench, TITLES + 'TABLE = ItemTable("narrow", key=["key"])\n')
    shelf.sql(
        "CREATE TABLE narrow (`key` VARCHAR(20) {exact} NOT NULL PRIMARY KEY,"
        " title VARCHAR(20) CHARACTER SET utf8mb3)"
    )
    ((mode,),) = mariadb.execute("SELECT @@GLOBAL.sql_mode")
    mariadb.execute("SET GLOBAL sql_mode = ''")
    try:
        crawl = shelf.crawl()
    finally:
        mariadb.execute("SET GLOBAL sql_mode = %s", mode)
    warned, *refused = [line for line in crawl.said("WARNING") if "narrow" in line]
    assert "title" in warned and "utf8mb3" in warned
    assert len(refused) == 2 and all("title" in line and "refused" in line for line in refused)
    narrow = {key: text for key, text in TEXTS.items() if max(text) <= "\uffff"}
    assert dict(shelf.sql("SELECT `key`, title FROM narrow")) == narrow
    assert sorted(shelf.rejects()) == [
        (1, key, "title", TEXTS[key]) for key in sorted(TEXTS.keys() - narrow)
    ]
    assert bench.task["verdict"] == "complete_with_rejects"


NUMBERS = """\
class Float64(float):
    "What numpy and pandas hand out."


ODD = {
    "nan": float("nan"), "inf": float("inf"), "minus inf": float("-inf"), "text": "NaN",
    "huge": json.loads("1e400"), "numpy": Float64("nan"), "decimal": Decimal("NaN"),
    "signalling": Decimal("sNaN"), "infinite": Decimal("-Infinity"), "inf text": "Infinity",
}
FINE = {"float": 1.5, "int": 2, "numpy fine": Float64(2.5), "exact": Decimal("3.25")}
PAGES = {
    n: [{"key": key, column: value} for key, value in {**FINE, **ODD}.items()]
    for n, column in enumerate(["f", "d", "e"], 1)
}
PAGES[4] = [{"key": "nested", "t": {"deep": [float("nan")]}}, {"key": "nested fine", "t": [1.5]}]
"""


@pytest.mark.parametrize("own", [True, False], ids=["own", "default"])
def test_val_2_nan_and_infinity(bench: Bench, own: bool) -> None:
    table = 'TABLE = ItemTable("number", key=["key"])\n' if own else ""
    shelf = Shelf(bench, NUMBERS + table)
    shelf.sql(
        "CREATE TABLE number (`key` VARCHAR(20) NOT NULL PRIMARY KEY, f FLOAT, d DOUBLE,"
        " e DECIMAL(10, 2), t TEXT)"
    )
    crawl = shelf.crawl()
    odd = ["nan", "inf", "minus inf", "huge", "numpy", "decimal", "signalling", "infinite"]
    if own:
        odd += ["text", "inf text"]  # in a number's column; as JSON it is just text
        fine = {("float", 1.5), ("int", 2), ("numpy fine", 2.5), ("exact", 3.25)}
        for column in "fde":
            rows = shelf.sql(f"SELECT `key`, {column} FROM number WHERE `key` NOT LIKE 'nested%'")
            assert set(rows) == fine, column
        assert shelf.sql("SELECT `key`, t FROM number WHERE t IS NOT NULL") == [
            ("nested fine", "[1.5]")
        ]
    else:
        assert set(bench.items) == {
            "float", "int", "numpy fine", "exact", "text", "inf text", "nested fine"
        }  # fmt: skip
    expected = Counter([(page, key) for page in (1, 2, 3) for key in odd] + [(4, "nested")])
    assert Counter((row["page"], row["item_key"]) for row in bench.quarantine) == expected
    assert crawl.stats["resume/items/quarantined"] == expected.total()
    assert bench.task["verdict"] == "complete_with_rejects"
    assert bench.watermark == 4


ONE_BAD = """\
TABLE = ItemTable("book", key=["key"])
BAD = {
    "title": "x" * 300, "small": 300, "year": -1, "note": None, "shop": 7, "price": -5,
    "plain": "☃",
}
PAGES = {
    n: [
        {"key": f"{column}-{m}", "note": "n", column: value if m == 4 else fine(column)}
        for m in range(10)
    ]
    for n, (column, value) in enumerate(BAD.items(), 1)
    for fine in [lambda name: {"title": "t", "note": "n", "plain": "p"}.get(name, 1)]
}
"""
BOOK = """\
CREATE TABLE book (
    `key` VARCHAR(20) {exact} NOT NULL PRIMARY KEY, title VARCHAR(255), small TINYINT UNSIGNED,
    year SMALLINT UNSIGNED, note VARCHAR(20) NOT NULL, shop INTEGER, price INTEGER,
    plain VARCHAR(20) {latin}, CHECK (price >= 0), FOREIGN KEY (shop) REFERENCES shop (id)
)
"""


def test_val_3_one_bad_row_in_a_good_page(bench: Bench, mariadb: MariaDB) -> None:
    shelf = Shelf(bench, ONE_BAD)
    shelf.sql("CREATE TABLE shop (id INTEGER NOT NULL PRIMARY KEY)")
    shelf.sql("INSERT INTO shop VALUES (1)")
    shelf.sql(BOOK.replace("{latin}", "" if shelf.is_sqlite else "CHARACTER SET latin1"))
    before = inserts(mariadb)
    crawl = shelf.crawl(**ONE_BY_ONE)
    statements = inserts(mariadb) - before
    bad = ["title", "small", "year", "note", "shop", "price"]
    bad += [] if shelf.is_sqlite else ["plain"]  # it has no narrow columns
    rows = shelf.sql("SELECT `key` FROM book")
    expected = {f"{c}-{m}" for c in [*bad, "plain"] for m in range(10)} - {f"{c}-4" for c in bad}
    assert {key for (key,) in rows} == expected
    assert sorted(shelf.rejects(), key=lambda row: row[0])[:4] == [
        (1, "title-4", "title", "x" * 59 + "…"),
        (2, "small-4", "small", "300"),
        (3, "year-4", "year", "-1"),
        (4, "note-4", "note", None),
    ]
    # What only the table's own rules know is named by them.
    assert [(row["page"], row["item_key"]) for row in bench.quarantine] == [
        (page, f"{column}-4") for page, column in enumerate(bad, 1)
    ]
    assert all(row["kind"] == "row" and row["error"] for row in bench.quarantine)
    assert bench.task["verdict"] == "complete_with_rejects"
    assert (bench.watermark, bench.shard["quarantined_count"]) == (7, len(bad))
    assert bench.shard["written_count"] == 70 - len(bad) == crawl.stats["resume/items/written"]
    if not shelf.is_sqlite:  # one for each page's table, ten more where only the server knows
        assert statements <= 50
    assert not crawl.said("ERROR")


def inserts(mariadb: MariaDB) -> int:
    """How many INSERT statements the server has taken so far."""
    return int(mariadb.execute("SHOW GLOBAL STATUS LIKE 'Com_insert'")[0][1])


NESTED = """\
class Inner(scrapy.Item):
    b, a = scrapy.Field(), scrapy.Field()


@dataclasses.dataclass
class Part:
    name: str
    size: Decimal


TAGS = {
    "one": ["x"], "two": ["x", "y"], "none": [], "dict": {"b": 2, "a": 1}, "dicts": [{"a": 1}],
    "set": {"x"}, "tuple": ("x", 1), "item": Inner(b="é", a=None), "empty": {},
    "dataclass": [Part("ß", Decimal("1.50"))], "words": ["咖啡", "b\\"c"], "text": "x",
    "deep": {"at": datetime(2024, 1, 2, 3, 4, 5), "n": [True, None, 1.5]},
}
PAGES = {
    1: [{"key": key, "tags": tags} for key, tags in TAGS.items()],
    2: [{"key": key, "list": tags} for key, tags in TAGS.items() if key != "text"],
    3: [{"key": "number", "small": [1]}, {"key": "object", "tags": object()},
        {"key": "bad json", "list": "{"}, {"key": "fine", "small": 1}],
}
"""

AS_JSON = {
    "one": '["x"]', "two": '["x","y"]', "none": "[]", "dict": '{"a":1,"b":2}',
    "dicts": '[{"a":1}]', "set": '["x"]', "tuple": '["x",1]', "item": '{"a":null,"b":"é"}',
    "empty": "{}", "dataclass": '[{"name":"ß","size":"1.50"}]', "words": '["咖啡","b\\"c"]',
    "deep": '{"at":"2024-01-02T03:04:05","n":[true,null,1.5]}',
}  # fmt: skip


@pytest.mark.parametrize("json_type", ["TEXT", "JSON"])
def test_val_4_lists_and_dicts_in_plain_columns(bench: Bench, json_type: str) -> None:
    shelf = Shelf(bench, NESTED + 'TABLE = ItemTable("thing", key=["key"])\n')
    charset = "" if shelf.is_sqlite else " CHARACTER SET utf8mb4"
    shelf.sql(
        "CREATE TABLE thing (`key` VARCHAR(20) {exact} NOT NULL PRIMARY KEY,"
        f" tags TEXT{charset}, list {json_type}{charset * (json_type == 'TEXT')}, small INTEGER)"
    )
    crawl = shelf.crawl()
    rows = {key: (tags, listed) for key, tags, listed, _ in shelf.sql("SELECT * FROM thing")}
    expected: dict[str, Any] = {key: (text, text) for key, text in AS_JSON.items()}
    expected |= {"text": ("x", None), "fine": (None, None)}
    if json_type == "TEXT":
        expected["bad json"] = (None, "{")
    assert rows == expected
    refused = {"number": "small", "object": "tags"}
    refused |= {"bad json": "list"} if json_type == "JSON" else {}
    assert {row["item_key"] for row in bench.quarantine} == refused.keys()
    for row in bench.quarantine:
        column = refused[row["item_key"]]
        assert (row["page"], row["column_name"], row["item_table"]) == (3, column, "thing")
        kind = "item" if row["item_key"] == "object" else "row"  # no row can be made of an object
        assert (row["kind"], row["error_class"]) == (kind, "Unfit")
    assert bench.task["verdict"] == "complete_with_rejects"
    *said, verdict = [line for line in crawl.said("WARNING") if "[scrapy_resume" in line]
    columns = {line.partition("table thing, column ")[2].split(":")[0] for line in said}
    assert columns == set(refused.values()) and len(said) == len(columns)
    assert "complete_with_rejects" in verdict and "`scrapy resume why rows` lists them" in verdict
    assert crawl.said("Traceback") == crawl.said("ERROR") == []


DATES = """\
ZONE = timezone(timedelta(hours=2))
PUBLISHED = {
    "empty": "", "zero": "0000-00-00", "zero time": "0000-00-00 00:00:00", "no such": "2024-02-30",
    "zulu": "2024-01-01T10:00:00Z", "zone": "2024-01-01T10:00:00+02:00", "word": "yesterday",
    "iso": "2024-01-01 10:00:00", "date": "2024-01-01", "month": "2024-01-00", "none": None,
    "object": datetime(2024, 1, 1, 10, 0, 0, 123456), "micro": "2024-01-01T10:00:00.5",
    "zoned": datetime(2024, 1, 1, 10, tzinfo=ZONE), "day": date(2024, 1, 1), "number": 20240101,
    "short": "24-01-01",
}
PAGES = {
    1: [{"key": key, "moment": value} for key, value in PUBLISHED.items()],
    2: [{"key": key, "day": value} for key, value in PUBLISHED.items()],
    3: [{"key": "zeros", "n": PASS}],
}
TABLE = ItemTable("post", key=["key"])
"""

DATED = {
    "zulu": ("2024-01-01 10:00:00", "2024-01-01"),
    "zone": ("2024-01-01 08:00:00", "2024-01-01"),
    "iso": ("2024-01-01 10:00:00", "2024-01-01"),
    "date": ("2024-01-01 00:00:00", "2024-01-01"),
    "none": (None, None),
    "object": ("2024-01-01 10:00:00.123456", "2024-01-01"),
    "zoned": ("2024-01-01 08:00:00", "2024-01-01"),
    "day": ("2024-01-01 00:00:00", "2024-01-01"),
    "micro": ("2024-01-01 10:00:00.500000", "2024-01-01"),
}
NO_DATES = {"empty", "zero", "zero time", "no such", "word", "month", "number", "short"}
TIMES_CUT = 6  # of those above, in a column of dates


@pytest.mark.parametrize("strict", [True, False], ids=["strict", "lax"])
def test_val_5_dates_that_are_not_dates(bench: Bench, mariadb: MariaDB, strict: bool) -> None:
    shelf = Shelf(bench, DATES)
    shelf.sql(
        "CREATE TABLE post (`key` VARCHAR(20) {exact} NOT NULL PRIMARY KEY, moment DATETIME(6),"
        " day DATE, n INTEGER)"
    )
    ((mode,),) = mariadb.execute("SELECT @@GLOBAL.sql_mode")
    mariadb.execute("SET GLOBAL sql_mode = %s", "STRICT_TRANS_TABLES" if strict else "")
    zeros = "INSERT INTO post VALUES ('zeros', '0000-00-00 00:00:00', '0000-00-00', 0)"
    try:
        if shelf.is_sqlite:
            shelf.sql(zeros)
        else:  # the table held them before
            database = bench.database.engine.url.database
            mariadb.execute(zeros, database=database)
        bench.crawl_killed("commit.before:2", **ONE_BY_ONE)
        crawl = shelf.crawl()
    finally:
        mariadb.execute("SET GLOBAL sql_mode = %s", mode)
    text = "CAST(moment AS CHAR(30)), CAST(day AS CHAR(10))"
    rows = {
        key: (moment and moment.removesuffix(".000000"), day)
        for key, moment, day in shelf.sql(f"SELECT `key`, {text} FROM post")
    }
    assert rows.pop("zeros") == ("0000-00-00 00:00:00", "0000-00-00")
    assert rows == DATED
    assert shelf.sql("SELECT n FROM post WHERE `key` = 'zeros'") == [(1,)]
    refused = {(row["page"], row["item_key"]) for row in bench.quarantine}
    assert refused == {(page, key) for page in (1, 2) for key in NO_DATES}
    assert crawl.stats["resume/items/coerced"] == TIMES_CUT
    (said,) = [line for line in crawl.said("WARNING") if "left out of a date" in line]
    assert "post" in said and "day" in said
    assert {column for _, _, column, _ in shelf.rejects()} == {"moment", "day"}
    assert bench.task["verdict"] == "complete_with_rejects"
