"""A JSON API whose every answer holds the token that asks for the next."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

from scrapy import Request, Spider

from example_project.items import Character
from example_project.spiders.characters import SITE
from scrapy_resume import NotAPage, Page, ResumeSpiderMixin, Shard


class ApiSpider(ResumeSpiderMixin, Spider):
    """Characters from the API. ``-a blocks="Arrows,Emoticons"``: one shard for each block;
    without it one shard holds them all. ``-a limit=N``: characters of a page.
    """

    name = "api"
    item_key = ("code",)
    identity_args = ("blocks", "limit")

    base = SITE
    blocks = ""
    limit: str | int = 100

    def plan(self) -> Iterator[Shard]:
        for block in self.blocks.split(","):
            yield Shard(block.strip() or "all", spec=block.strip(), ordered=True)

    def page_request(self, page: Page) -> Request:
        """The cursor of the first page is None, of a later one what next_page() was given."""
        query = {"limit": self.limit, "block": page.shard.spec, "token": page.cursor}
        given = {name: value for name, value in query.items() if value}
        return Request(f"{self.base}/api/characters?{urlencode(given)}")

    def check_page(self, response: Any, page: Page) -> None:
        if "characters" not in response.json():
            raise NotAPage("no characters in the answer")

    def parse_page(self, response: Any, page: Page) -> Iterator[Any]:
        answer = response.json()
        for record in answer["characters"]:
            yield Character(**record)
        if answer["next"] is not None:
            yield self.next_page(answer["next"])

    def stated_total(self, response: Any) -> int:
        return int(response.json()["total"])
