"""The same spiders with the mixin; every item is stored, every page checkpointed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from scrapy import Spider

from benchmarks.pages import list_url, read_detail, read_links, read_rows
from scrapy_resume import ResumeSpiderMixin


class ResumableList(ResumeSpiderMixin, Spider):
    """Every row of a list page is an item."""

    name = shape = "list"
    item_key = "key"

    def __init__(self, base: str, pages: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.page_url = list_url(base, self.shape)
        self.last_page = int(pages)

    def parse(self, response: Any) -> Iterator[Any]:
        return read_rows(response)


class ResumableDetails(ResumableList):
    """Every row of a list page is a link to a page with an item."""

    name = shape = "details"

    def parse(self, response: Any) -> Iterator[Any]:
        return read_links(response, self.parse_detail)

    def parse_detail(self, response: Any) -> dict[str, Any]:
        return read_detail(response)
