"""A chain of next links: an ordinary spider, but for ``self.next_page``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from scrapy import Request, Spider

from example_project.items import Character
from example_project.spiders.characters import SITE, from_row
from scrapy_resume import ResumeSpiderMixin


class ChainSpider(ResumeSpiderMixin, Spider):
    """Characters in code order. ``-a start=URL`` begins elsewhere, or selects:

    ``-a start="http://127.0.0.1:8008/chain?block=Arrows,Emoticons&rows=10"``
    """

    name = "chain"
    item_key = ("code",)

    def __init__(self, start: str = f"{SITE}/chain", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.start_urls = [start]

    def parse(self, response: Any) -> Iterator[Character | Request]:
        for row in response.css("tr.character"):
            yield from_row(row)
        for link in response.css("a.next"):
            yield self.next_page(response.follow(link))
