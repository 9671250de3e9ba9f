"""A running site for each test, and a client that hides nothing."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from typing import Any
from urllib.parse import urljoin

import pytest
from example_project.site import Site
from scrapy import Request
from scrapy.http import HtmlResponse, JsonResponse, TextResponse


@pytest.fixture
def site() -> Iterator[Site]:
    with Site() as site:
        yield site


class Client:
    """Keeps one connection. Follows no redirect, repeats nothing."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._connection = http.client.HTTPConnection(site.host, site.port, timeout=10)

    def get(
        self, path: str, *, method: str = "GET", body: str | None = None, **headers: str
    ) -> TextResponse:
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        self._connection.request(method, path, body.encode() if body else None, names)
        answer = self._connection.getresponse()
        content = answer.read()
        url = urljoin(self._site.url, path)
        kind = JsonResponse if "json" in answer.getheader("Content-Type", "") else HtmlResponse
        pairs = dict(answer.getheaders())
        return kind(url, answer.status, pairs, content, request=Request(url))

    def json(self, path: str, **kwargs: Any) -> Any:
        return self.get(path, **kwargs).json()

    def close(self) -> None:
        self._connection.close()


@pytest.fixture
def client(site: Site) -> Iterator[Client]:
    client = Client(site)
    yield client
    client.close()
