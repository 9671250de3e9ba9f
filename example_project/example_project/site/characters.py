"""The catalogue's pages: block lists, details, the next-link chain and the JSON API.

A glyph is shown as a numeric reference. HTML cannot carry control characters even so;
``data-code`` names the character in any case, and the API carries all of them.
"""

from __future__ import annotations

from bisect import bisect_left
from functools import lru_cache
from html import escape
from urllib.parse import quote

from example_project.site import catalogue
from example_project.site.behaviour import Rule
from example_project.site.message import Request, Response, html, not_found, to_json
from example_project.site.token import TokenRejected, Tokens

ROWS = 50
LIMIT = 100


class Characters:
    """Handlers of ``/``, ``/block/…``, ``/character/…``, ``/chain`` and ``/api/…``."""

    def __init__(self) -> None:
        self.tokens = Tokens()

    def page_of(self, request: Request) -> int | None:
        """The list page that a request asks for; those of chain and API are counted off."""
        if request.path.startswith("/block/"):
            number = request.query.get("page", "1")
            return int(number) if number.isascii() and number.isdigit() else None
        if request.path == "/api/characters":
            offset = self.tokens.peek(request.query.get("token", ""))
            return None if offset is None else offset // _size(request, "limit", LIMIT) + 1
        if request.path == "/chain":
            return _chain_offset(request) // _size(request, "rows", ROWS) + 1
        return None

    def index(self, request: Request, rule: Rule) -> Response:
        """``/``: all blocks."""
        return html(_index())

    def block(self, request: Request, rule: Rule) -> Response:
        """``/block/SLUG?page=N``."""
        slug = request.path.removeprefix("/block/")
        block = catalogue.blocks().get(slug)
        page, size = rule.show_page or request.page or 1, _size(request, "rows", ROWS)
        if block is None or (page - 1) * size >= len(block.codes):
            return not_found("page of a block")
        codes = block.codes[(page - 1) * size : page * size]
        following = rule.next_page or page + 1
        more = (following - 1) * size < len(block.codes) and not rule.no_next
        rows = f"&rows={size}" if "rows" in request.query else ""
        href = f"/block/{slug}?page={following}{rows}{request.switches}" if more else ""
        table = _table(() if rule.no_rows else codes)
        return html(_list_page(block.name, len(block.codes), table, href))

    def character(self, request: Request, rule: Rule) -> Response:
        """``/character/HEX``: one record."""
        code = _code(request.path.removeprefix("/character/"))
        return not_found("character") if code is None else html(_detail(code))

    def chain(self, request: Request, rule: Rule) -> Response:
        """``/chain``: all characters; only its next link knows where a page begins."""
        codes, start = _chosen(request), _chain_offset(request)
        if codes is None:
            return not_found("block")
        size = _size(request, "rows", ROWS)
        following = (rule.next_page - 1) * size if rule.next_page else start + size
        href = ""
        if following < len(codes) and not rule.no_next:
            given = [name for name in ("block", "rows") if name in request.query]
            kept = "".join(f"&{name}={quote(request.query[name])}" for name in given)
            href = f"/chain?from={codes[following]:04X}{kept}{request.switches}"
        table = _table(() if rule.no_rows else codes[start : start + size])
        return html(_list_page("All characters", len(codes), table, href))

    def api_blocks(self, request: Request, rule: Rule) -> Response:
        """``/api/blocks``: names, sizes and the number of list pages."""
        size = _size(request, "rows", ROWS)
        return to_json(
            [
                {
                    "name": block.name,
                    "slug": block.slug,
                    "characters": len(block.codes),
                    "pages": -(-len(block.codes) // size),
                }
                for block in catalogue.blocks().values()
            ]
        )

    def api_characters(self, request: Request, rule: Rule) -> Response:
        """``/api/characters?limit=N&token=…``: records and the next token."""
        codes = _chosen(request)
        try:
            offset = self.tokens.read(request.query.get("token", ""))
        except TokenRejected as exc:
            return to_json({"code": exc.code}, 400)
        if codes is None:
            return to_json({"code": "NO_SUCH_BLOCK"}, 404)
        size = _size(request, "limit", LIMIT)
        end = (rule.next_page - 1) * size if rule.next_page else offset + size
        found = () if rule.no_rows else codes[offset : offset + size]
        more = end < len(codes) and not rule.no_next
        return to_json(
            {
                "characters": [catalogue.record(code) for code in found],
                "total": len(codes),
                "next": self.tokens.make(end) if more else None,
            }
        )


def _chosen(request: Request) -> tuple[int, ...] | None:
    try:
        return catalogue.codes(request.query.get("block", ""))
    except KeyError:
        return None


def _chain_offset(request: Request) -> int:
    start = _code(request.query.get("from", "0000"))
    return bisect_left(_chosen(request) or (), start or 0)


def _size(request: Request, name: str, default: int) -> int:
    text = request.query.get(name, "")
    return min(1000, max(1, int(text))) if text.isascii() and text.isdigit() else default


def _code(text: str) -> int | None:
    try:
        code = int(text, 16)
        return code if catalogue.is_character(code) else None
    except (ValueError, OverflowError):
        return None


@lru_cache(4)
def _index() -> str:
    rows = "\n".join(
        f'<li><a class="block" href="/block/{block.slug}">{escape(block.name)}</a>'
        f' <span class="count">{len(block.codes)}</span></li>'
        for block in catalogue.blocks().values()
    )
    return _document("Unicode characters", f'<ul class="blocks">\n{rows}\n</ul>')


@lru_cache(4096)
def _table(codes: tuple[int, ...]) -> str:
    rows = "\n".join(_row(code) for code in codes)
    return f'<table class="characters">\n{rows}\n</table>'


def _row(code: int) -> str:
    shown = catalogue.summary(code)
    return (
        f'<tr class="character" data-code="{shown["code"]}"><td class="glyph">{_glyph(code)}</td>'
        f'<td class="name"><a href="/character/{code:04X}">{escape(shown["name"])}</a></td>'
        f'<td class="block">{escape(shown["block"])}</td>'
        f'<td class="category">{shown["category"]}</td>'
        f'<td class="digit">{_text(shown["digit"])}</td></tr>'
    )


def _detail(code: int) -> str:
    record = catalogue.record(code)
    kept = ("block", "category", "digit", "bidirectional", "combining", "mirrored", "decomposition")
    facts = "\n".join(
        f'<dt>{name}</dt><dd class="{name}">{escape(_text(record[name]))}</dd>' for name in kept
    )
    return _document(
        record["code"],
        f'<h1 class="name">{escape(record["name"])}</h1>\n'
        f'<p class="glyph" data-code="{record["code"]}">{_glyph(code)}</p>\n<dl>\n{facts}\n</dl>',
    )


def _glyph(code: int) -> str:
    return "" if code < 0x20 or 0x7F <= code < 0xA0 else f"&#x{code:X};"


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _list_page(title: str, total: int, table: str, href: str) -> str:
    link = f'\n<a class="next" rel="next" href="{escape(href)}">next</a>' if href else ""
    return _document(title, f'<p class="total">{total} characters</p>\n{table}{link}')


def _document(title: str, body: str) -> str:
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{escape(title)}</title></head><body>\n{body}\n</body></html>\n"
    )
