"""Items of every kind become the same row, and what was never set stays away."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any
from uuid import UUID

import attrs
import pydantic
import pytest
import scrapy

from scrapy_resume.itemrows import ItemRows
from scrapy_resume.refuseditem import RefusedItem
from scrapy_resume.settings import ResumeSettings
from scrapy_resume.store.items import ItemTable, Row

BOOK = ItemTable("book", key=["isbn"])


class Colour(str, Enum):
    RED = "red"


class Spider:
    """What the rows need of a spider."""

    name = "books"

    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)


def rows(
    table: Any = BOOK, *, settings: dict[str, Any] | None = None, **attributes: Any
) -> ItemRows:
    """The rows of a spider with *table*; None: the default one."""
    ours = None if settings is None else ResumeSettings.from_settings(settings, {})
    return ItemRows(Spider(item_table=table, **attributes), ours)


def values(item: Any, **options: Any) -> dict[str, Any]:
    """The columns of *item* in a table of the user's."""
    return rows(**options).row(item).values


# Kinds of items. All hold the same book; each has its own way of saying so.


class ItemBook(scrapy.Item):
    isbn, price, tags, colour, url, seen, note, author = (scrapy.Field() for _ in range(8))


@dataclass
class Author:
    name: str
    born: int


@dataclass
class DataBook:
    isbn: str
    price: Decimal
    tags: list[str]
    colour: Colour
    url: str
    seen: datetime
    note: str | None
    author: Author


@dataclass(frozen=True, slots=True)
class FrozenBook:
    isbn: str
    price: Decimal
    tags: tuple[str, ...]
    colour: Colour
    url: str
    seen: datetime
    note: str | None
    author: Author


@attrs.define
class AttrsAuthor:
    born: int
    name: str


@attrs.define
class AttrsBook:
    isbn: str
    price: Decimal
    tags: list[str]
    colour: str
    url: str
    seen: datetime
    note: str | None
    author: AttrsAuthor


@attrs.frozen
class FrozenAttrsBook(AttrsBook):
    pass


class ModelAuthor(pydantic.BaseModel):
    name: str
    born: int


class ModelBook(pydantic.BaseModel):
    isbn: str = pydantic.Field(alias="ISBN-13")
    price: Decimal
    tags: set[str]
    colour: Colour
    url: pydantic.HttpUrl
    seen: datetime
    note: str | None
    author: ModelAuthor


SEEN = datetime(2024, 1, 1, 12, tzinfo=timezone(timedelta(hours=2)))
PLAIN: dict[str, Any] = {
    "isbn": "i1",
    "price": Decimal("9.50"),
    "tags": ["new"],
    "colour": Colour.RED,
    "url": "https://example.com/é",
    "seen": SEEN,
    "note": None,
    "author": {"name": "José", "born": 1970},
}
BOOKS = [
    PLAIN,
    dict(reversed(PLAIN.items())),
    ItemBook(PLAIN),
    DataBook(**{**PLAIN, "author": Author("José", 1970)}),
    FrozenBook(**{**PLAIN, "tags": ("new",), "author": Author("José", 1970)}),
    AttrsBook(**{**PLAIN, "colour": "red", "author": AttrsAuthor(1970, "José")}),
    FrozenAttrsBook(**{**PLAIN, "author": AttrsAuthor(1970, "José")}),
]


@pytest.mark.parametrize("book", BOOKS, ids=lambda book: type(book).__name__)
def test_val_6_every_kind_of_item_gives_the_same_row(book: Any) -> None:
    assert rows().row(book) == Row(
        "book",
        ("i1",),
        {
            "isbn": "i1",
            "price": Decimal("9.50"),
            "tags": '["new"]',
            "colour": "red",
            "url": "https://example.com/é",
            "seen": datetime(2024, 1, 1, 10),
            "note": None,
            "author": '{"born":1970,"name":"José"}',
        },
    )
    assert type(rows().row(book).values["colour"]) is str


def test_val_6_a_pydantic_model_gives_its_fields_by_their_own_names() -> None:
    book = ModelBook(**{"ISBN-13": "i1", **{k: v for k, v in PLAIN.items() if k != "isbn"}})
    expected = {**rows().row(PLAIN).values, "url": str(book.url)}
    assert values(book) == expected
    assert type(values(book)["url"]) is str


@pytest.mark.parametrize("book", BOOKS, ids=lambda book: type(book).__name__)
def test_val_6_the_default_table_gets_the_same_payload(book: Any) -> None:
    row = rows(None, item_key=("isbn", "colour")).row(book)
    assert row.key == ("books", '["i1", "red"]')
    assert json.loads(row.values["payload"]) == {
        **PLAIN, "price": "9.50", "colour": "red", "seen": "2024-01-01T12:00:00+02:00",
    }  # fmt: skip
    assert "José" in row.values["payload"]


@pytest.mark.parametrize("table", [BOOK, None])
def test_an_item_is_copied_as_it_arrives(table: ItemTable | None) -> None:
    item = {"isbn": "i1", "tags": ["a"], "raw": {"b": [1]}}
    row = rows(table, item_key="isbn").row(item)
    before = dict(row.values)
    item["tags"].append("b")
    item["raw"]["b"].append(2)
    item["isbn"] = "i2"
    assert row.values == before
    assert "b" not in json.dumps(json.loads(before["tags"])) if table else True


def test_val_6_no_item_and_no_table_is_changed() -> None:
    item = {"isbn": "i1", "tags": {"a"}, "seen": SEEN}
    rows().row(item)
    assert item == {"isbn": "i1", "tags": {"a"}, "seen": SEEN}
    with pytest.raises(TypeError, match="NoneType, which is no item"):
        rows().row(None)


# What was never set


@dataclass
class Sparse:
    isbn: str = field()
    price: Decimal | None = None
    stock: int = 0
    tags: list[str] = field(default_factory=list)
    late: str = field(init=False)


@attrs.define
class AttrsSparse:
    isbn: str
    price: Decimal | None = None
    stock: int = 0
    tags: list[str] = attrs.field(factory=list)
    late: str = attrs.field(init=False)


class ModelSparse(pydantic.BaseModel):
    isbn: str
    price: Decimal | None = None
    stock: int = 0
    tags: list[str] = []


@dataclass(slots=True)
class Slotted:
    isbn: str
    late: str = field(init=False)


def test_key_7_fields_that_are_missing_stay_away_and_none_is_null() -> None:
    assert values({"isbn": "i"}) == {"isbn": "i"}
    assert values({"isbn": "i", "price": None}) == {"isbn": "i", "price": None}
    assert values(ItemBook(isbn="i")) == {"isbn": "i"}
    assert values(ItemBook(isbn="i", price=None)) == {"isbn": "i", "price": None}
    assert values(Slotted("i")) == {"isbn": "i"}


ALL = {"isbn": "i", "price": None, "stock": 0, "tags": "[]"}


@pytest.mark.parametrize(
    ("item", "unset", "defaults", "nothing"),
    [
        (Sparse("i"), ALL, {"isbn": "i"}, ALL),
        (AttrsSparse("i"), ALL, {"isbn": "i"}, ALL),
        (ModelSparse(isbn="i"), {"isbn": "i", "stock": 0, "tags": "[]"}, {"isbn": "i"}, ALL),
        (ModelSparse(isbn="i", price=None), ALL, {"isbn": "i", "price": None}, ALL),
        (Sparse("i", stock=3), {**ALL, "stock": 3}, {"isbn": "i", "stock": 3}, {**ALL, "stock": 3}),
        (Sparse("i", stock=False), {**ALL, "stock": False}, {"isbn": "i", "stock": False},
         {**ALL, "stock": False}),
        (AttrsSparse("i", tags=["a"]), {**ALL, "tags": '["a"]'}, {"isbn": "i", "tags": '["a"]'},
         {**ALL, "tags": '["a"]'}),
        ({"isbn": "i", "price": None}, *[{"isbn": "i", "price": None}] * 3),
        (ItemBook(isbn="i", price=None), *[{"isbn": "i", "price": None}] * 3),
    ],
)  # fmt: skip
def test_key_7_what_counts_as_unset_is_a_setting(
    item: Any, unset: Any, defaults: Any, nothing: Any
) -> None:
    assert repr(sorted(values(item).items())) == repr(sorted(unset.items()))  # False is not 0
    for setting, expected in (("unset", unset), ("defaults", defaults), ("nothing", nothing)):
        assert values(item, settings={"RESUME_LEAVE_OUT": setting}) == expected, setting


def test_a_field_set_after_the_start_counts_as_given() -> None:
    item = ModelSparse(isbn="i")
    item.price = None
    late = Sparse("i")
    late.late = "now"
    assert "price" in values(item)
    assert values(late)["late"] == "now"


def test_what_a_model_takes_beyond_its_fields_is_not_lost() -> None:
    class Open(pydantic.BaseModel, extra="allow"):
        isbn: str

    assert values(Open(isbn="i", rating=5)) == {"isbn": "i", "rating": 5}
    assert json.loads(rows(None).row(Open(isbn="i", rating=5)).values["payload"])["rating"] == 5


# Values


class Float64(float):
    """As numpy's: a float that is another type, and shows itself differently."""

    def __repr__(self) -> str:
        return f"np.float64({float(self)})"


class Scalar:
    """As numpy's and pandas' other numbers and arrays: known by ``tolist``."""

    def __init__(self, value: Any, dtype: str = "int64") -> None:
        self.value, self.dtype = value, dtype

    def tolist(self) -> Any:
        return self.value


class NaT(datetime):
    """As pandas': a datetime that is not equal to itself."""

    def __eq__(self, other: object) -> bool:
        return False

    def __ne__(self, other: object) -> bool:
        return True

    __hash__ = datetime.__hash__


class Stamp(datetime):
    """As pandas' Timestamp."""


class Text(str):
    """As lxml's results: text that is another type."""


DEEP: list[Any] = []
for _ in range(100_000):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (["x"], '["x"]'), (["x", "é"], '["x","é"]'), ([], "[]"), ({}, "{}"),
        ({"b": 1, "a": [{"c": None}]}, '{"a":[{"c":null}],"b":1}'),
        ({"b", "a"}, '["a","b"]'), (frozenset([2, 10, 1]), "[1,10,2]"), (("x",), '["x"]'),
        ([{"a": 1}], '[{"a":1}]'),
        (Author("é", 1), '{"born":1,"name":"é"}'), ([Author("é", 1)], '[{"born":1,"name":"é"}]'),
        ({"k": Colour.RED}, '{"k":"red"}'),
        ([Decimal("1.50"), date(2024, 1, 2), time(1, 2), timedelta(minutes=1)],
        '["1.50","2024-01-02","01:02:00",60.0]'),
        ({1: "a", "b": 2, None: 3}, '{"1":"a","b":2,"null":3}'),
        ([{2: {1: 0, "x": {3}}}], '[{"2":{"1":0,"x":[3]}}]'),
        (Colour.RED, "red"), (UUID(int=5), "00000000-0000-0000-0000-000000000005"),
        (PurePosixPath("/a"), "/a"),
        (bytearray(b"ab"), b"ab"), (memoryview(b"ab"), b"ab"), (b"ab", b"ab"),
        (timedelta(1), timedelta(1)), (time(1), time(1)),
        (Float64(0.5), 0.5), (Scalar(5), 5), (Scalar([1, 2]), "[1,2]"),
        ({"a": Scalar(5), "b": Float64(0.5)}, '{"a":5,"b":0.5}'),
        (Stamp(2024, 1, 2), datetime(2024, 1, 2)), (Text("é"), "é"),
        ({"a": Text("é")}, '{"a":"é"}'),
        (MappingProxyType({"a": 1}), '{"a":1}'), ([MappingProxyType({"a": 1})], '[{"a":1}]'),
        ({1: Colour.RED, "a": 0}, '{"1":"red","a":0}'),
        (Stamp(2024, 1, 2, tzinfo=timezone.utc), datetime(2024, 1, 2)), (2**70, 2**70),
        (True, True),
        (datetime(2024, 1, 2, tzinfo=timezone(timedelta(hours=-5))), datetime(2024, 1, 2, 5)),
    ],
)  # fmt: skip
def test_val_4_values_become_plain_ones(value: Any, stored: Any) -> None:
    found = values({"isbn": "i", "v": value})["v"]
    assert found == stored
    assert type(found) is type(stored)


def test_an_infinity_goes_on_to_the_rule_of_its_column() -> None:
    found = values({"isbn": "i", "v": Float64("inf")})["v"]
    assert type(found) is float


SELF: list[Any] = []
SELF.append(SELF)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (object(), "object values cannot be stored"), ([float("nan")], "NaN or an infinity"),
        ({"a": float("inf")}, "NaN or an infinity"),
        (pydantic.SecretStr("s3cret"), "SecretStr values cannot be stored"),
        ([b"a"], "bytes values cannot be stored"),
        (NaT(2024, 1, 1), "not a time"), ([NaT(2024, 1, 1)], "not a time"), (SELF, "ircular"),
        (DEEP, "nested too deep"),
        (datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=2))), "no such date in UTC"),
        ([Decimal("NaN")], "finite"),
        (Scalar(1, "datetime64[ns]"), "Scalar values cannot be stored"),
        (["\ud83d"], "half of a surrogate"),
        ({(1, 2): 3}, "a key of a dict is tuple"), ([10**5000], "digits"),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
@pytest.mark.parametrize("table", [BOOK, None])
def test_what_cannot_be_stored_names_its_field(
    table: ItemTable | None, value: Any, why: str
) -> None:
    if table is None and isinstance(value, datetime) and value.tzinfo:
        return  # JSON keeps the zone
    with pytest.raises(RefusedItem, match=f"field 'v': .*{why}") as caught:
        rows(table, item_key="isbn").row({"isbn": "i", "v": value})
    found = caught.value
    assert (found.error_class, found.column) == ("Unfit", "v")
    assert found.table == ("resume_item" if table is None else "book")
    assert "s3cret" not in f"{found}{found.value}"


def test_the_name_of_a_field_is_text() -> None:
    with pytest.raises(RefusedItem, match="the name of a field is 5"):
        rows().row({"isbn": "i", 5: "x"})


# Keys


@pytest.mark.parametrize("table", [BOOK, None])
def test_a_row_without_its_key_is_refused(table: ItemTable | None) -> None:
    for item in ({"title": "x"}, {"isbn": None}):
        with pytest.raises(RefusedItem, match="the key field 'isbn' is missing or None") as caught:
            rows(table, item_key="isbn").row(item)
        assert (caught.value.error_class, caught.value.column) == ("NoKey", "isbn")


@pytest.mark.parametrize(("setting", "same"), [(True, True), (False, False), (None, False)])
@pytest.mark.parametrize("table", [BOOK, None])
def test_key_3_the_spelling_of_a_key_is_composed_if_wanted(
    table: ItemTable | None, setting: bool | None, same: bool
) -> None:
    settings = None if setting is None else {"RESUME_NORMALIZE_KEYS": setting}
    maker = rows(table, settings=settings, item_key="isbn")
    composed = maker.row({"isbn": "caf\u00e9", "title": "e\u0301"})
    apart = maker.row({"isbn": "cafe\u0301", "title": "e\u0301"})
    assert (composed.key == apart.key) is same
    assert "e\u0301" in (apart.values.get("title") or apart.values["payload"])
    if table is not None:
        assert (apart.values["isbn"] == "caf\u00e9") is same


def test_key_3_a_key_that_is_no_text_stays_as_it_is() -> None:
    maker = rows(ItemTable("t", ["isbn", "n"]), settings={"RESUME_NORMALIZE_KEYS": "1"})
    assert maker.row({"isbn": "e\u0301", "n": 5}).key == ("é", 5)


def test_a_key_made_by_the_spider_is_composed_too() -> None:
    maker = rows(
        None, settings={"RESUME_NORMALIZE_KEYS": "1"}, make_item_key=lambda item: "e\u0301"
    )
    assert maker.row({"a": 1}).key == ("books", "é")


def test_val_2_the_key_of_an_item_that_cannot_be_stored_is_known() -> None:
    bad = {"isbn": "i1", "shop": Colour.RED, "v": [float("nan")]}
    assert rows(ItemTable("book", ["isbn", "shop"])).key_text(bad) == "i1 / red"
    assert rows(None, item_key="isbn").key_text(bad) == "i1"
    with pytest.raises(ValueError, match="NaN"):
        rows(None).key_text(bad)
    good = {"a": 1}
    assert rows(None).key_text(good) == rows(None).row(good).key[1]


def test_the_default_table_leaves_out_the_same_fields() -> None:
    row = rows(None).row(ModelSparse(isbn="i"))
    assert row == rows(None).row({"isbn": "i", "stock": 0, "tags": []})


class Size(Enum):
    SMALL = "s"
    FIVE = 5


def test_an_enum_in_a_key_is_its_value() -> None:
    for size, key in ((Size.SMALL, "s"), (Size.FIVE, "5"), (Colour.RED, "red")):
        row = rows(None, item_key="size").row({"size": size})
        assert row.key == ("books", key)
        assert type(row.key[1]) is str
        assert values({"isbn": size})["isbn"] == size.value
