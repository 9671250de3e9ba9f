"""Records as bytes and back: equal to the type of each value, or refused."""

from __future__ import annotations

import json
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scrapy_resume import journalcodec as codec
from scrapy_resume.itemvalues import column_values, payload
from scrapy_resume.page import ErrorKind, Shard, Trouble, Where
from scrapy_resume.store.claims import ClaimedShard
from scrapy_resume.store.items import ItemTable, Row, default_row
from scrapy_resume.store.quarantine import QuarantineRecord
from scrapy_resume.store.records import Finish, PageFailure, PageRecord, Record, Release
from scrapy_resume.store.tasks import Task
from scrapy_resume.watermark import PageRanges, Position


class _Kind(Enum):
    NEW = "new"
    OLD = 2


TEXTS = st.text(st.characters(codec=None), max_size=12)  # halves of characters too
PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | TEXTS
NESTED = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)
ZONES = st.none() | st.just(timezone(timedelta(hours=5, minutes=30)))
# Which of two equal hours it was is nothing that a column holds.
MOMENTS = (st.datetimes(timezones=ZONES) | st.times()).map(lambda value: value.replace(fold=0))
VALUES = st.one_of(
    PLAIN, MOMENTS, st.dates(), st.timedeltas(), st.decimals(), st.binary(max_size=9),
    st.sampled_from(_Kind), st.uuids(), st.ip_addresses(), NESTED,
)  # fmt: skip


@st.composite
def own_rows(draw: st.DrawFn) -> list[Row]:
    """Rows of the users' tables as the item path makes them, some alike, some not."""
    rows = []
    for names in draw(st.lists(st.lists(TEXTS, unique=True, max_size=4), max_size=3)):
        for _ in range(draw(st.integers(1, 3))):
            try:
                values = column_values({name: draw(VALUES) for name in names})
            except ValueError:  # what no column can hold was refused before
                continue
            key = tuple(values[name] for name in names[: draw(st.integers(0, 2))])
            if draw(st.booleans()):
                key = (*key, "apart")
            rows.append(Row(draw(st.sampled_from(["book", "price"])), key, values))
    return rows


@st.composite
def default_rows(draw: st.DrawFn) -> list[Row]:
    fields = st.dictionaries(st.text(max_size=4), NESTED, max_size=3)
    return [
        default_row(draw(st.sampled_from(["shop", "\n"])), draw(TEXTS), payload(draw(fields)))
        for _ in range(draw(st.integers(0, 3)))
    ]


@settings(max_examples=60)
@given(own_rows(), default_rows(), default_rows(), TEXTS)
def test_a_page_comes_back_with_the_type_of_each_value(
    own: list[Row], before: list[Row], after: list[Row], text: str
) -> None:
    aside = QuarantineRecord(1, 2, 0, 3, "row", None, text, "ValueError", text, value=text)
    page = PageRecord(2, 9, 3, (*before, *own, *after), (aside,), 1, '{"a":1}', text, True, True)
    kind, body = codec.dump(page)
    assert repr(codec.load(kind, body)) == repr(page)
    assert kind == "page"


@pytest.mark.parametrize(
    "record",
    [
        PageRecord(1, 2, 3, ()),
        PageFailure(1, 2, 3, Trouble(Where.REQUEST, ErrorKind.BLOCKED, "E", "no\nway", "http://x",
                                     403, 1.5, "k", "book", "price", "9,9"), 4),
        Finish(1, 2, "done", "the last page is stored"),
        Release(1, 2, "released", "code", 2.5, True, "ValueError: \udc80"),
    ],
)  # fmt: skip
def test_everything_that_is_said_of_a_shard_comes_back(record: Record) -> None:
    kind, body = codec.dump(record)
    assert codec.load(kind, body) == record
    assert type(codec.load(kind, body)) is type(record)


@pytest.mark.parametrize(
    "value",
    [10**5000, -(10**5000), 2**64, "\n", "a\nb", "\r\n\u2028", "", b"\n", float("inf"), -0.0,
     Decimal("1.10"), Decimal("sNaN"), Decimal("1E+400"), datetime(1, 1, 1), date(9999, 12, 31),
     time(1, tzinfo=timezone.utc), timedelta(-1, 1, 1)],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_a_value_at_the_edge_comes_back(value: Any) -> None:
    rows = tuple(Row("t", (n,), {"n": n, "value": value, "other": None}) for n in range(3))
    mixed = (Row("t", (1,), {"n": 1, "value": value}), Row("t", (2,), {"n": 2, "value": None}))
    page = PageRecord(1, 2, 3, (*rows, *mixed))
    loaded = codec.load(*codec.dump(page))
    assert isinstance(loaded, PageRecord)
    for ours, its in zip(page.rows, loaded.rows, strict=True):
        assert (ours.table, ours.key, list(ours.values)) == (its.table, its.key, list(its.values))
        assert same(ours.values["value"], its.values["value"])
    assert [type(row.values["value"]) for row in loaded.rows] == [
        type(row.values["value"]) for row in page.rows
    ]


def same(one: Any, other: Any) -> bool:
    """Whether both are equal; of NaNs, written alike."""
    return (
        type(one) is type(other)
        and (isinstance(one, int) or str(one) == str(other))
        and (not isinstance(one, int) or bool(one == other))
    )


def test_a_payload_that_is_no_line_is_kept_too() -> None:
    rows = tuple(default_row("shop", key, '{"a":\n1}') for key in "ab")
    page = PageRecord(1, 2, 3, rows)
    assert codec.load(*codec.dump(page)) == page


def test_a_value_that_no_table_takes_is_refused_and_named() -> None:
    with pytest.raises(TypeError, match="complex values cannot be kept"):
        codec.dump(PageRecord(1, 2, 3, (Row("t", (), {"a": 1j}),)))


def test_a_form_of_a_newer_version_is_told_apart() -> None:
    kind, body = codec.dump(Finish(1, 2, "done", "over"))
    newer = body.replace(b'"v":1', b'"v":2')
    with pytest.raises(ValueError, match="newer version"):
        codec.load(kind, newer)


@given(st.binary(max_size=40), st.sampled_from(["page", "fail", "finish", "release", "other"]))
def test_bytes_of_any_other_origin_are_a_value_error(body: bytes, kind: str) -> None:
    with pytest.raises(ValueError):
        codec.load(kind, body)


@pytest.mark.parametrize("cut", [1, 30, 200])
def test_a_record_cut_short_is_a_value_error(cut: int) -> None:
    rows = tuple(default_row("shop", str(n), json.dumps({"n": "x" * 50})) for n in range(3))
    kind, body = codec.dump(PageRecord(1, 2, 3, rows))
    with pytest.raises(ValueError):
        codec.load(kind, body[:-cut])


SHARD = Shard("a\nb", 1, 9, {"$date": "2026-01-01", "z": [1, 2.0]}, 2, "shop", {"$int": 1}, True)


@pytest.mark.parametrize("cursor", [None, '{"a":1}', "\udc80"])
def test_a_held_shard_comes_back(cursor: str | None) -> None:
    position = Position(
        4, 3, cursor, PageRanges(((5, 6), (8, 8))), PageRanges(((4, 4),)), 6, 5, 4, 3, "digest"
    )
    claimed = ClaimedShard(7, 1, 0, SHARD, position, True, 12, 1, 10, True, "shop", True)
    assert repr(codec.load_shard(codec.dump_shard(claimed))) == repr(claimed)


def test_a_run_comes_back() -> None:
    task = Task(1, "books", "books", "{}", 2, None, 0, "running", "run", "opened", None, "9",
                None, datetime(2026, 1, 1, 1, 1, 1, 1), datetime(2026, 1, 1), None)  # fmt: skip
    assert codec.load_task(codec.dump_task(task)) == task


def test_declared_tables_come_back() -> None:
    tables = [
        ItemTable("book", ["isbn", "shop"], ["price"], "scraped_at", "ignore"),
        ItemTable("price", "id", None),
        ItemTable("free"),
    ]
    assert codec.load_tables(codec.dump_tables(tables)) == tables
    assert codec.load_tables(codec.dump_tables([])) == []


@pytest.mark.parametrize("load", [codec.load_shard, codec.load_task, codec.load_tables])
def test_what_is_no_such_value_is_a_value_error(load: Any) -> None:
    for body in (b"", b"{}", b"[]", b'{"v":1}', b'{"v":"x"}', b"\xff"):
        with pytest.raises(ValueError):
            load(body)
