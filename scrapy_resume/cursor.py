"""Cursors as JSON text, and a request as a cursor.

A cursor must come back from the database exactly as the spider gave it, so what JSON
cannot hold exactly (a tuple, a date, NaN, a number as a dictionary key) is refused
instead of being turned into something similar.

A chain's cursor is its next request. It keeps what asks for the page again: url,
method, headers, body, callback and errback by name, priority, ``dont_filter``,
encoding, flags, ``cb_kwargs`` and ``meta``. Secrets stay out of checkpoints: the
``Cookie``, ``Authorization`` and ``Proxy-Authorization`` headers, ``cookies=``,
passwords in ``meta`` and credentials in a URL are left out, and after a restart must
come from the spider's settings, a middleware or ``warm_up()``. It comes back as a plain
Request, whatever subclass it was.
"""

from __future__ import annotations

import json
import logging
import math
from base64 import b64decode, b64encode
from collections.abc import Callable
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from scrapy import Spider
from scrapy.http import Request

from scrapy_resume.exceptions import ResumeError

logger = logging.getLogger(__name__)

MAX_BYTES = 1024 * 1024
"""The longest cursor, as UTF-8. A longer one is refused, never cut."""

_REQUEST = "resume_request"
_SECRET_HEADERS = frozenset({"cookie", "authorization", "proxy-authorization"})
_SECRET_META = frozenset({"http_user", "http_pass", "ftp_user", "ftp_password", "_auth_proxy"})
_RUNTIME_META = frozenset(
    {
        "_callback", "_depth", "_dont_cache", "_scheme_proxy", "cache_timestamp",
        "cached_response", "depth", "download_latency", "is_start_request",
        "redirect_reasons", "redirect_times", "redirect_ttl", "redirect_urls", "retry_times",
    }
)  # fmt: skip
_PLAIN = {"method": "GET", "encoding": "utf-8", "priority": 0, "dont_filter": False, "flags": []}


def dump(value: Any, what: str = "the cursor") -> str:
    """*value* as compact JSON text. Raises ResumeError naming what JSON cannot hold."""
    try:
        _refuse_inexact(value, what)
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        size = len(text.encode())
    except RecursionError:
        raise ResumeError(f"{what} is nested too deeply, or holds itself") from None
    except UnicodeEncodeError:
        raise ResumeError(f"{what} holds a text that is not valid Unicode") from None
    except ValueError:
        raise ResumeError(f"{what} holds a number that is too long") from None
    if size > MAX_BYTES:
        raise ResumeError(f"{what} has {size} bytes as JSON; at most {MAX_BYTES} are kept")
    return text


def load(text: str) -> Any:
    """The value that :func:`dump` was given. Raises ResumeError if *text* is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise ResumeError(f"a stored cursor of {len(text)} characters is not JSON") from None


def _refuse_inexact(value: Any, where: str) -> None:
    if isinstance(value, dict):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise ResumeError(f"{where} has a key of type {type(key).__name__}, not str")
            _refuse_inexact(inner, f"{where}[{key!r}]")
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            _refuse_inexact(inner, f"{where}[{number}]")
    elif isinstance(value, float) and not math.isfinite(value):
        raise ResumeError(f"{where} is {value}, which JSON cannot hold")
    elif value is not None and not isinstance(value, (str, int, float)):
        raise ResumeError(f"{where} is a {type(value).__name__}, which JSON cannot hold exactly")


def of_request(request: Request, spider: Spider) -> dict[str, Any]:
    """:func:`request_to_cursor`, marked so that :func:`is_request` knows it again."""
    return {_REQUEST: request_to_cursor(request, spider)}


def is_request(value: Any) -> bool:
    """Was *value* made by :func:`of_request`, and not by a spider?"""
    return isinstance(value, dict) and list(value) == [_REQUEST]


def to_request(value: dict[str, Any], spider: Spider) -> Request:
    """The request that :func:`of_request` was given. Raises ResumeError."""
    return request_from_cursor(value[_REQUEST], spider)


def request_to_cursor(request: Request, spider: Spider) -> dict[str, Any]:
    """The cursor that asks for *request* again.

    Raises ResumeError for a callback that is not a method of *spider* and for a
    ``cb_kwargs`` value that JSON cannot hold; such a ``meta`` value is left out, with one
    warning for its key.
    """
    cursor: dict[str, Any] = {"url": _without_login(request.url, spider)}
    for name, default in _PLAIN.items():
        if (value := getattr(request, name)) != default:
            cursor[name] = value
    for name in ("callback", "errback"):
        if (function := getattr(request, name)) is not None:
            cursor[name] = _method_name(name, function, spider)
    parts: dict[str, Any] = {
        "headers": _headers(request),
        "cb_kwargs": _cb_kwargs(request),
        "meta": _meta(request, spider),
        **_body(request.body),
    }
    if request.cookies:
        _warn_once(spider.name, "cookies=")
    return cursor | {name: value for name, value in parts.items() if value}


def request_from_cursor(cursor: Any, spider: Spider) -> Request:
    """The request that *cursor* was made of.

    Raises ResumeError if it is no request or names a method that *spider* lacks.
    """
    try:
        return Request(
            cursor["url"],
            body=cursor.get("body", "").encode() or b64decode(cursor.get("body_base64", "")),
            headers=_read_headers(cursor.get("headers", {})),
            callback=_method(cursor, "callback", spider),
            errback=_method(cursor, "errback", spider),
            cb_kwargs=cursor.get("cb_kwargs"),
            meta=cursor.get("meta"),
            **{name: cursor.get(name, default) for name, default in _PLAIN.items()},
        )
    except (AttributeError, LookupError, TypeError, ValueError):
        raise ResumeError(
            "this cursor is not a request; it was stored by another way of paging"
        ) from None


def _read_headers(headers: dict[str, list[str]]) -> dict[str, list[bytes]]:
    return {name: [v.encode("latin-1") for v in values] for name, values in headers.items()}


def _headers(request: Request) -> dict[str, list[str]]:
    # Latin-1 maps every byte to one character, so any header comes back unchanged.
    return {
        name.decode("latin-1"): [value.decode("latin-1") for value in values]
        for name, values in request.headers.items()
        if name.decode("latin-1").lower() not in _SECRET_HEADERS
    }


def _body(body: bytes) -> dict[str, str]:
    try:
        return {"body": body.decode()}
    except UnicodeDecodeError:
        return {"body_base64": b64encode(body).decode()}


def _cb_kwargs(request: Request) -> dict[str, Any]:
    return {
        name: load(dump(value, f"the next page's cb_kwargs[{name!r}]"))
        for name, value in request.cb_kwargs.items()
    }


def _meta(request: Request, spider: Spider) -> dict[str, Any]:
    kept = {}
    for key, value in request.meta.items():
        if key in _RUNTIME_META or str(key).startswith("resume_"):
            continue
        secret = key in _SECRET_META or (key == "proxy" and "@" in str(value))
        if secret or not _holds({key: value}):
            _warn_once(spider.name, f"meta[{key!r}]")
        else:
            kept[key] = load(dump(value))
    return kept


def _holds(value: Any) -> bool:
    try:
        dump(value)
    except ResumeError:
        return False
    return True


def _without_login(url: str, spider: Spider) -> str:
    parts = urlsplit(url)
    if "@" not in parts.netloc:
        return url
    _warn_once(spider.name, "the user name and password of the URL")
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _method_name(role: str, function: Callable[..., Any], spider: Spider) -> str:
    if getattr(function, "__self__", None) is spider:
        for name in (getattr(function, "__name__", ""), *dir(type(spider))):
            if getattr(type(spider), name, None) is getattr(function, "__func__", function):
                return str(name)
    name = getattr(function, "__qualname__", type(function).__name__)
    raise ResumeError(
        f"the {role} of a next page must be a method of the spider, so that it can be found"
        f" again after a restart; {name} is not"
    )


def _method(cursor: dict[str, Any], role: str, spider: Spider) -> Callable[..., Any] | None:
    name = cursor.get(role)
    if name is None:
        return None
    function = getattr(spider, name, None)
    if not callable(function):
        raise ResumeError(f"the stored next page has the {role} {name}, which {spider.name} lacks")
    return function  # type: ignore[no-any-return]


@lru_cache(maxsize=1024)
def _warn_once(spider: str, what: str) -> None:
    logger.warning(
        "A next page of spider %s is stored without %s: it is a secret, or JSON cannot hold it"
        " exactly. After a restart the page is asked for without it.",
        spider,
        what,
        extra={"action": "cursor_shortened"},
    )
