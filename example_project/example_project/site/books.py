"""A bookshop with the page shapes of books.toscrape.com and titles of its own.

``/books/`` and ``/books/catalogue/page-N.html`` are list pages of twenty,
``/books/catalogue/SLUG_ID/index.html`` the details. As there, the pages say their
encoding in a meta element and not in the header.
"""

from __future__ import annotations

import re
from functools import cached_property
from html import escape
from random import Random
from typing import NamedTuple
from zlib import crc32

from example_project.site.behaviour import Rule
from example_project.site.message import Request, Response, not_found

PER_PAGE = 20
STARS = ("One", "Two", "Three", "Four", "Five")
FIRST = ("A Night at", "The Keeper of", "Rain over", "Letters from", "Nobody's", "Étude for")
MIDDLE = ("the Last", "a Patient", "Ærø's", "the Unmarked", "“Blue”", "Ham & Eggs’")
LAST = ("Lighthouse", "Index (Vol. 2)", "Café", "Watermark", "Ledger: A Novel", "東京 Garden", "#9")
GENRES = ("Poetry", "Travel", "Mystery", "Science Fiction")


class Book(NamedTuple):
    """One book. *price* is in pence, *stock* the number available."""

    number: int
    title: str
    upc: str
    price: int
    stock: int
    rating: int
    genre: str

    @property
    def folder(self) -> str:
        words = re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-")
        return f"{words}_{self.number}"


def make_book(number: int) -> Book:
    """Book *number*; the same one every time."""
    random = Random(number)
    title = " ".join(random.choice(words) for words in (FIRST, MIDDLE, LAST))
    upc = f"{crc32(title.encode()):08x}{number:08x}"
    price, stock, rating = random.randint(999, 5999), random.randint(1, 22), random.randint(1, 5)
    return Book(number, title, upc, price, stock, rating, random.choice(GENRES))


class Bookshop:
    """Handler of ``/books/…``."""

    def __init__(self, count: int = 60) -> None:
        self.count = count

    @cached_property
    def books(self) -> list[Book]:
        """All books in the order of the list."""
        return [make_book(number) for number in range(self.count, 0, -1)]

    @cached_property
    def _by_folder(self) -> dict[str, Book]:
        return {book.folder: book for book in self.books}

    @property
    def pages(self) -> int:
        return max(1, -(-self.count // PER_PAGE))

    def page_of(self, request: Request) -> int | None:
        """The list page that a request asks for."""
        if request.path in ("/books", "/books/", "/books/index.html"):
            return 1
        found = re.fullmatch(r"/books/catalogue/page-(\d+)\.html", request.path)
        return int(found[1]) if found else None

    def respond(self, request: Request, rule: Rule) -> Response:
        if request.page is not None:
            return self._list(rule.show_page or request.page, request, rule)
        found = re.fullmatch(r"/books/catalogue/([^/]+)/index\.html", request.path)
        book = self._by_folder.get(found[1]) if found else None
        return not_found("book") if book is None else _html(_detail(book))

    def _list(self, page: int, request: Request, rule: Rule) -> Response:
        if not 1 <= page <= self.pages:
            return not_found()
        base = "" if "/catalogue/" in request.path else "catalogue/"
        books = [] if rule.no_rows else self.books[(page - 1) * PER_PAGE : page * PER_PAGE]
        following = rule.next_page or (page + 1 if page < self.pages else None)
        pods = "\n".join(_pod(book, base) for book in books)
        pager = _pager(page, self.pages, None if rule.no_next else following, base)
        first = (page - 1) * PER_PAGE + 1
        results = (
            f'<form method="get" class="form-horizontal"><strong>{self.count}</strong> results - '
            f"showing <strong>{first}</strong> to <strong>{first + len(books) - 1}</strong>.</form>"
        )
        return _html(_frame("All products", f"{results}\n<ol class='row'>\n{pods}\n</ol>\n{pager}"))


def _html(text: str) -> Response:
    return Response(text.encode("utf-8"), content_type="text/html")


def _pod(book: Book, base: str) -> str:
    href, title = f"{base}{book.folder}/index.html", escape(book.title)
    short = title if len(book.title) < 20 else f"{escape(book.title[:17])}..."
    return (
        '<li class="col-xs-6 col-sm-4 col-md-3 col-lg-3"><article class="product_pod">\n'
        f'<div class="image_container"><a href="{href}"><img src="{base}cover.jpg" alt="{title}" '
        f'class="thumbnail"></a></div>\n{_stars(book)}\n'
        f'<h3><a href="{href}" title="{title}">{short}</a></h3>\n'
        f'<div class="product_price"><p class="price_color">{_pounds(book.price)}</p>\n'
        '<p class="instock availability">\n<i class="icon-ok"></i>\n\n    In stock\n\n</p>\n'
        '<form><button type="submit" class="btn">Add to basket</button></form></div>\n'
        "</article></li>"
    )


def _pager(page: int, pages: int, following: int | None, base: str) -> str:
    before = f'<li class="previous"><a href="{base}page-{page - 1}.html">previous</a></li>'
    after = f'<li class="next"><a href="{base}page-{following}.html">next</a></li>'
    return (
        f'<div><ul class="pager">{before if page > 1 else ""}'
        f'<li class="current">\n\n    Page {page} of {pages}\n\n</li>'
        f"{after if following else ''}</ul></div>"
    )


def _detail(book: Book) -> str:
    title, price = escape(book.title), _pounds(book.price)
    stock = f"In stock ({book.stock} available)"
    facts = {
        "UPC": book.upc,
        "Product Type": "Books",
        "Price (excl. tax)": price,
        "Price (incl. tax)": price,
        "Tax": _pounds(0),
        "Availability": stock,
        "Number of reviews": "0",
    }
    table = "\n".join(f"<tr><th>{name}</th><td>{value}</td></tr>" for name, value in facts.items())
    return _frame(
        book.title,
        '<ul class="breadcrumb"><li><a href="../../index.html">Home</a></li>'
        '<li><a href="../category/books_1/index.html">Books</a></li>'
        f'<li><a href="../category/books/index.html">{book.genre}</a></li>'
        f'<li class="active">{title}</li></ul>\n<article class="product_page">'
        f'<div class="col-sm-6 product_main"><h1>{title}</h1>\n<p class="price_color">{price}</p>\n'
        f'<p class="instock availability">\n<i class="icon-ok"></i>\n\n    {stock}\n\n</p>\n'
        f"{_stars(book)}</div>\n"
        f'<table class="table table-striped">\n{table}\n</table></article>',
    )


def _stars(book: Book) -> str:
    return f'<p class="star-rating {STARS[book.rating - 1]}">{"<i class=icon-star></i>" * 5}</p>'


def _pounds(pence: int) -> str:
    return f"£{pence / 100:.2f}"


def _frame(title: str, body: str) -> str:
    return (
        '<!DOCTYPE html>\n<html lang="en-us"><head>\n<title>\n    '
        f'{escape(title)} | Books\n</title>\n<meta http-equiv="content-type" '
        f'content="text/html; charset=UTF-8">\n</head>\n<body>\n{body}\n</body></html>\n'
    )
