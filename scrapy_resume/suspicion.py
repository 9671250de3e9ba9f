"""What a list page's answer says beside its items: is it the list at all?

Looked at are the address it was answered from, its status, and what an empty page is made
of. What is found wrong makes the page fail. An empty page with nothing wrong about it may
still be untrue: that is for :mod:`~scrapy_resume.doubts`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from scrapy.http import TextResponse

from scrapy_resume.exceptions import NotAPage, SiteBlocked
from scrapy_resume.health import Signal
from scrapy_resume.looks import elements
from scrapy_resume.page import Decision, ErrorKind, Trouble, Where
from scrapy_resume.paging import PageEnd
from scrapy_resume.troubles import safe_url, trouble_from

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.http import Response

    from scrapy_resume.heldshard import HeldShard
    from scrapy_resume.ledger import OpenPage
    from scrapy_resume.sitewatch import SiteWatch

ODD_PAGE = "OddPage"
_ODD = (
    "it holds no items and looks unlike the pages that do (if it is right so, have check_page()"
    " return True for it, or yield end_of_shard())"
)
_SITES = (ErrorKind.RETRYABLE, ErrorKind.PERMANENT, ErrorKind.BLOCKED)


class Redirected(SiteBlocked):
    """A list page was answered from another address, which is not the list."""


@dataclass(slots=True)
class Sight:
    """How a page was asked for, and what was seen of its answer.

    Moments are counted, not measured. *vouched*: the spider says that it is a page. *refused*:
    details of it were, and the site had given no good answer since.
    """

    request: Request
    opened: int
    arrived: int = 0
    response: Response | None = None
    asked: str = ""
    got: str = ""
    cached: bool = False
    vouched: bool = False
    refused: bool = False
    made_of: Counter[str] = field(default_factory=Counter)


class Suspicion:
    """Judges the answers of one crawl. *logs_in*: its spider has a ``warm_up()`` to do again."""

    def __init__(self, watch: SiteWatch, *, logs_in: bool, wake: Callable[[], None]) -> None:
        self._watch, self._logs_in, self._wake = watch, logs_in, wake
        self._moment = self._items_at = self._login_at = 0
        self.login_due = False

    @property
    def on(self) -> bool:
        """Whether list pages are watched."""
        return self._watch.on and self._watch.limits.empty_pages > 0

    def now(self) -> int:
        """A moment later than all before."""
        self._moment += 1
        return self._moment

    def logged_in(self) -> None:
        """``warm_up()`` was done again."""
        self.login_due, self._login_at = False, self.now()

    def arrived(self, site: str, sight: Sight, response: Response) -> None:
        """A list response came. Raises Redirected or NotAPage if it cannot be the list."""
        sight.arrived, sight.response = self.now(), response
        sight.cached = "cached" in response.flags
        asked = response.url if response.request is None else response.request.url
        sight.asked = str((response.meta.get("redirect_urls") or [asked])[0])
        sight.got = response.url
        if self.on and self._watch.facts(site).moves.refused(sight.asked, sight.got):
            raise self._redirected(site, sight)

    def read(self, site: str, sight: Sight, yielded: bool) -> None:
        """The list callback is through: remember what the page is made of."""
        response, sight.response = sight.response, None
        if not self.on or not isinstance(response, TextResponse):
            return
        looks = self._watch.facts(site).looks
        if not yielded:
            sight.made_of = elements(response.text)
        elif looks.wants():
            looks.learn(response.text)

    def found_items(self, sight: Sight) -> None:
        """A page that was asked for as *sight* says held items."""
        self._items_at = max(self._items_at, sight.opened)

    def judged(self, shard: HeldShard, end: PageEnd, page: OpenPage) -> PageEnd:
        """What became of a page, in the light of what is known of its site."""
        sight, site = shard.sights.get(end.number), shard.site
        if sight is None or sight.vouched or not self._watch.on:
            return end
        code = end.trouble is not None and end.trouble.kind is ErrorKind.CODE
        if self.on and (is_empty(end) or code):
            if self._watch.facts(site).moves.moved(sight.asked, sight.got):
                return _failed(end, trouble_from(Where.PAGE, self._redirected(site, sight)))
            if is_empty(end):
                return self._of_empty(shard, end, page, sight)
        return self._of_blocked(end, page) if self._watch.is_blocked(site) else end

    def in_light(self, shard: HeldShard, end: PageEnd, sight: Sight) -> PageEnd:
        """An empty page as it is, or as a failed one if it looks unlike the list."""
        if not self._watch.facts(shard.site).looks.odd(sight.made_of):
            return end
        again = shard.walk.attempts.get(end.number, 1) <= shard.walk.policy.retries
        kind = ErrorKind.RETRYABLE if again else ErrorKind.BLOCKED
        return _failed(end, Trouble(Where.PAGE, kind, ODD_PAGE, _ODD))

    def _of_empty(self, shard: HeldShard, end: PageEnd, page: OpenPage, sight: Sight) -> PageEnd:
        if page.status not in self._watch.limits.statuses:
            return self.in_light(shard, end, sight)
        text, kind = f"HTTP {page.status}, and the page holds no items", ErrorKind.RETRYABLE
        return _failed(end, Trouble(Where.PAGE, kind, "EmptyPage", text, status=page.status))

    def _of_blocked(self, end: PageEnd, page: OpenPage) -> PageEnd:
        """What fails on a page while its site is blocked says nothing of the page."""
        details = (t for t in page.troubles if t.where is Where.REQUEST and t.kind in _SITES)
        spoilt = end.trouble or next(details, None)
        if spoilt is None or spoilt.kind not in _SITES:
            return end
        return _failed(end, replace(spoilt, where=Where.PAGE, kind=ErrorKind.BLOCKED))

    def _redirected(self, site: str, sight: Sight) -> Exception:
        """Why the page failed: to be asked for again after a login, or blocked."""
        text = f"redirected from {safe_url(sight.asked)} to {safe_url(sight.got)}"
        if self._logs_in:
            if self.login_due or sight.opened < self._login_at:
                return NotAPage(text)
            if self._login_at <= self._items_at:  # the last one helped
                self.login_due = True
                self._wake()
                return NotAPage(f"{text}; warm_up() is done again")
        self._watch.note(site, Signal.REDIRECT, text)
        return Redirected(text)


def is_empty(end: PageEnd) -> bool:
    """Does a page hold nothing, without saying itself that the list ends there?"""
    return end.decision is Decision.COMPLETE and end.empty and end.end_reason is None


def is_own_word(trouble: Trouble) -> bool:
    """Was it the spider that said that the site blocks?"""
    ours = (Redirected.__name__, ODD_PAGE, "SiteRests")
    return trouble.kind is ErrorKind.BLOCKED and trouble.error_class not in ours


def _failed(end: PageEnd, trouble: Trouble) -> PageEnd:
    return replace(end, decision=Decision.FAILED, trouble=trouble, record=None)
