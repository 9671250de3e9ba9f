"""Items of every kind, fields that the table does not have, and names that are hard to quote."""

from __future__ import annotations

import json

import pytest

from tests.acceptance.harness import Bench, wait_until
from tests.acceptance.shelf import SPIDER, Shelf
from tests.acceptance.test_res import ONE_BY_ONE
from tests.acceptance.tiers import rarely

KINDS = """\
from enum import Enum
from typing import Any

import attrs
import pydantic
from pydantic import BaseModel, ConfigDict, HttpUrl, computed_field


class Colour(Enum):
    RED = "red"


ROWS = [
    {"key": f"k{n}", "title": f"é {n}", "price": Decimal(n) / 4, "colour": "red",
     "url": "http://a.b/", "part": {"size": n, "unit": "kg"}, "stars": None}
    for n in range(9)
]
ROWS.append({"key": "k9", "title": "no more"})


class ScrapyItem(scrapy.Item):
    key, title, price, colour = (scrapy.Field() for _ in range(4))
    url, part, stars = (scrapy.Field() for _ in range(3))


@dataclasses.dataclass
class Part:
    size: int
    unit: str


@dataclasses.dataclass
class Data:
    key: str
    title: str
    price: Any = dataclasses.field(init=False)
    colour: Any = dataclasses.field(init=False)
    url: str = dataclasses.field(init=False)
    part: Part = dataclasses.field(init=False)
    stars: Any = dataclasses.field(init=False)


@dataclasses.dataclass(slots=True)
class Slots(Data):
    pass


@dataclasses.dataclass(frozen=True)
class Frozen:
    key: str
    title: str
    price: Decimal
    colour: Colour
    url: str
    part: Part
    stars: Any


@attrs.frozen
class Attrs:
    key: str
    title: str
    price: Decimal
    colour: Colour
    url: str
    part: Part
    stars: Any


class Model(BaseModel):
    class Part(BaseModel):
        size: int
        unit: str

    model_config = ConfigDict(populate_by_name=True, frozen=True)
    key: str
    title: str = pydantic.Field(alias="headline")
    price: Decimal | None = None
    colour: Colour | None = None
    url: HttpUrl | None = None
    part: Part | None = None
    stars: Any = None

    @computed_field
    def computed(self) -> str:
        return "not a field of the table"


def filled(cls, row):
    made = cls(row["key"], row["title"])
    for name, value in list(row.items())[2:]:
        setattr(made, name, value)
    if "part" in row:
        made.part = Part(**row["part"])
    return made


def objects(row):
    return {**row, "colour": Colour.RED, "part": Part(**row["part"])} if "part" in row else row


def renamed(row):
    return {{"title": "headline"}.get(name, name): value for name, value in row.items()}


MAKERS = {
    "dict": dict,
    "item": lambda row: ScrapyItem(row),
    "dataclass": lambda row: filled(Data, row),
    "slots": lambda row: filled(Slots, row),
    "frozen": lambda row: Frozen(**objects(row)),
    "attrs": lambda row: Attrs(**objects(row)),
    "pydantic": lambda row: Model(**renamed(row)),
}
ALWAYS_WHOLE = {"frozen", "attrs"}  # every field exists: the last row is left out
PAGES = {}
for n, (kind, make) in enumerate(MAKERS.items(), 1):
    rows = ROWS[:-1] if kind in ALWAYS_WHOLE else ROWS
    PAGES[n] = [make({**row, "key": f"{kind} {row['key']}"}) for row in rows]
"""

KIND = """\
CREATE TABLE kind (
    `key` VARCHAR(20) {exact} NOT NULL PRIMARY KEY, title VARCHAR(50) {exact},
    price DECIMAL(10, 2) DEFAULT 7, colour VARCHAR(10), url VARCHAR(50), part VARCHAR(50),
    stars INTEGER DEFAULT 5
)
"""


@pytest.mark.parametrize("own", [True, False], ids=["own", "default"])
def test_val_6_items_of_every_kind(bench: Bench, own: bool) -> None:
    shelf = Shelf(bench, KINDS + ('TABLE = ItemTable("kind", key=["key"])\n' if own else ""))
    shelf.sql(KIND)
    crawl = shelf.crawl()
    kinds = ["dict", "item", "dataclass", "slots", "frozen", "attrs", "pydantic"]
    whole = {"frozen", "attrs"}
    if own:
        part = '{{"size":{},"unit":"kg"}}'
        expected = {
            (f"{kind} k{n}", f"é {n}", n / 4, "red", "http://a.b/", part.format(n), None)
            for kind in kinds for n in range(9)
        }  # fmt: skip
        # Only the fields that an item has are written, so a new row gets the defaults.
        expected |= {
            (f"{kind} k9", "no more", 7, None, None, None, 5) for kind in kinds if kind not in whole
        }
        assert set(shelf.sql("SELECT * FROM kind")) == expected
    else:
        by_kind = {
            kind: {
                key.removeprefix(f"{kind} "): payload.replace(f"{kind} k", "k")
                for key, payload in bench.items.items() if key.startswith(f"{kind} ")
            }
            for kind in kinds
        }  # fmt: skip
        for kind in kinds:
            wanted = dict(by_kind["dict"])
            if kind in whole:
                del wanted["k9"]
            assert by_kind[kind] == wanted, kind
        assert json.loads(by_kind["dict"]["k3"])["price"] == "0.75"
    assert bench.task["verdict"] == "complete", crawl.tail


FORGETFUL = """\
class Forgetful:
    def process_item(self, item):
        return None if item["key"] == "k2" else item
"""


def test_val_6_a_pipeline_that_returns_none(bench: Bench) -> None:
    shelf = Shelf(
        bench,
        'PAGES = {1: [{"key": f"k{n}"} for n in range(4)], 2: [{"key": "k9"}]}\n' + FORGETFUL,
        settings='ITEM_PIPELINES = {"bench.given.Forgetful": 300}\n',
    )
    crawl = shelf.crawl()
    assert sorted(bench.items) == ["k0", "k1", "k3", "k9"]
    (row,) = bench.quarantine
    assert (row["page"], row["kind"]) == (1, "item")
    assert "a pipeline before this one returned None instead of the item" in row["error"]
    assert crawl.stats["resume/items/quarantined"] == 1
    assert bench.task["verdict"] == "complete_with_rejects"


NEW_FIELD = """\
AT = int(os.environ.get("BENCH_AT", 0))
NAME = os.environ.get("BENCH_FIELD", "rating")
PAGES = {
    n: [
        {"key": f"k{n}{m}", "title": "t", **({NAME: 5} if n > 1 and m == AT else {})}
        for m in range(6)
    ]
    for n in range(1, 4)
}
MODE = {"on_unknown_field": os.environ["BENCH_MODE"]} if os.environ.get("BENCH_MODE") else {}
TABLE = ItemTable("book", key=["key"], **MODE)
"""
PLAIN = "CREATE TABLE book (`key` VARCHAR(20) {exact} NOT NULL PRIMARY KEY, title VARCHAR(20))"


@pytest.mark.parametrize(
    ("field", "at"),
    [
        rarely("rating", 0, id="rating-0"),
        pytest.param("rating", 4, id="rating-4"),
        pytest.param("Title", 0, id="Title-0"),
        rarely("Title", 4, id="Title-4"),
    ],
)
def test_val_7_a_field_the_table_does_not_have(bench: Bench, at: int, field: str) -> None:
    shelf = Shelf(bench, NEW_FIELD)
    shelf.sql(PLAIN)
    bench.env |= {"BENCH_AT": str(at), "BENCH_FIELD": field}
    stopped = shelf.crawl(**ONE_BY_ONE)
    assert stopped.finish_reason != "finished" and stopped.code == 0
    (error,) = stopped.said("ERROR")
    assert "book" in error and field in error
    waiting = [shard["reason"] for shard in bench.shards if shard["status"] == "pending"]
    assert waiting and all("released: the crawl was stopped by: " in why for why in waiting)
    assert all("book" in why and field in why for why in waiting)
    if field == "Title":
        assert "title" in error.replace(field, "")  # which column it resembles
    assert (bench.watermark, shelf.count("book"), bench.quarantine) == (1, 6, [])
    bench.env["BENCH_MODE"] = "ignore"
    ignored = shelf.crawl(**ONE_BY_ONE)
    assert ignored.stats["resume/items/fields_ignored"] == 2
    said = [line for line in ignored.said("WARNING") if "book" in line and field in line]
    assert len(said) == 1
    assert (bench.task["verdict"], shelf.count("book"), bench.quarantine) == ("complete", 18, [])
    bench.env["BENCH_MODE"] = "quarantine"
    shelf.sql("DELETE FROM book")
    aside = shelf.crawl(**ONE_BY_ONE)
    assert shelf.rejects() == [(2, f"k2{at}", field, "5"), (3, f"k3{at}", field, "5")]
    assert aside.stats["resume/items/quarantined"] == 2
    assert (bench.task["verdict"], shelf.count("book")) == ("complete_with_rejects", 16)
    bench.env["BENCH_MODE"] = "stop"
    if field == "rating":  # the table is looked at again at every start
        shelf.sql("ALTER TABLE book ADD rating INTEGER")
        shelf.crawl(**ONE_BY_ONE)
        assert bench.task["verdict"] == "complete"
        assert shelf.sql("SELECT COUNT(rating) FROM book") == [(2,)]


def test_val_7_a_table_that_is_altered_during_the_run(bench: Bench) -> None:
    shelf = Shelf(bench, NEW_FIELD)
    shelf.sql(PLAIN)
    shelf.sql("ALTER TABLE book ADD rating INTEGER")
    held = bench.site.behave(page=3, hold=True)
    crawl = bench.start(**ONE_BY_ONE)
    wait_until(lambda: bench.watermark == 2)
    shelf.sql("ALTER TABLE book DROP COLUMN rating")
    shelf.sql("ALTER TABLE book ADD more INTEGER")
    held.release()
    crawl.wait()
    (error,) = crawl.said("ERROR")
    assert "book" in error and "rating" in error
    assert (bench.watermark, shelf.count("book")) == (2, 12)
    shelf.sql("ALTER TABLE book ADD rating INTEGER")
    shelf.crawl()
    assert (bench.task["verdict"], shelf.count("book")) == ("complete", 18)


NAMES = [
    "key", "rank", "a b", "price (usd)", "x`y", "c:d", "größe", "Upper", "group", "desc", "n" * 64,
    "order", "select", "a.b", "it's", 'say "x"', "?", "日本", "back\\slash", ":name", "%",
]  # fmt: skip

ODD_NAMES = f"""\
NAMES = {NAMES!r}
TABLE = ItemTable("order", key=["key", "rank"], newer_by="desc")
PAGES = {{
    n: [{{name: f"{{name}} {{n}} {{m}} {{PASS}}" if name not in ("key", "rank", "desc")
         else {{"key": f"k{{n}}", "rank": m, "desc": PASS}}[name] for name in NAMES}}
        for m in range(3)]
    for n in range(1, 4)
}}
"""


def test_val_8_reserved_words_and_odd_names(bench: Bench) -> None:
    spider = SPIDER.replace("name = 'rows'", "name = 'news:daily 1/2'")
    shelf = Shelf(bench, ODD_NAMES, spider=spider)
    quoted = ["`" + name.replace("`", "``") + "`" for name in NAMES[2:]]
    types = ["INTEGER" if name == "`desc`" else "VARCHAR(99) {exact}" for name in quoted]
    columns = ", ".join(f"{name} {kind}" for name, kind in zip(quoted, types, strict=True))
    shelf.sql(
        "CREATE TABLE `order` (`key` VARCHAR(20) {exact} NOT NULL, `rank` INTEGER NOT NULL,"
        f" {columns}, UNIQUE (`key`, `rank`))"
    )
    bench.crawl_killed("commit.before:2", "news:daily 1/2", **ONE_BY_ONE)
    for number in (1, 2):
        bench.env["BENCH_PASS"] = str(number)
        bench.crawl("news:daily 1/2", **ONE_BY_ONE)
        assert bench.task["verdict"] == "complete"
        assert bench.task["name"] == "news:daily 1/2"
        assert shelf.sql("SELECT * FROM `order` ORDER BY `key`, `rank`") == [
            tuple(
                {"key": f"k{n}", "rank": m, "desc": number}.get(name, f"{name} {n} {m} {number}")
                for name in NAMES
            )
            for n in range(1, 4) for m in range(3)
        ]  # fmt: skip


BY_CLASS = """\
@dataclasses.dataclass
class Offer:
    sku: str
    shop: int


@dataclasses.dataclass
class Cheap(Offer):
    pass


PAGES = {
    n: [Offer(f"o{n}", n), Cheap(f"c{n}", n), {"id": n, "name": f"shop {n}"}] for n in range(1, 4)
}
"""


def test_tables_by_class_from_the_environment(bench: Bench) -> None:
    shelf = Shelf(bench, BY_CLASS)
    bench.env["RESUME_ITEM_TABLES"] = json.dumps(
        {"bench.given.Offer": {"name": "offer", "key": ["sku"]}, "*": {"name": "shop", "key": "id"}}
    )
    shelf.sql("CREATE TABLE shop (id INT NOT NULL PRIMARY KEY, name VARCHAR(20))")
    shelf.sql(
        "CREATE TABLE offer (sku VARCHAR(20) {exact} NOT NULL PRIMARY KEY, shop INT NOT NULL,"
        " FOREIGN KEY (shop) REFERENCES shop (id))"
    )
    shelf.crawl()
    assert shelf.sql("SELECT id, name FROM shop") == [(n, f"shop {n}") for n in range(1, 4)]
    expected = [(f"{kind}{n}", n) for kind in "co" for n in range(1, 4)]
    assert shelf.sql("SELECT sku, shop FROM offer ORDER BY sku") == expected
    assert (bench.task["verdict"], bench.items) == ("complete", {})
    shelf.sql("DROP TABLE offer")
    refused = shelf.crawl()
    assert refused.finish_reason == "resume_refused"
    (error,) = refused.said("ERROR")
    check = bench.run_scrapy(
        "resume", "db", "check", "-s", f"RESUME_TABLE_PREFIX={bench.prefix}"
    ).wait()
    assert check.code == 1
    (said,) = [line for line in check.log.splitlines() if "table offer" in line]
    assert said.removesuffix(" [spider rows]") in error and "CREATE TABLE" in said
