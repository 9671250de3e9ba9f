"""Which table an item goes to, and in how many ways that can be said."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from sqlalchemy import Column, Index, Integer, MetaData, String, Table, UniqueConstraint
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from scrapy_resume.exceptions import ConfigurationError
from scrapy_resume.itemrows import ItemRows
from scrapy_resume.settings import ResumeSettings
from scrapy_resume.store.items import ItemTable


class Base(DeclarativeBase):
    pass


class MappedBook(Base):
    """Its attributes have other names than its columns."""

    __tablename__ = "book"
    number: Mapped[str] = mapped_column("isbn", String(20), primary_key=True)
    shop: Mapped[str] = mapped_column(String(20), primary_key=True)
    seen_at: Mapped[str] = mapped_column("seen")


class Counted(Base):
    """The usual id that counts itself, and the key beside it."""

    __tablename__ = "counted"
    id: Mapped[int] = mapped_column(primary_key=True)
    isbn: Mapped[str] = mapped_column(String(20), unique=True)


FILM = Table(
    "film", MetaData(), Column("a", Integer), Column("b", Integer), UniqueConstraint("a", "b")
)
SHOP = Table(
    "shop", MetaData(), Column("a", String(9), nullable=False), Index("one", "a", unique=True)
)
IDS = Table("ids", MetaData(), Column("id", Integer, primary_key=True), Column("x", Integer))
NATURAL = Table(
    "natural", MetaData(), Column("sku", String(9), primary_key=True), Column("slug", unique=True)
)
OTHER = Table("t", MetaData(), Column("id", Integer, primary_key=True), schema="elsewhere")


@pytest.mark.parametrize(
    ("given", "name", "key"),
    [
        (MappedBook, "book", ("isbn", "shop")),
        (MappedBook.__table__, "book", ("isbn", "shop")),
        (Counted, "counted", ("isbn",)),
        (FILM, "film", ("a", "b")),
        (SHOP, "shop", ("a",)),
        (IDS, "ids", ("id",)),
        (NATURAL, "natural", ("sku",)),
        ("plain", "plain", ()),
    ],
)
def test_a_sqlalchemy_table_knows_its_name_and_key(given: Any, name: str, key: Any) -> None:
    table = ItemTable(given)
    assert (table.name, table.key) == (name, key)
    assert type(table.name) is str
    assert all(type(part) is str for part in table.key)


def test_columns_may_be_given_themselves() -> None:
    table = ItemTable(
        MappedBook, key=MappedBook.number, update=[MappedBook.seen_at, "shop"],
        newer_by=MappedBook.seen_at,
    )  # fmt: skip
    assert table == ItemTable("book", ["isbn"], ["seen", "shop"], "seen")
    assert ItemTable("book", "isbn", update=MappedBook.seen_at).update == ("seen",)
    assert ItemTable("book", "isbn", update="seen").update == ("seen",)
    assert ItemTable("book", "isbn", update=[]).update == ()


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: ItemTable(OTHER), "belongs to the schema elsewhere"),
        (lambda: ItemTable(int), "the name of an ItemTable is <class 'int'>"),
        (lambda: ItemTable(""), "an empty name"),
        (lambda: ItemTable("t", 5), "key of an ItemTable is 5"),
        (lambda: ItemTable("t", ["a", None]), "key of an ItemTable is"),
        (lambda: ItemTable("t", update=[1]), "update of an ItemTable is"),
        (lambda: ItemTable("t", "a", on_unknown_field="drop"), "on_unknown_field .* is 'drop'"),
    ],
)
def test_what_cannot_be_a_table_is_refused(make: Any, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        make()


# Declared by the spider, or by the setting


@dataclass
class Book:
    isbn: str


@dataclass
class RareBook(Book):
    pass


@dataclass
class Film:
    a: int = 1
    b: int = 2


class Spider:
    name = "books"
    item_table: Any = None


def rows(declared: Any, setting: Any = None) -> ItemRows:
    spider = Spider()
    spider.item_table = declared
    given = {} if setting is None else {"RESUME_ITEM_TABLES": setting}
    return ItemRows(spider, ResumeSettings.from_settings(given, {}))


HERE = f"{__name__}.Book"
BOOK = ItemTable("book", "isbn")


@pytest.mark.parametrize(
    "declared",
    [BOOK, {Book: BOOK}, {HERE: BOOK}, {"*": BOOK}, {Book: {"name": "book", "key": ["isbn"]}}],
)
def test_a_spider_says_it_in_many_ways(declared: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scrapy_resume.itemroutes.load_object", _load)
    for item in (Book("i"), RareBook("i")):
        assert rows(declared).row(item).table == "book"
    assert rows(declared).tables == [BOOK]


def _load(path: Any) -> Any:
    """The tests are imported under a name that cannot be imported again."""
    return Book if path == HERE else path


def test_the_nearest_class_decides_and_the_rest_has_the_default_table() -> None:
    maker = rows({Book: BOOK, RareBook: ItemTable("rare", "isbn"), Film: FILM})
    assert maker.row(Book("i")).table == "book"
    assert maker.row(RareBook("i")).table == "rare"
    assert maker.row(Film()).key == (1, 2)
    assert maker.row({"isbn": "i"}).table is None
    assert [table.name for table in maker.tables] == ["book", "rare", "film"]


@pytest.mark.parametrize(
    "setting",
    [
        {"*": ItemTable("book", "isbn")},
        {"*": {"name": "book", "key": "isbn"}},
        '{"*": {"name": "book", "key": ["isbn"]}}',
    ],
)
def test_the_setting_says_it_for_every_spider(setting: Any) -> None:
    assert rows(None, setting).row({"isbn": "i"}).table == "book"
    assert rows({}, setting).row({"isbn": "i"}).table is None
    assert rows(ItemTable("mine", "isbn"), setting).row({"isbn": "i"}).table == "mine"


def test_the_setting_may_name_a_table_alone() -> None:
    assert rows(None, {"scrapy.Item": "things"}).tables == [ItemTable("things")]


@pytest.mark.parametrize(
    ("declared", "setting", "why"),
    [
        ("book", None, "item_table is str; allowed is an ItemTable, a SQLAlchemy Table"),
        ({Book: 5}, None, r"item_table\[<class .*Book'>\] is int; allowed is an ItemTable"),
        ({5: BOOK}, None, "item_table names 5, which cannot be loaded"),
        ({Book("i").__class__.__init__: BOOK}, None, "which is no class"),
        (None, {"no.such.Class": "t"}, "RESUME_ITEM_TABLES names 'no.such.Class', which cannot be"),
        (None, {"os.path": "t"}, "RESUME_ITEM_TABLES names 'os.path', which is no class"),
        (None, {"*": {"key": ["a"]}}, r"RESUME_ITEM_TABLES\['\*'\] .* needs a name"),
        (None, {"*": {"name": "t", "keys": ["a"]}}, "has no field 'keys'"),
        (None, "book", "RESUME_ITEM_TABLES is 'book'; allowed is a dict"),
        (None, "[1]", "RESUME_ITEM_TABLES is"),
        ({Book: BOOK, Film: ItemTable("book", "a")}, None, "book is declared twice"),
    ],
)
def test_what_cannot_be_meant_is_refused(declared: Any, setting: Any, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        rows(declared, setting)


def test_one_table_may_be_named_twice_alike() -> None:
    maker = rows({Book: BOOK, Film: ItemTable("book", ("isbn",))})
    assert maker.tables == [BOOK]
