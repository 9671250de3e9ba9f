"""Numbered list pages in many shards, with a detail page for every row."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

from scrapy import Request, Spider

from example_project.items import Character
from example_project.spiders.characters import SITE, from_detail, from_row
from scrapy_resume import Page, ResumeSpiderMixin, Shard

DEMO = (
    "Hebrew,Arabic,Devanagari,Thai,Superscripts and Subscripts,Combining Diacritical Marks,"
    "Arrows,Mathematical Operators,Box Drawing,Miscellaneous Symbols,Dingbats,Hiragana,Katakana,"
    "Miscellaneous Symbols and Pictographs,Emoticons,Transport and Map Symbols"
)


class BlocksSpider(ResumeSpiderMixin, Spider):
    """The characters of some Unicode blocks, a shard for every few list pages.

    ``-a blocks="Arrows,Emoticons"`` selects (``demo``: about 2,800 characters of all kinds;
    ``all``: about 140,000), ``-a details=0`` reads the lists only.
    """

    name = "blocks"
    paging = "numbered"
    shard_pages = 4
    item_key = ("code",)
    identity_args = ("blocks", "details")

    base = SITE
    blocks = "demo"
    details: str | int = 1

    async def plan(self) -> AsyncIterator[Shard]:
        """Ask the site how many pages each block has."""
        response: Any = await self.fetch(Request(f"{self.base}/api/blocks"))
        for block in self._chosen(response.json()):
            for first in range(1, block["pages"] + 1, self.shard_pages):
                last = min(first + self.shard_pages - 1, block["pages"])
                yield Shard(f"{block['slug']} {first}-{last}", first, last, spec=block["slug"])

    def _chosen(self, blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
        if self.blocks == "all":
            return blocks
        names = DEMO if self.blocks == "demo" else self.blocks
        known = {block["name"]: block for block in blocks}
        try:
            return [known[name.strip()] for name in names.split(",")]
        except KeyError as exc:
            raise ValueError(f"the site has no block {exc}") from None

    def page_request(self, page: Page) -> Request:
        return Request(f"{self.base}/block/{page.shard.spec}?page={page.number}")

    def parse_page(self, response: Any, page: Page) -> Iterator[Character | Request]:
        for row in response.css("tr.character"):
            if str(self.details) == "0":
                yield from_row(row)
            else:
                yield response.follow(row.css("td.name a")[0], self.parse_character)

    def parse_character(self, response: Any) -> Character:
        return from_detail(response)
