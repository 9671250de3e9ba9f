"""The public practice site books.toscrape.com: a chain of list pages with details."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from scrapy import Request, Spider

from example_project.items import Book
from scrapy_resume import ResumeSpiderMixin

STARS = {"One": 1, "Two": 2, "Three": 3, "Four": 4, "Five": 5}


class BooksSpider(ResumeSpiderMixin, Spider):
    """All books of the catalogue; the crawl may be killed anywhere and started again.

    ``-a start=URL`` crawls a copy, such as the local site's ``http://127.0.0.1:8008/books/``.
    """

    name = "books"
    item_key = ("upc",)

    def __init__(self, start: str = "https://books.toscrape.com/", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.start_urls = [start]
        self.allowed_domains = [urlsplit(start).hostname or ""]

    def parse(self, response: Any) -> Iterator[Request]:
        for link in response.css("article.product_pod h3 a"):
            yield response.follow(link, self.parse_book)
        for link in response.css("li.next a"):
            yield self.next_page(response.follow(link))

    def parse_book(self, response: Any) -> Book:
        product = response.css("div.product_main")
        price = product.css("p.price_color::text").get("").strip()
        in_stock = "".join(product.css("p.availability::text").getall()).strip()
        stars = product.css("p.star-rating").attrib["class"].split()[-1]
        return Book(
            upc=response.xpath("//th[.='UPC']/following-sibling::td/text()").get(""),
            title=product.css("h1::text").get(""),
            price=price[1:],
            currency=price[:1],
            availability=in_stock,
            stock=int("".join(re.findall(r"\((\d+) available\)", in_stock)) or 0),
            rating=STARS[stars],
            url=response.url,
        )

    def stated_total(self, response: Any) -> int | None:
        """The list says how many books there are; pages of details are not asked."""
        found = response.css("form.form-horizontal strong::text").get("")
        return int(found) if found.isdigit() else None
