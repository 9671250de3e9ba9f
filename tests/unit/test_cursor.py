"""Cursors come back exactly as they were given, or are refused; secrets stay out of them."""

from __future__ import annotations

import json
import logging
import math
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scrapy import FormRequest, Request, Spider
from scrapy.http import JsonRequest
from scrapy.http.request import NO_CALLBACK

from scrapy_resume.cursor import MAX_BYTES, dump, load, request_from_cursor, request_to_cursor
from scrapy_resume.exceptions import ResumeError

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
FINITE = st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | FINITE | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)
URL = "https://example.org/list?page=2"


class Books(Spider):
    name = "books"

    def parse_list(self, response: Any, **more: Any) -> None: ...

    def on_error(self, failure: Any) -> None: ...


class Renamed(Books):
    other_name = Books.parse_list
    parse_list = None  # type: ignore[assignment]


def stored(request: Request, spider: Spider | None = None) -> Request:
    """The request after its way through the database."""
    spider = spider or Books()
    return request_from_cursor(load(dump(request_to_cursor(request, spider))), spider)


@given(JSON)
def test_any_json_value_comes_back_equal_and_byte_for_byte(value: Any) -> None:
    text = dump(value)
    assert load(text) == value
    assert json.dumps(load(text)) == json.dumps(value)
    assert dump(load(text)) == text


def test_the_text_is_compact_and_readable() -> None:
    assert dump({"page": 2, "token": "東京/ö", "at": [1.5, None]}) == (
        '{"page":2,"token":"東京/ö","at":[1.5,null]}'
    )


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (math.nan, "nan"),
        (math.inf, "inf"),
        ((1, 2), "tuple"),
        ({1}, "set"),
        (b"x", "bytes"),
        (datetime(2026, 1, 1), "datetime"),
        (Decimal(1), "Decimal"),
        ({"a": [0, object()]}, "the cursor['a'][1] is a object"),
        ({1: 2}, "key of type int"),
        ({None: 2}, "key of type NoneType"),
        ("\ud800", "Unicode"),
    ],
)
def test_what_json_cannot_hold_is_refused_by_name(value: Any, named: str) -> None:
    with pytest.raises(ResumeError) as caught:
        dump(value)
    assert named in str(caught.value)


def test_a_cursor_that_holds_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(ResumeError, match="holds itself"):
        dump(loop)


def test_a_cursor_is_bounded_in_bytes_and_never_cut() -> None:
    assert len(dump("x" * (MAX_BYTES - 2)).encode()) == MAX_BYTES
    for value in ("x" * (MAX_BYTES - 1), "ö" * (MAX_BYTES // 2)):
        with pytest.raises(ResumeError, match=str(MAX_BYTES)):
            dump(value)


@pytest.mark.parametrize("text", ["", "{", "canary"])
def test_a_broken_stored_cursor_is_refused_without_showing_it(text: str) -> None:
    with pytest.raises(ResumeError, match="not JSON") as caught:
        load(text)
    assert "canary" not in str(caught.value)


@given(
    method=st.sampled_from(["GET", "POST", "PUT"]),
    body=st.binary(max_size=50),
    header=st.binary(max_size=20),
    priority=st.integers(-100, 100),
    dont_filter=st.booleans(),
    cb_kwargs=st.dictionaries(TEXT, JSON, max_size=3),
    meta=st.dictionaries(TEXT.map(lambda key: "my_" + key), JSON, max_size=3),
)
def test_a_request_comes_back(header: bytes, **given: Any) -> None:
    spider = Books()
    request = Request(
        URL, headers={"X-Any": header}, callback=spider.parse_list, errback=spider.on_error, **given
    )
    back = stored(request, spider)
    assert back.to_dict(spider=spider) == request.to_dict(spider=spider)


def test_only_what_differs_from_the_defaults_is_stored() -> None:
    assert request_to_cursor(Request(URL), Books()) == {"url": URL}
    assert stored(Request(URL)).to_dict() == Request(URL).to_dict()


@pytest.mark.parametrize(
    "request_",
    [
        FormRequest(URL, formdata={"page": "2", "ö": "ü"}),
        JsonRequest(URL, data={"page": 2}),
        Request(URL, method="POST", body="ö", encoding="latin-1", flags=["a"]),
    ],
)
def test_what_goes_over_the_wire_is_the_same_for_subclasses(request_: Request) -> None:
    back = stored(request_)
    for name in ("url", "method", "body", "headers", "encoding", "flags"):
        assert getattr(back, name) == getattr(request_, name)


def test_a_changed_value_does_not_reach_a_cursor_made_before() -> None:
    shared = {"pages": [1]}
    cursor = request_to_cursor(Request(URL, meta={"shared": shared}), Books())
    shared["pages"].append(2)
    assert cursor["meta"] == {"shared": {"pages": [1]}}


def test_callbacks_are_found_under_any_name() -> None:
    spider = Renamed()
    cursor = request_to_cursor(Request(URL, callback=spider.other_name), spider)
    assert cursor["callback"] == "other_name"
    assert request_from_cursor(cursor, spider).callback == spider.other_name


@pytest.mark.parametrize("role", ["callback", "errback"])
@pytest.mark.parametrize("function", [lambda _: None, NO_CALLBACK, Books().parse_list])
def test_a_callback_must_be_a_method_of_the_spider(role: str, function: Any) -> None:
    with pytest.raises(ResumeError, match=f"the {role} .* must be a method of the spider"):
        request_to_cursor(Request(URL, **{role: function}), Books())


def test_a_callback_that_is_gone_is_named() -> None:
    with pytest.raises(ResumeError, match="parse_gone"):
        request_from_cursor({"url": URL, "callback": "parse_gone"}, Books())


@pytest.mark.parametrize("value", [None, 7, "text", [URL], {}, {"url": 7}, {"url": "no scheme"}])
def test_a_cursor_that_is_no_request_is_refused(value: Any) -> None:
    with pytest.raises(ResumeError, match="not a request"):
        request_from_cursor(value, Books())


def test_cb_kwargs_that_json_cannot_hold_are_refused_by_key() -> None:
    request = Request(URL, cb_kwargs={"fine": 1, "when": datetime(2026, 1, 1)})
    with pytest.raises(ResumeError, match=r"cb_kwargs\['when'\] is a datetime"):
        request_to_cursor(request, Books())


def test_meta_that_json_cannot_hold_is_left_out_with_one_warning_each(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Warned(Books):
        name = "warned once"

    meta: dict[Any, Any] = {"kept": [1], "when": datetime(2026, 1, 1), "pair": (1, 2), 3: 4}
    request = Request(URL, meta=meta)
    with caplog.at_level(logging.WARNING, "scrapy_resume"):
        assert stored(request, Warned()).meta == {"kept": [1]}
        assert stored(request, Warned()).meta == {"kept": [1]}
    shown = [record.getMessage() for record in caplog.records]
    assert [sum(key in line for line in shown) for key in ("'when'", "'pair'", "[3]")] == [1, 1, 1]
    assert {record.__dict__["action"] for record in caplog.records} == {"cursor_shortened"}


def test_what_the_run_left_in_meta_is_not_stored() -> None:
    meta = {
        "depth": 4,
        "retry_times": 1,
        "redirect_urls": [URL],
        "redirect_ttl": 19,
        "download_latency": 0.5,
        "resume_page": "token",
        "is_start_request": True,
    }
    kept = {"handle_httpstatus_list": [404], "cookiejar": 1, "download_timeout": 5, "proxy": None}
    assert stored(Request(URL, meta={**meta, **kept})).meta == kept


def test_cfg_2_no_secret_lands_in_a_cursor() -> None:
    request = Request(
        "https://user:canary1@example.org:8080/list?page=2#top",
        headers={
            "Cookie": "sid=canary2",
            "authorization": "Bearer canary3",
            "Proxy-Authorization": "Basic canary4",
            "Accept": "text/html",
        },
        cookies={"sid": "canary5"},
        meta={
            "http_user": "canary6",
            "http_pass": "canary7",
            "ftp_password": "canary8",
            "_auth_proxy": "canary9",
            "proxy": "http://user:canary10@proxy:3128",
        },
    )
    text = dump(request_to_cursor(request, Books()))
    assert "canary" not in text
    assert load(text) == {
        "url": "https://example.org:8080/list?page=2#top",
        "headers": {"Accept": ["text/html"]},
    }
    plain = Request(URL, meta={"proxy": "http://proxy:3128"})
    assert stored(plain).meta == plain.meta
