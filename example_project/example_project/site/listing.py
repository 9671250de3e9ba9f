"""The plain list: numbered pages of rows in HTML and JSON, made for tests.

``/list?page=N`` (``?format=json`` or ``/list.json``), ``/item/KEY``, ``POST /search`` with
the page in a JSON, form or GraphQL body, ``/cursor?token=…`` and ``/feed?since=TIME``.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from html import escape
from typing import Any, NamedTuple

from example_project.site.behaviour import Rule
from example_project.site.message import Request, Response, html, not_found, to_json
from example_project.site.token import TokenRejected, Tokens

TEXTS = ("Plain", "Café ™", "咖啡 😎", "שלום עולם", "e\u0301 composed", "<b>&amp;</b> \"q\" 'a'")
EPOCH = datetime(2024, 1, 1)


class Row(NamedTuple):
    """One row. *price* is in cents; *updated_at* has whole seconds."""

    key: str
    title: str
    price: int
    updated_at: str

    def shown(self, currency: str = "USD") -> dict[str, Any]:
        price = {"price": f"{self.price / 100:.2f}", "currency": currency}
        return {"key": self.key, "title": self.title, **price, "updated_at": self.updated_at}


def make_row(number: int, key: str, filler: int = 0) -> Row:
    """Row *number* with text that is hard on databases, and *filler* more characters."""
    title = f"{TEXTS[number % len(TEXTS)]} {number}" + "·" * filler
    at = EPOCH + timedelta(seconds=number)
    return Row(key, title, 100 + 7 * number, f"{at.isoformat()}Z")


class Window(NamedTuple):
    """The rows of one page and what is around them."""

    number: int
    rows: list[Row]
    next_page: int | None
    total: int | None
    currency: str


class Listing:
    """The rows and the habits of the list.

    *past_end* says what a page beyond the last one is: ``"empty"``, ``"first"`` (page 1
    again) or ``"404"``. *totals* makes pages state the number of rows, *stated_total*
    another number than the true one. From offset *depth_limit* on pages are refused.
    """

    def __init__(self, pages: int = 12, rows: int = 10, filler: int = 0) -> None:
        width = max(3, len(str(pages * rows)))
        numbers = range(1, pages * rows + 1)
        self.rows = [make_row(n, f"k{n:0{width}d}", filler) for n in numbers]
        self.rows_per_page = rows
        self.past_end = "empty"
        self.totals = False
        self.stated_total: int | None = None
        self.depth_limit: int | None = None
        self.next_links = True
        self.tokens = Tokens()
        self._inserted = 0

    @property
    def rows(self) -> list[Row]:
        """All rows in the order of the list; may be set."""
        return self._rows

    @rows.setter
    def rows(self, rows: list[Row]) -> None:
        self._by_key = {row.key: row for row in rows}
        self._rows = rows

    @property
    def keys(self) -> list[str]:
        return [row.key for row in self.rows]

    def insert(self, count: int = 1, at: int = 0) -> list[Row]:
        """Put *count* new rows (keys ``new001``…) at index *at*; the others move on."""
        numbers = range(self._inserted + 1, self._inserted + count + 1)
        self._inserted += count
        new = [make_row(1000 + n, f"new{n:03d}") for n in numbers]
        self.rows = self.rows[:at] + new + self.rows[at:]
        return new

    def delete(self, *keys: str) -> None:
        """Take rows away; the following ones move up."""
        self.rows = [row for row in self.rows if row.key not in keys]

    def change(self, key: str, **values: Any) -> None:
        """Give the rows of *key* other values."""
        self.rows = [row._replace(**values) if row.key == key else row for row in self.rows]

    def page_of(self, request: Request) -> int | None:
        """The list page that a request asks for."""
        if request.path == "/cursor":
            offset = self.tokens.peek(request.query.get("token", ""))
            return None if offset is None else offset // self.rows_per_page + 1
        number = str(request.query.get("page") or request.fields.get("page") or 1)
        return int(number) if number.isascii() and number.isdigit() else None

    def page(self, request: Request, rule: Rule) -> Response:
        """``/list`` and ``/list.json``."""
        window = self._window(request, rule)
        if isinstance(window, Response):
            return window
        if request.wants_json or request.path.endswith(".json"):
            return to_json(self._as_json(window, request))
        return html(_as_html(window, request, rule))

    def search(self, request: Request, rule: Rule) -> Response:
        """``POST /search``; a GraphQL body gets a GraphQL answer."""
        if request.method != "POST":
            return to_json({"error": "POST only"}, 405)
        window = self._window(request, rule)
        if isinstance(window, Response):
            return window
        rows = [row.shown(window.currency) for row in window.rows]
        if b'"query"' in request.body:
            return to_json({"data": {"list": {"rows": rows, "nextPage": window.next_page}}})
        return to_json({"page": window.number, "rows": rows, "next_page": window.next_page})

    def cursor(self, request: Request, rule: Rule) -> Response:
        """``/cursor``: the token of one answer asks for the next."""
        try:
            offset = self.tokens.read(request.query.get("token", ""))
        except TokenRejected as exc:
            return to_json({"code": exc.code}, 400)
        end = offset + self.rows_per_page
        rows = [] if rule.no_rows else [row.shown() for row in self.rows[offset:end]]
        if rule.next_page is not None:
            end = (rule.next_page - 1) * self.rows_per_page
        more = end < len(self.rows) and not rule.no_next
        return to_json({"rows": rows, "next": self.tokens.make(end) if more else None})

    def feed(self, request: Request, rule: Rule) -> Response:
        """``/feed``: rows not older than *since*, oldest first."""
        since = request.query.get("since", "")
        found = sorted((r for r in self.rows if r.updated_at >= since), key=_by_time)
        limit = int(request.query.get("limit", self.rows_per_page))
        return to_json({"rows": [row.shown() for row in found[:limit]]})

    def item(self, request: Request, rule: Rule) -> Response:
        """``/item/KEY``."""
        row = self._by_key.get(request.path.removeprefix("/item/"))
        if row is None:
            return not_found("item")
        if request.wants_json:
            return to_json(row.shown())
        return html(_item_html(row))

    def _window(self, request: Request, rule: Rule) -> Window | Response:
        if request.page is None or request.page < 1:
            return to_json({"error": "no such page"}, 400)
        currency, size = self._preferences(request)
        number = rule.show_page or request.page
        rows = self.rows
        if rule.shift:
            rows = [make_row(2000 + n, f"shift{n:03d}") for n in range(rule.shift)] + rows
        last = -(-len(rows) // size)
        if self.depth_limit is not None and (number - 1) * size >= self.depth_limit:
            return to_json({"error": "Result window is too large"}, 400)
        if number > last and self.past_end == "404":
            return not_found()
        shown = 1 if number > last and self.past_end == "first" else number
        part = [] if rule.no_rows else rows[(shown - 1) * size : shown * size]
        following = rule.next_page or (shown + 1 if shown < last else None)
        hidden = rule.no_next or not self.next_links
        stated = len(rows) if self.stated_total is None else self.stated_total
        total = stated if self.totals or self.stated_total is not None else None
        return Window(number, part, None if hidden else following, total, currency)

    def _preferences(self, request: Request) -> tuple[str, int]:
        """Currency and page size, as the query or the cookie from ``/start`` says."""
        currency, _, size = request.cookies.get("prefs", "").partition(":")
        rows = request.query.get("rows") or size or self.rows_per_page
        return currency or "USD", max(1, int(rows))

    def _as_json(self, window: Window, request: Request) -> dict[str, Any]:
        answer: dict[str, Any] = {
            "page": window.number,
            "rows": [row.shown(window.currency) for row in window.rows],
            "next": _next_url(window, request),
        }
        return answer if window.total is None else {**answer, "total": window.total}


def _by_time(row: Row) -> tuple[str, str]:
    return row.updated_at, row.key


def _next_url(window: Window, request: Request) -> str | None:
    if window.next_page is None:
        return None
    rows = f"&rows={request.query['rows']}" if "rows" in request.query else ""
    form = "&format=json" if request.query.get("format") == "json" else ""
    return f"{request.path}?page={window.next_page}{rows}{form}{request.switches}"


def _as_html(window: Window, request: Request, rule: Rule) -> str:
    kind, title = ("entry", "headline") if rule.renamed else ("row", "title")
    rows = "\n".join(
        f'<li class="{kind}" data-key="{row.key}"><a class="{title}" href="/item/{row.key}">'
        f'{escape(row.title)}</a> <span class="price">{row.price / 100:.2f}</span>'
        f' <span class="currency">{window.currency}</span></li>'
        for row in window.rows
    )
    total = "" if window.total is None else f'<p class="total">{window.total} rows</p>\n'
    href = _next_url(window, request)
    link = f'<a class="next" rel="next" href="{escape(href)}">next</a>\n' if href else ""
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>List, page {window.number}</title></head><body>\n"
        f'{total}<ul class="list">\n{rows}\n</ul>\n{link}</body></html>\n'
    )


def _item_html(row: Row) -> str:
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<title>{row.key}</title></head><body>\n<h1 class="title">{escape(row.title)}</h1>\n'
        f'<p class="key">{row.key}</p><p class="price">{row.price / 100:.2f}</p>'
        f'<p class="updated">{row.updated_at}</p></body></html>\n'
    )
