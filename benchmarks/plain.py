"""The spiders as anybody would write them for plain Scrapy; items go nowhere."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from scrapy import Spider
from scrapy.logformatter import LogFormatter

from benchmarks.pages import list_url, read_detail, read_links, read_rows


class SilentLogFormatter(LogFormatter):
    """Makes no messages of level DEBUG, which nobody sees; the add-on sets one like it."""

    def scraped(self, *args: Any, **kwargs: Any) -> None:
        return None

    def crawled(self, *args: Any, **kwargs: Any) -> None:
        return None


class PlainList(Spider):
    """Every row of a list page is an item."""

    name = shape = "list"

    def __init__(self, base: str, pages: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        url = list_url(base, self.shape)
        self.start_urls = [url.format(page=page) for page in range(1, int(pages) + 1)]

    def parse(self, response: Any) -> Iterator[Any]:
        return read_rows(response)


class PlainDetails(PlainList):
    """Every row of a list page is a link to a page with an item."""

    name = shape = "details"

    def parse(self, response: Any) -> Iterator[Any]:
        return read_links(response, self.parse_detail)

    def parse_detail(self, response: Any) -> dict[str, Any]:
        return read_detail(response)
