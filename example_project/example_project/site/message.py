"""HTTP requests and responses as values."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cached_property
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote

HTML = "text/html; charset=utf-8"
JSON = "application/json"


@dataclass
class Request:
    """One request; *page* is the list page it asks for, None when it asks for none."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    target: str
    close: bool = False
    body: bytes = b""
    page: int | None = field(default=None, init=False)

    @cached_property
    def cookies(self) -> dict[str, str]:
        pairs = (pair.partition("=") for pair in self.headers.get("cookie", "").split(";"))
        return {name.strip(): value.strip() for name, _, value in pairs if name.strip()}

    @cached_property
    def fields(self) -> dict[str, Any]:
        """The fields of a JSON or form body, or the variables of a GraphQL one."""
        if JSON not in self.headers.get("content-type", ""):
            return dict(parse_qsl(self.body.decode("utf-8", "replace")))
        try:
            body = json.loads(self.body)
        except ValueError:
            return {}
        if not isinstance(body, dict):
            return {}
        return body.get("variables", {}) if "query" in body else body

    @property
    def switches(self) -> str:
        """The behaviour switches of its query, to be carried on by next links."""
        return "".join(f"&{name}={value}" for name, value in self.query.items() if name[0] == "_")

    @property
    def wants_json(self) -> bool:
        return self.query.get("format") == "json" or self.headers.get("accept", "").startswith(JSON)


class Response(NamedTuple):
    """One response. Any iterable of pairs serves as *headers*."""

    body: bytes = b""
    status: int = 200
    content_type: str = HTML
    headers: tuple[tuple[str, str], ...] = ()

    def encode(self, *, close: bool, with_body: bool = True) -> bytes:
        """The response as it goes over the wire."""
        extra = "".join(f"{name}: {value}\r\n" for name, value in self.headers)
        head = (
            f"HTTP/1.1 {self.status} {_reason(self.status)}\r\n"
            f"Content-Type: {self.content_type}\r\nContent-Length: {len(self.body)}\r\n{extra}"
            f"Connection: {'close' if close else 'keep-alive'}\r\n\r\n"
        ).encode("latin-1")
        return head + self.body if with_body else head


def html(text: str, status: int = 200) -> Response:
    """A response of HTML *text*."""
    return Response(text.encode("utf-8"), status)


def to_json(value: Any, status: int = 200) -> Response:
    """A response of JSON; everything but ASCII is escaped, so any character survives."""
    return Response(json.dumps(value).encode("ascii"), status, JSON)


def not_found(what: str = "page") -> Response:
    """A 404."""
    return html(f"<!DOCTYPE html><title>Not found</title><p>There is no such {what}.</p>", 404)


def redirect(location: str, cookies: tuple[str, ...] = ()) -> Response:
    """A 302, setting *cookies*."""
    set_cookies = tuple(("Set-Cookie", cookie) for cookie in cookies)
    return Response(status=302, headers=(("Location", location), *set_cookies))


def parse_head(head: str) -> Request:
    """A request from its head (without the empty line). Raises ValueError if it is none."""
    first, *lines = head.split("\r\n")
    method, target, version = first.split(" ")
    path, _, query = target.partition("?")
    headers = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    connection = headers.get("connection", "").lower()
    close = connection == "close" or (version == "HTTP/1.0" and connection != "keep-alive")
    pairs = dict(parse_qsl(query, keep_blank_values=True)) if query else {}
    return Request(method, unquote(path), pairs, headers, target, close)


def _reason(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Unusual"
