"""The bookshop's shapes, and what the books spider reads from them."""

from __future__ import annotations

from typing import Any

from example_project.items import Book
from example_project.spiders.books import BooksSpider


def test_the_chain_of_list_pages_holds_every_book_once(site: Any, client: Any) -> None:
    found, href = [], "/books/"
    while href:
        page = client.get(href)
        found += [
            page.urljoin(a) for a in page.css("article.product_pod h3 a::attr(href)").getall()
        ]
        following = page.css("li.next a")
        href = page.urljoin(following.attrib["href"]).removeprefix(site.url) if following else ""
    base = f"{site.url}/books/catalogue"
    assert found == [f"{base}/{book.folder}/index.html" for book in site.bookshop.books]
    assert len(set(found)) == 60
    assert site.pages("/books/catalogue/page-3.html") == [3]
    assert client.get("/books/catalogue/page-4.html").status == 404
    assert client.get("/books/catalogue/nothing_1/index.html").status == 404


def test_list_pages_look_like_the_original(client: Any) -> None:
    page = client.get("/books/catalogue/page-2.html")
    assert page.headers["Content-Type"] == b"text/html"  # the encoding is in the page
    assert page.css("li.current::text").get("").strip() == "Page 2 of 3"
    assert page.css("li.previous a::attr(href)").get() == "page-1.html"
    assert page.css("form.form-horizontal strong::text").getall() == ["60", "21", "40"]
    pod = page.css("article.product_pod")[0]
    assert pod.css("p.price_color::text").get("").startswith("£")
    assert pod.css("h3 a::attr(title)").get("").startswith(pod.css("h3 a::text").get("")[:-3])


def test_the_spider_follows_details_and_the_next_page(site: Any, client: Any) -> None:
    spider = BooksSpider(start=f"{site.url}/books/")
    assert spider.start_urls == [f"{site.url}/books/"] and spider.allowed_domains == [site.host]
    page = client.get("/books/")
    *details, following = spider.parse(page)
    assert len(details) == 20 and details[0].callback == spider.parse_book
    assert following.url == f"{site.url}/books/catalogue/page-2.html"
    assert spider.stated_total(page) == 60
    assert len(list(spider.parse(client.get("/books/catalogue/page-3.html")))) == 20


def test_the_spider_reads_every_book_exactly(site: Any, client: Any) -> None:
    spider = BooksSpider()
    assert spider.start_urls == ["https://books.toscrape.com/"]
    for book in site.bookshop.books:
        url = f"{site.url}/books/catalogue/{book.folder}/index.html"
        assert spider.parse_book(client.get(url.removeprefix(site.url))) == Book(
            upc=book.upc,
            title=book.title,
            price=f"{book.price / 100:.2f}",
            currency="£",
            availability=f"In stock ({book.stock} available)",
            stock=book.stock,
            rating=book.rating,
            url=url,
        )
