"""Keys: which row an item meets, and that it never meets another one."""

from __future__ import annotations

import json

import pytest

from tests.acceptance.harness import Bench
from tests.acceptance.shelf import Shelf
from tests.acceptance.test_res import ONE_BY_ONE
from tests.acceptance.tiers import rarely
from tests.services import MariaDB

NULLABLE = """\
CREATE TABLE offer (
    site VARCHAR(20) {exact} NOT NULL, ext_id VARCHAR(20) {exact}, title VARCHAR(50),
    UNIQUE (site, ext_id)
)
"""

OFFERS = """\
TABLE = ItemTable("offer", key=["site", "ext_id"])
PAGES = {
    n: [
        {"site": "a", "ext_id": f"{n}-{PASS}" if n == 99 else f"{n}", "title": f"pass {PASS}"},
        {"site": "a", "ext_id": None, "title": "no id"},
        {"site": "a", "title": "no field"},
    ]
    for n in range(1, 9)
}
"""


def test_key_1_none_in_a_unique_column(bench: Bench) -> None:
    shelf = Shelf(bench, OFFERS)
    shelf.sql(NULLABLE)
    refused = shelf.crawl()
    assert refused.finish_reason == "resume_refused"
    (error,) = refused.said("ERROR")
    assert "offer" in error and "ext_id" in error and "NOT NULL" in error
    assert bench.site.requests == []
    bench.settings["RESUME_ITEM_CHECKS"] = "nullable_key=warn"
    bench.crawl_killed("commit.before:7", **ONE_BY_ONE)
    assert bench.watermark == 6
    for number in (1, 2, 3):
        crawl = shelf.crawl(number)
        assert any("ext_id" in line for line in crawl.said("WARNING"))
        assert shelf.count("offer") == 8
        assert bench.task["verdict"] == "complete_with_rejects"
        mine = [row for row in bench.quarantine if row["task_id"] == bench.task["id"]]
        assert [row["page"] for row in mine] == [page for page in range(1, 9) for _ in range(2)]
        assert all("ext_id" in row["error"] for row in mine)
    assert shelf.sql("SELECT DISTINCT title FROM offer") == [("pass 3",)]


ALIKE = """\
PAGES = {
    1: [{"key": "dQw4w9", "n": 1}, {"key": "dqW4W9", "n": 2}, {"key": "x", "n": 3}],
    2: [{"key": "DQW4W9", "n": 4}, {"key": "X", "n": 5}],
}
"""


def test_key_2_keys_that_differ_in_case_only(bench: Bench) -> None:
    shelf = Shelf(bench, ALIKE)
    shelf.crawl()
    stored = {key: json.loads(payload)["n"] for key, payload in bench.items.items()}
    assert stored == {"dQw4w9": 1, "dqW4W9": 2, "x": 3, "DQW4W9": 4, "X": 5}
    assert bench.task["verdict"] == "complete"


@pytest.mark.parametrize("exact", [True, False])
def test_key_2_a_table_of_the_users_own(bench: Bench, exact: bool) -> None:
    shelf = Shelf(bench, ALIKE + 'TABLE = ItemTable("video", key=["key"])\n')
    loose = "{exact}" if exact else "COLLATE NOCASE" if shelf.is_sqlite else ""
    shelf.sql(f"CREATE TABLE video (`key` VARCHAR(20) {loose} NOT NULL PRIMARY KEY, n INTEGER)")
    crawl = shelf.crawl()
    warned = [line for line in crawl.said("WARNING") if "video" in line and "key" in line]
    assert bool(warned) is not exact
    if exact:
        expected = [("DQW4W9", 4), ("X", 5), ("dQw4w9", 1), ("dqW4W9", 2), ("x", 3)]
        assert sorted(shelf.sql("SELECT `key`, n FROM video")) == expected
    else:
        assert any("collation" in line for line in warned)


SPELLINGS = """\
PAGES = {
    1: [{"key": "tea", "n": 1}],
    2: [{"key": "caf\\u00e9", "n": 2}],
    3: [{"key": "cafe\\u0301", "n": 3 + 10 * PASS, "text": "e\\u0301"}],
}
"""


@pytest.mark.parametrize("own", [False, True], ids=["default", "own"])
@pytest.mark.parametrize("normalize", [False, True], ids=["as-it-comes", "nfc"])
def test_key_3_one_word_in_two_spellings(bench: Bench, own: bool, normalize: bool) -> None:
    table = 'TABLE = ItemTable("word", key=["key"])\n' if own else ""
    shelf = Shelf(bench, SPELLINGS + table)
    loose = "COLLATE NOCASE" if shelf.is_sqlite else "CHARACTER SET utf8mb4"
    key = loose if normalize else "{exact}"  # once normalised, the collation does not matter
    shelf.sql(
        f"CREATE TABLE word (`key` VARCHAR(20) {key} NOT NULL PRIMARY KEY, n INTEGER,"
        " text VARCHAR(20) {exact})"
    )
    for number in (1, 2):
        shelf.crawl(number, RESUME_NORMALIZE_KEYS=normalize)
        words = {"tea": (1, None), "caf\u00e9": (2, None)}
        # Keys are normalised, the other fields are left alone.
        words["caf\u00e9" if normalize else "cafe\u0301"] = (3 + 10 * number, "e\u0301")
        if own:
            found = {key: (n, text) for key, n, text in shelf.sql("SELECT * FROM word")}
        else:
            payloads = {key: json.loads(text) for key, text in bench.items.items()}
            found = {key: (one["n"], one.get("text")) for key, one in payloads.items()}
        assert found == words
        assert bench.task["verdict"] == "complete"


TWO_INDEXES = """\
CREATE TABLE product (
    sku VARCHAR(20) {exact} NOT NULL, slug VARCHAR(20) {exact} NOT NULL, n INTEGER,
    UNIQUE (sku), UNIQUE (slug)
)
"""

TAKEN = """\
TABLE = ItemTable("product", key=["sku"])
PAGES = {
    1: [{"sku": "S1", "slug": "p", "n": 1}, {"sku": "S2", "slug": "q", "n": 2}],
    2: [{"sku": "S3", "slug": "p", "n": 3}, {"sku": "S4", "slug": "r", "n": 4}],
    3: [{"sku": "S1", "slug": "q", "n": 5}, {"sku": "S2", "slug": "q", "n": 6}],
}
"""


@pytest.mark.parametrize("pages", [1, 20])
def test_key_4_a_second_unique_index_catches_no_upsert(bench: Bench, pages: int) -> None:
    shelf = Shelf(bench, TAKEN)
    shelf.sql(TWO_INDEXES)
    refused = shelf.crawl()
    assert refused.finish_reason == "resume_refused"
    (error,) = refused.said("ERROR")
    assert "product" in error and "slug" in error
    checks = "second_unique_index=warn"
    crawl = shelf.crawl(RESUME_ITEM_CHECKS=checks, RESUME_COMMIT_PAGES=pages)
    assert any("slug" in line for line in crawl.said("WARNING"))
    expected = [("S1", "p", 1), ("S2", "q", 6), ("S4", "r", 4)]
    assert sorted(shelf.sql("SELECT sku, slug, n FROM product")) == expected
    assert sorted((page, key) for page, key, _, _ in shelf.rejects()) == [(2, "S3"), (3, "S1")]
    assert bench.task["verdict"] == "complete_with_rejects"


RENAMED = """\
TABLE = ItemTable("product", key=["sku"])
PAGES = {
    1: [{"sku": "1", "slug": "a" if PASS == 1 else "b", "n": PASS}],
    2: [{"sku": "2" if PASS > 1 else "1", "slug": "a", "n": PASS}],
    3: [{"sku": "3", "slug": "b", "n": PASS}] if PASS == 3 else [],
}
"""


def test_sql_2_the_key_decides_not_the_index_found_first(bench: Bench) -> None:
    shelf = Shelf(bench, RENAMED)
    shelf.sql(TWO_INDEXES.replace("UNIQUE (sku), UNIQUE (slug)", "UNIQUE (slug), UNIQUE (sku)"))
    bench.settings["RESUME_ITEM_CHECKS"] = "second_unique_index=warn"
    tables = {
        1: [("1", "a", 1)],
        2: [("1", "b", 2), ("2", "a", 2)],
        3: [("1", "b", 3), ("2", "a", 3)],
    }
    for number, table in tables.items():
        shelf.crawl(number)
        assert sorted(shelf.sql("SELECT sku, slug, n FROM product")) == table
    assert [(page, key) for page, key, _, _ in shelf.rejects()] == [(3, "3")]


REPEATED = """\
PRICES = {
    1: [("k001", 1), ("k002", 2)],
    2: [("k011", 3)],
    3: [("k021", 5), ("k022", 1), ("k021", 7), ("k022", 2), ("k023", 4), ("k022", 3)],
    4: [("k021", 9), ("k031", 1)] if PASS == 2 else [("k031", 1)],
}
PAGES = {n: [{"key": key, "price": price} for key, price in page] for n, page in PRICES.items()}
"""
PRICE = "CREATE TABLE price (`key` VARCHAR(20) {exact} NOT NULL PRIMARY KEY, price INTEGER)"


@pytest.mark.parametrize(
    ("pages", "own"),
    [
        rarely(1, True, id="1-own"),
        pytest.param(1, False, id="1-default"),
        pytest.param(20, True, id="20-own"),
        rarely(20, False, id="20-default"),
    ],
)
def test_key_5_the_same_key_twice_on_one_page(bench: Bench, own: bool, pages: int) -> None:
    table = 'TABLE = ItemTable("price", key=["key"])\n' if own else ""
    shelf = Shelf(bench, REPEATED + table)
    shelf.sql(PRICE)
    expected = {"k001": 1, "k002": 2, "k011": 3, "k021": 7, "k022": 3, "k023": 4, "k031": 1}
    for number, more in ((1, {}), (2, {"k021": 9})):
        crawl = shelf.crawl(number, RESUME_COMMIT_PAGES=pages)
        payloads = {key: json.loads(text)["price"] for key, text in bench.items.items()}
        found = dict(shelf.sql("SELECT * FROM price")) if own else payloads
        assert found == {**expected, **more}
        # k021 of page 4 is another page's: one row stored by each.
        assert crawl.stats["item_scraped_count"] == 10 + len(more)
        assert crawl.stats["resume/items/written"] == 7 + len(more)
        assert crawl.stats["resume/items/repeated"] == 3
        assert bench.task["verdict"] == "complete"


ORDERS = """\
from itertools import permutations

FIELDS = [
    lambda key: {"key": key + "1", "title": "a"},
    lambda key: {"key": key + "2", "title": "b", "price": 2},
    lambda key: {"title": "c", "key": key + "3"},
]
PAGES = {
    n: [make(f"{n}-") for make in order] for n, order in enumerate(permutations(FIELDS), 1)
}
TABLE = ItemTable("thing", key=["key"])
"""
THING = """\
CREATE TABLE thing (
    `key` VARCHAR(20) {exact} NOT NULL PRIMARY KEY, title VARCHAR(20), price INTEGER DEFAULT 5
)
"""


@pytest.mark.parametrize("pages", [1, rarely(2), 100])
def test_key_6_items_with_different_fields_on_one_page(bench: Bench, pages: int) -> None:
    shelf = Shelf(bench, ORDERS)
    shelf.sql(THING)
    shelf.sql("INSERT INTO thing VALUES ('1-1', 'old', 8), ('2-2', 'old', 8), ('3-3', 'old', 8)")
    shelf.crawl(RESUME_COMMIT_PAGES=pages)
    # A field that an item does not have keeps what is there; only a new row gets the default.
    old = {"1-1": ("a", 8), "2-2": ("b", 2), "3-3": ("c", 8)}
    new = {f"{n}-{m}": one for n in range(1, 7) for m, one in ((1, ("a", 5)), (2, ("b", 2)),
                                                               (3, ("c", 5)))}  # fmt: skip
    stored = {key: (title, price) for key, title, price in shelf.sql("SELECT * FROM thing")}
    assert stored == {**new, **old}
    assert bench.task["verdict"] == "complete"


CLEARED = """\
class Thing(scrapy.Item):
    key, title, price = scrapy.Field(), scrapy.Field(), scrapy.Field()


@dataclasses.dataclass
class Data:
    key: str
    title: str
    price: int | None = None


@dataclasses.dataclass
class Unset:
    key: str
    title: str = dataclasses.field(init=False)
    price: int | None = dataclasses.field(init=False)


def unset(key):
    made = Unset(key)
    if PASS == 1:
        made.title, made.price = "t", 10
    return made


price = 10 if PASS == 1 else None
PAGES = {1: [
    {"key": "dict", "title": "t", "price": price},
    Thing(key="item", title="t", price=price),
    Data("dataclass", "t", price),
    {"key": "dict without", **({"title": "t", "price": 10} if PASS == 1 else {})},
    Thing(key="item without", **({"title": "t", "price": 10} if PASS == 1 else {})),
    unset("dataclass without"),
]}
"""


@pytest.mark.parametrize("leave_out", ["unset", "defaults"])
def test_key_7_a_field_set_back_to_none_on_purpose(bench: Bench, leave_out: str) -> None:
    shelf = Shelf(bench, CLEARED + 'TABLE = ItemTable("thing", key=["key"])\n')
    shelf.sql(THING)
    bench.settings["RESUME_LEAVE_OUT"] = leave_out
    shelf.crawl(1)
    keys = ["dict", "item", "dataclass"]
    without = [f"{key} without" for key in keys]
    query = "SELECT `key`, title, price FROM thing"
    assert set(shelf.sql(query)) == {(key, "t", 10) for key in keys + without}
    shelf.crawl(2)
    expected = {(key, "t", None) for key in keys} | {(key, "t", 10) for key in without}
    if leave_out == "defaults":  # None is what the dataclass has anyway
        expected = expected - {("dataclass", "t", None)} | {("dataclass", "t", 10)}
    assert set(shelf.sql(query)) == expected


CUT = """\
TABLE = ItemTable("link", key=["url"])
LONG = "x" * 50
PAGES = {
    1: [{"url": LONG + "1", "n": 1}, {"url": "short", "n": 2}],
    2: [{"url": LONG + "2", "n": 3}, {"url": LONG, "n": 4}],
}
"""


def test_key_8_keys_are_not_cut_to_the_column_length(bench: Bench, mariadb: MariaDB) -> None:
    shelf = Shelf(bench, CUT)
    ((mode,),) = mariadb.execute("SELECT @@GLOBAL.sql_mode")
    mariadb.execute("SET GLOBAL sql_mode = ''")
    try:
        shelf.sql("CREATE TABLE link (url VARCHAR(50) {exact} NOT NULL PRIMARY KEY, n INTEGER)")
        shelf.crawl()
    finally:
        mariadb.execute("SET GLOBAL sql_mode = %s", mode)
    assert sorted(shelf.sql("SELECT url, n FROM link")) == [("short", 2), ("x" * 50, 4)]
    assert [(page, column) for page, _, column, _ in shelf.rejects()] == [(1, "url"), (2, "url")]
    assert [row["item_key"] for row in bench.quarantine] == ["x" * 50 + "1", "x" * 50 + "2"]
    assert bench.task["verdict"] == "complete_with_rejects"


def test_key_8_an_index_on_the_beginning_of_a_key(mariadb_bench: Bench) -> None:
    shelf = Shelf(mariadb_bench, CUT)
    shelf.sql("CREATE TABLE link (url VARCHAR(90) {exact} NOT NULL, n INTEGER, UNIQUE (url(50)))")
    crawl = shelf.crawl()
    assert crawl.finish_reason == "resume_refused"
    (error,) = crawl.said("ERROR")
    assert "link" in error and "url(50)" in error
    assert shelf.count("link") == 0
