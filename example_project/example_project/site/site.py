"""The site: its contents, its habits and its log, served from a thread or a process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from zlib import crc32

from example_project.site import catalogue
from example_project.site.access import Access
from example_project.site.behaviour import AS_IT_IS, Rule, from_switches
from example_project.site.books import Bookshop
from example_project.site.characters import Characters
from example_project.site.listing import Listing
from example_project.site.log import RequestLog, Served
from example_project.site.message import Request, Response, not_found, to_json
from example_project.site.server import Server

Handler = Callable[[Request, Rule], Response]
PageOf = Callable[[Request], "int | None"]


class Site(Server):
    """The local site.

    *pages*, *rows* and *filler* size the plain list, *books* the bookshop. *fail* is the
    share of requests answered with *fail_status*; *seed* and the address decide which, so
    that two runs meet the same errors. *shift* inserts a row at the top of the list after
    every so many list requests. *log* is a file that gets a JSON line for each request.
    """

    catalogue = catalogue

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        pages: int = 12,
        rows: int = 10,
        filler: int = 0,
        books: int = 60,
        delay: float = 0.0,
        fail: float = 0.0,
        fail_status: int = 503,
        shift: int = 0,
        seed: int = 0,
        log: str | Path | None = None,
        remember: bool = True,
    ) -> None:
        super().__init__(host, port, delay)
        self.fail, self.shift, self.seed = fail, shift, seed
        self.listing = Listing(pages, rows, filler)
        self.characters = Characters()
        self.bookshop = Bookshop(books)
        self.access = Access()
        self.log = RequestLog(Path(log) if log else None, remember=remember)
        self._failure = Rule(status=fail_status, body="The site is unwell.")
        self._rules: tuple[Rule, ...] = ()
        self._switched: dict[str, Rule | None] = {}
        self._visits: dict[str, int] = {}
        self._list_requests = 0
        self._routes = self._make_routes()

    def _make_routes(self) -> dict[str, tuple[Handler, PageOf]]:
        """By first segment of the path: who answers, and how the list page is found."""
        rows, shop, chars, access = self.listing, self.bookshop, self.characters, self.access
        return {
            "": (chars.index, _no_page),
            "block": (chars.block, chars.page_of),
            "character": (chars.character, _no_page),
            "chain": (chars.chain, chars.page_of),
            "api": (self._api, chars.page_of),
            "list": (rows.page, rows.page_of),
            "list.json": (rows.page, rows.page_of),
            "search": (rows.search, rows.page_of),
            "cursor": (rows.cursor, rows.page_of),
            "item": (rows.item, _no_page),
            "feed": (rows.feed, _no_page),
            "books": (shop.respond, shop.page_of),
            "robots.txt": (access.robots_txt, _no_page),
            "start": (access.start, _no_page),
            "login": (access.login, _no_page),
            "_site": (self._control, _no_page),
        }

    # What a test asks and says.

    @property
    def requests(self) -> list[Served]:
        """Every request in order of arrival."""
        return self.log.requests

    def pages(self, path: str = "/list") -> list[int]:
        """The list pages asked for at *path*, in order of arrival."""
        return [r.page for r in list(self.requests) if r.path == path and r.page is not None]

    def hits(self, page: int | None = None, path: str = "/list") -> int:
        """How many requests came for *path*, or for that *page* of it."""
        found = [r for r in list(self.requests) if r.path == path]
        return len([r for r in found if page is None or r.page == page])

    def wait_for(self, page: int | None = None, path: str = "/list", timeout: float = 60.0) -> None:
        """Wait until such a request arrived. Raises TimeoutError."""
        self.log.wait(lambda _: self.hits(page, path) > 0, timeout)

    def behave(self, **rule: Any) -> Rule:
        """From now on treat requests as a :class:`Rule` of these values says."""
        new = Rule(**rule)
        self._rules = (new, *self._rules)
        return new

    def heal(self) -> None:
        """Forget all rules and let go what is held."""
        rules, self._rules = self._rules, ()
        for rule in rules:
            rule.heal()

    def expire_tokens(self) -> None:
        """Refuse the cursor tokens handed out so far."""
        self.listing.tokens.expire()
        self.characters.tokens.expire()

    def stop(self) -> None:
        """Stop serving and drop all connections; the contents and the log stay."""
        super().stop()
        self.log.close()

    # What the server asks.

    def arrive(self, request: Request) -> tuple[Served, Rule]:
        _, page_of = self._route(request)
        request.page = page_of(request)
        if self.shift and request.path in ("/list", "/list.json"):
            self._list_requests += 1
            if self._list_requests % self.shift == 0:
                self.listing.insert()
        return self.log.arrived(request), self._rule_for(request)

    def respond(self, request: Request, rule: Rule) -> Response:
        handler, _ = self._route(request)
        return rule.response() or handler(request, rule)

    def answered(self, served: Served, status: int) -> None:
        self.log.answered(served, status)

    def _route(self, request: Request) -> tuple[Handler, PageOf]:
        first = request.path.split("/", 2)[1] if "/" in request.path else "*"
        return self._routes.get(first, (_nothing, _no_page))

    def _rule_for(self, request: Request) -> Rule:
        if request.path.startswith("/_site/"):
            return AS_IT_IS
        for rule in self._rules:
            if rule.strikes(request):
                return rule
        switched = self._switched_rule(request) if "_" in request.target else None
        if switched is not None and switched.strikes(request):
            return switched
        return self._failure if self.fail and self._fails(request) else AS_IT_IS

    def _switched_rule(self, request: Request) -> Rule | None:
        if request.target not in self._switched:
            self._switched[request.target] = from_switches(request.query)
        return self._switched[request.target]

    def _fails(self, request: Request) -> bool:
        visit = self._visits[request.target] = self._visits.get(request.target, 0) + 1
        drawn = crc32(f"{self.seed} {request.target} {request.body!r} {visit}".encode())
        return drawn < self.fail * 2**32

    def _api(self, request: Request, rule: Rule) -> Response:
        handlers = {
            "/api/blocks": self.characters.api_blocks,
            "/api/characters": self.characters.api_characters,
        }
        handler = handlers.get(request.path)
        return handler(request, rule) if handler else to_json({"code": "NO_SUCH_CALL"}, 404)

    def _control(self, request: Request, rule: Rule) -> Response:
        """``POST /_site/behave`` with a rule as JSON, ``POST /_site/heal``."""
        if request.method == "POST" and request.path == "/_site/behave":
            try:
                self.behave(**request.fields)
            except TypeError as exc:
                return to_json({"error": str(exc)}, 400)
        elif request.method == "POST" and request.path == "/_site/heal":
            self.heal()
        else:
            return not_found()
        return to_json({"rules": len(self._rules)})


def _no_page(request: Request) -> None:
    return None


def _nothing(request: Request, rule: Rule) -> Response:
    return not_found()
