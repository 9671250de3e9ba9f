"""What the site does wrong on purpose.

A :class:`Rule` says which requests it strikes and what becomes of them. The newest rule
that strikes a request decides alone. Three ways lead to the same rules: ``site.behave(…)``
in a test, ``--behave JSON`` on the command line, and switches in a URL's query, each the
name of a field below with an underscore before it: ``/list?page=5&_status=503&_times=2``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, fields
from fnmatch import fnmatchcase
from typing import Any

from example_project.site.message import HTML, Request, Response, redirect

CHALLENGE = (
    "<!DOCTYPE html><html><head><title>Just a moment...</title></head><body>"
    "<h1>Checking that you are human</h1><form id='challenge-form'></form></body></html>"
)


@dataclass
class Rule:
    """Which requests (the first group), and what happens to them (the second)."""

    path: str | None = None  # shell pattern of the path: "/list", "/item/*"
    page: int | Collection[int] | None = None  # list page, or several
    from_page: int | None = None  # this list page and all later ones
    method: str | None = None
    when: Callable[[Request], bool] | None = None
    unless_cookie: str | None = None  # spare requests that carry this cookie...
    views: int | None = None  # ...for so many requests per value of it
    skip: int = 0  # spare so many matching requests first
    times: int | None = None  # strike so many times, then heal

    status: int | None = None
    body: str | bytes | None = None  # with status 200 unless given
    content_type: str = HTML
    retry_after: int | str | None = None
    challenge: bool = False  # 200 with a "prove that you are human" page
    redirect: str | None = None
    reset: bool = False  # drop the connection with a TCP reset
    cut: bool = False  # send half of the body, then close
    delay: float = 0.0  # seconds before the answer
    hold: bool = False  # no answer before release()
    no_rows: bool = False  # the page as it is, without its rows
    no_next: bool = False  # without its next link
    renamed: bool = False  # with other class names
    show_page: int | None = None  # the rows of this page instead
    next_page: int | None = None  # the next link leads here instead
    shift: int = 0  # as if so many rows had been inserted at the top

    hits: int = field(default=0, init=False)
    seen: int = field(default=0, init=False)
    healed: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._struck = threading.Event()
        self._lock = threading.Lock()
        self._parked: list[Callable[[], object]] = []
        self._views: dict[str, int] = {}

    def strikes(self, request: Request) -> bool:
        """Whether the rule decides about *request*; counts it if so."""
        if self.healed or not self._matches(request) or self._is_spared(request):
            return False
        self.seen += 1
        if self.seen <= self.skip or (self.times is not None and self.hits >= self.times):
            return False
        self.hits += 1
        self._struck.set()
        return True

    def _matches(self, request: Request) -> bool:
        page = request.page
        return not (
            (self.method is not None and request.method != self.method)
            or (self.page is not None and page not in self._pages)
            or (self.from_page is not None and (page is None or page < self.from_page))
            or (self.path is not None and not fnmatchcase(request.path, self.path))
            or (self.when is not None and not self.when(request))
        )

    @property
    def _pages(self) -> Collection[int]:
        return (self.page,) if isinstance(self.page, int) else self.page or ()

    def _is_spared(self, request: Request) -> bool:
        value = request.cookies.get(self.unless_cookie) if self.unless_cookie else None
        if value is None or self.views is None:
            return value is not None
        self._views[value] = self._views.get(value, 0) + 1
        return self._views[value] <= self.views

    def wait(self, timeout: float = 60.0) -> None:
        """Wait until the rule struck. Raises TimeoutError after *timeout* seconds."""
        if not self._struck.wait(timeout):
            raise TimeoutError(f"no request came that {self} strikes")

    def heal(self) -> None:
        """Strike no more, and let go what is held."""
        self.healed = True
        self.release()

    def release(self) -> None:
        """Answer the held requests, and hold none from now on."""
        with self._lock:
            self.hold = False
            parked, self._parked = self._parked, []
        for go_on in parked:
            go_on()

    def park(self, go_on: Callable[[], object]) -> bool:
        """Keep *go_on* until the release; False if nothing is held (any more)."""
        with self._lock:
            if self.hold:
                self._parked.append(go_on)
            return self.hold

    def response(self) -> Response | None:
        """What is sent instead of the page; None: the page."""
        if self.challenge:
            return Response(CHALLENGE.encode())
        if self.redirect is not None:
            return redirect(self.redirect)
        if self.status is None and self.body is None:
            return None
        body = self.body.encode("utf-8") if isinstance(self.body, str) else self.body or b""
        after = self.retry_after
        headers = () if after is None else (("Retry-After", str(after)),)
        return Response(body, self.status or 200, self.content_type, headers)


AS_IT_IS = Rule()
_FIELDS = {f.name: str(f.type).split(" |")[0] for f in fields(Rule) if f.init}
_READERS: dict[str, Callable[[str], Any]] = {
    "int": int,
    "float": float,
    "bool": lambda text: text not in ("", "0"),
    "str": str,
}


def from_switches(query: dict[str, str]) -> Rule | None:
    """The rule that the switches of a query ask for. Raises ValueError for a bad value."""
    given = {name[1:]: text for name, text in query.items() if name.startswith("_")}
    known = {
        name: _READERS[_FIELDS[name]](text)
        for name, text in given.items()
        if _FIELDS.get(name) in _READERS
    }
    return Rule(**known) if known else None
