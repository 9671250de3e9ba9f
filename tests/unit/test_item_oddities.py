"""Values that nobody had in mind, refused or kept before any table is asked."""

from __future__ import annotations

import time
from datetime import datetime, tzinfo
from decimal import Decimal
from types import SimpleNamespace

import pytest

from scrapy_resume.itemrows import ItemRows
from scrapy_resume.itemvalues import column_values, json_text
from scrapy_resume.store.errors import describe
from scrapy_resume.store.items.table import ItemTable


def test_two_keys_of_a_dict_that_json_takes_for_one() -> None:
    assert json_text({1: "a", "b": 2}) == '{"1":"a","b":2}'
    for value in ({1: "a", "1": "b"}, {None: 1, "null": 2}, [{"a": {True: 1, "true": 2}}]):
        with pytest.raises(ValueError, match="two keys of a dict are one"):
            json_text(value)


class Shy(tzinfo):
    """A zone that does not know its offset."""

    def utcoffset(self, dt: datetime | None) -> None:
        return None

    dst = tzname = utcoffset


def test_a_zone_that_knows_no_offset_is_not_that_of_the_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        values = column_values({"at": datetime(2024, 1, 1, tzinfo=Shy())})
    finally:
        monkeypatch.undo()
        time.tzset()
    assert values == {"at": datetime(2024, 1, 1)}


def test_a_text_that_cannot_be_sent_is_not_repeated_in_the_reason() -> None:
    with pytest.raises(UnicodeEncodeError) as caught:
        "secret \ud800".encode()
    assert "secret" in str(caught.value.args) and "secret" not in describe(caught.value)


def test_a_key_that_has_no_hash_is_refused_before_its_page_is_counted() -> None:
    spider = SimpleNamespace(name="books", item_table=ItemTable("book", "isbn"))
    with pytest.raises(ValueError, match="a key field cannot tell rows apart"):
        ItemRows(spider).row({"isbn": Decimal("sNaN")})
