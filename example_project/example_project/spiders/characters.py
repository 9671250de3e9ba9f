"""How characters are read off the local site's pages; shared by the spiders that crawl it."""

from __future__ import annotations

from parsel import Selector
from scrapy.http import TextResponse

from example_project.items import Character

SITE = "http://127.0.0.1:8008"


def from_row(row: Selector) -> Character:
    """The character in a row of a list page."""
    code = row.attrib["data-code"]
    return Character(
        code=code,
        char=chr(int(code[2:], 16)),  # HTML cannot carry control characters
        name=row.css("td.name a::text").get(""),
        block=row.css("td.block::text").get(""),
        category=row.css("td.category::text").get(""),
        digit=_number(row.css("td.digit::text").get()),
    )


def from_detail(response: TextResponse) -> Character:
    """The character that a detail page is about."""
    code = response.css("p.glyph").attrib["data-code"]
    facts = {name: response.css(f"dd.{name}::text").get("") for name in _FACTS}
    return Character(
        code=code,
        char=chr(int(code[2:], 16)),
        name=response.css("h1.name::text").get(""),
        block=facts["block"],
        category=facts["category"],
        digit=_number(facts["digit"]),
        bidirectional=facts["bidirectional"],
        combining=_number(facts["combining"]),
        mirrored=facts["mirrored"] == "True",
        decomposition=facts["decomposition"],
    )


_FACTS = ("block", "category", "digit", "bidirectional", "combining", "mirrored", "decomposition")


def _number(text: str | None) -> int | None:
    return int(text) if text else None
