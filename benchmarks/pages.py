"""How the benchmark's spiders read the local site's list."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

ROWS = {"list": 20, "details": 10}
"""Shapes, and how many rows their list pages have."""


def list_url(site: str, shape: str) -> str:
    """Address of the list pages, with ``{page}`` in it."""
    return f"{site}/list?page={{page}}&rows={ROWS[shape]}"


def read_rows(response: Any) -> Iterator[dict[str, Any]]:
    """The items of a list page."""
    for row in response.css("li.row"):
        yield {
            "key": row.attrib["data-key"],
            "title": row.css("a.title::text").get(),
            "price": row.css("span.price::text").get(),
            "currency": row.css("span.currency::text").get(),
            "url": response.urljoin(row.css("a.title").attrib["href"]),
        }


def read_links(response: Any, callback: Any) -> Iterator[Any]:
    """The detail requests of a list page."""
    for link in response.css("li.row a.title"):
        yield response.follow(link, callback)


def read_detail(response: Any) -> dict[str, Any]:
    """The item of a detail page."""
    return {
        "key": response.css("p.key::text").get(),
        "title": response.css("h1.title::text").get(),
        "price": response.css("p.price::text").get(),
        "updated": response.css("p.updated::text").get(),
        "url": response.url,
    }
