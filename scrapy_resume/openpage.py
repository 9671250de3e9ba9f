"""The live state of one attempt at a page, and how code finds its page.

In a callback, an errback, a pipeline or a signal handler the current page is a
context variable. It holds a :class:`Place`, and a place reaches its page through a
:class:`Home` that is emptied when the page closes: contexts are copied into tasks
and timers that may live for hours, and must not keep a page in memory.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol

from scrapy import Request
from scrapy.http import Response
from twisted.internet.defer import Deferred

from scrapy_resume.page import ErrorKind, Page, Trouble, Where
from scrapy_resume.troubles import safe_url


@dataclass(frozen=True, slots=True)
class NextPage:
    """Yielded by a list callback: the next page is asked for by *cursor* (any JSON)."""

    cursor: Any


@dataclass(frozen=True, slots=True)
class EndOfShard:
    """Yielded by a list callback: the shard ends with this page, for *reason*."""

    reason: str


class Home:
    """Where the places of one page find it; None once the page is closed."""

    __slots__ = ("page",)

    def __init__(self, page: OpenPage | None) -> None:
        self.page = page


class Place:
    """What code runs for: a page and, in a pipeline, the number of an item in it."""

    __slots__ = ("home", "item_no", "url")

    def __init__(self, home: Home, item_no: int = 0, url: str | None = None) -> None:
        self.home = home
        self.item_no = item_no
        self.url = url


NEXT = "resume_next"  # in a request's meta: it asks for the next page, and is not to be crawled

NOWHERE = Place(Home(None), item_no=-1)  # for items of no page

CURRENT: ContextVar[Place | None] = ContextVar("scrapy_resume_place", default=None)


def current_page() -> OpenPage | None:
    """The open page this code runs for, or None outside of any page."""
    place = CURRENT.get()
    return None if place is None else place.home.page


def current_item_no() -> int:
    """The number, from 1, of the item in its page that a pipeline works on; else 0."""
    place = CURRENT.get()
    return 0 if place is None else max(0, place.item_no)


@dataclass(slots=True, eq=False)
class OpenPage:
    """One attempt at a page while anything of it is outstanding.

    *live* counts its requests queued or in progress. *yielded* counts the items and
    requests of the list callback (not the next page). *callback_done* says that the
    list callback was exhausted without an error. *rows* are (item number, row) pairs.
    """

    token: str
    page: Page
    repair: bool = False
    live: int = 0
    troubles: list[Trouble] = field(default_factory=list)
    items_in: int = 0
    items_scraped: int = 0
    items_dropped: int = 0
    items_failed: int = 0
    requests_in: int = 0
    requests_filtered: int = 0
    requests_ignored: int = 0
    yielded: int = 0
    response_url: str | None = None
    status: int | None = None
    callback_done: bool = False
    next_request: Request | None = None
    next_cursor: Any = None
    has_next: bool = False
    end_reason: str | None = None
    rows: list[tuple[int, Any]] = field(default_factory=list)
    seen: set[bytes] = field(default_factory=set)
    closed: bool = False
    # The ledger's own.
    list_request: Request | None = None
    list_fingerprint: bytes = b""
    failed: bool = False
    was_read: bool = False
    next_asked: int = 0
    next_reached: int = 0
    requests_yielded: int = 0
    place: Place = field(init=False)

    def __post_init__(self) -> None:
        self.place = Place(Home(self))

    def add_row(self, row: Any) -> None:
        """Keep *row* for the page's commit, under the item that is being processed."""
        self.rows.append((current_item_no(), row))

    def add_trouble(self, trouble: Trouble) -> None:
        """Record that something went wrong."""
        self.troubles.append(trouble)
        self.failed = self.failed or trouble.where is Where.PAGE

    def blame(
        self,
        text: str,
        *,
        where: Where = Where.PAGE,
        kind: ErrorKind = ErrorKind.CODE,
        url: str | None = None,
    ) -> None:
        """Record a trouble that no exception tells of."""
        url = None if url is None else safe_url(url)
        self.add_trouble(Trouble(where, kind, "PageError", text, url=url))

    def is_list_request(self, request: Request) -> bool:
        """Does *request* ask for this page's list once more, past the duplicate filter?"""
        mine = self.list_request
        return (
            request.dont_filter
            and mine is not None
            and request.url == mine.url
            and request.callback == mine.callback
            and request.method == mine.method
            and request.body == mine.body
        )

    def take_position(self, position: Request | NextPage | EndOfShard) -> None:
        """Take what the callback says of the page after this one."""
        if self.was_read:
            self.blame("the next page has to be named by the list callback")
        elif self.has_next or self.end_reason is not None:
            self.blame("the callback named more than one next page or end")
        elif isinstance(position, EndOfShard):
            self.end_reason = position.reason
        else:
            self.has_next = True
            if isinstance(position, NextPage):
                self.next_cursor = position.cursor
            else:
                self.next_request = position

    @property
    def fingerprints(self) -> list[bytes]:
        """Of all that it asked for."""
        return [*filter(None, (self.list_fingerprint, *self.seen))]

    def is_read(self) -> bool:
        """Is the list callback done, and did every next page that it named arrive?"""
        return self.callback_done and not self.failed and self.next_reached >= self.next_asked

    def settle(self) -> None:
        """Close the books: record what does not add up as troubles."""
        if self.items_in != self.items_scraped + self.items_dropped + self.items_failed:
            self.blame("hook bypassed: not every item was seen to leave the pipelines")
        if self.next_reached < self.next_asked:
            self.blame("the next page was refused on its way: offsite, depth, a middleware")
        if not self.callback_done and not self.failed:
            self.blame("the list callback was not seen to finish")
        told = self.requests_in + self.requests_filtered + self.requests_ignored
        self.requests_ignored += max(0, self.requests_yielded - told)


class WaitlessPipeline(Protocol):
    """A pipeline that never waits while it keeps an item of a page."""

    async def process_item(self, item: Any) -> Any:
        """Scrapy's method."""

    def take(self, page: OpenPage, item: Any) -> bool:
        """Keep *item* without any message or signal; False if it has to go the usual way."""


class PageListener(Protocol):
    """Who is told of a page's life; the page flow."""

    async def before_callback(self, open_page: OpenPage, response: Response) -> None:
        """A list response arrived; raising fails the page and skips the callback."""

    def page_read(self, open_page: OpenPage) -> None:
        """The list callback is done and the next page, if any, is known; called once."""

    def page_closed(self, open_page: OpenPage) -> Deferred[None] | None:
        """Nothing of the page is outstanding any more; called once.

        The last request stays in progress until the Deferred fires, unless that
        request was refused on its way to the scheduler.
        """

    def item_key(self, item: Any) -> str | None:
        """The key of an item that failed in a pipeline, if it has one; must not raise."""

    def closing(self) -> None:
        """The engine begins to close: queued requests will not be asked for any more."""
