"""Empty pages are not taken at their word.

A list page that yields nothing is a true empty page, or a challenge, a login, a redesign,
a list that the site hides from us. So no empty page is stored before there is evidence that
the site is well: another page with items, asked for after the empty one had arrived. Until
then it is *doubted*: kept uncommitted, outside the pages in flight.

When nothing else is left to read, or when ``RESUME_HEALTH_EMPTY_PAGES`` pages of a site are
doubted, one page known to have items is asked for again: the *check*. If it has items the
empty pages were true; if it has none the site is blocked, and all of them are put back, to
be read again once it is well. Where no page ever held items there is nothing to doubt by,
and empty pages are stored, unless an earlier run of the task had found some.

An empty page made of other elements than the pages with items is no page of the list,
whatever the others hold: it is asked for again, then held as blocked. A page that says
itself that the list ends (``end_of_shard``) is believed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from scrapy.http import TextResponse
from scrapy.utils.asyncio import call_later

from scrapy_resume.exceptions import NotAPage, SiteBlocked
from scrapy_resume.health import Judgement, Signal, SiteState
from scrapy_resume.looks import elements
from scrapy_resume.page import Decision, ErrorKind, Trouble, Where
from scrapy_resume.paging import Action, Discard, PageEnd
from scrapy_resume.sitewatch import Good, SiteWatch
from scrapy_resume.troubles import safe_url, trouble_from

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.http import Response

    from scrapy_resume.heldshard import HeldShard
    from scrapy_resume.ledger import OpenPage
    from scrapy_resume.pageflow import PageFlow

ODD = (
    "it holds no items and looks unlike the pages that do (if it is right so, have check_page()"
    " return True for it, or yield end_of_shard())"
)
UNHEALTHY = "unhealthy: no page holds items, although an earlier run stored some"


class Redirected(SiteBlocked):
    """A list page was answered from another address, which is not the list."""


@dataclass(slots=True)
class Sight:
    """How a page was asked for, and what was seen of its answer; moments are counted."""

    request: Request
    opened: int
    arrived: int = 0
    response: Response | None = None
    asked: str = ""
    got: str = ""
    cached: bool = False
    vouched: bool = False
    made_of: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class Check:
    """The question whether a page known to have items still has some, asked in *shard*."""

    shard: HeldShard
    words: str = ""
    page: OpenPage | None = None
    sight: Sight | None = None
    begun: bool = False


class Doubts:
    """The doubted pages of one crawl, and its checks, one at a time for each site."""

    def __init__(self, flow: PageFlow, watch: SiteWatch) -> None:
        self._flow, self.watch = flow, watch
        self._checks: dict[str, Check] = {}
        self._moment = self._items_at = self._login_at = 0
        self.login_due = False
        watch.listeners.append(self._judged)

    @property
    def on(self) -> bool:
        """Whether list pages are watched."""
        return self.watch.on and self.watch.limits.empty_pages > 0

    # What the opener asks

    def opened(self, request: Request) -> Sight:
        """A list request is on its way."""
        return Sight(request, self._now())

    def may_open(self, shard: HeldShard) -> bool:
        """Whether another page of the shard may be asked for now."""
        site = shard.site
        rest = self.watch.resting(site)
        if rest and not shard.resting:
            shard.resting = True
            call_later(rest, self._rested, shard)
        free = not self.on or len(list(self._of(site))) < self.watch.limits.empty_pages
        return free and not rest and not self.login_due and site not in self._checks

    def wanted(self, shard: HeldShard) -> Check | None:
        """The check that is to be asked in *shard*, from now on its opener's business."""
        check = self._checks.get(shard.site)
        if check is None or check.shard is not shard or check.begun:
            return None
        check.begun = True
        return check

    def check_opened(self, check: Check, page: OpenPage, sight: Sight, words: str) -> bool:
        """The check's page is about to be asked for; False if it is not wanted any more."""
        if self._checks.get(check.shard.site) is not check:
            return False
        check.page, check.sight, check.words = page, sight, words
        return True

    def nothing_known(self, check: Check, stored_before: bool) -> None:
        """No page of the run has items that could be asked for again."""
        if self._checks.get(check.shard.site) is not check:
            return
        del self._checks[check.shard.site]
        if stored_before:
            self.watch.note(check.shard.site, Signal.BLOCKED, UNHEALTHY)
        else:
            self._believe(check.shard.site, self._now())
        self._flow.wake()

    def check_failed(self, check: Check, why: str) -> None:
        """The check could not be asked, or its page has no items any more."""
        if self._checks.get(check.shard.site) is check:
            self._over(check)
            self.watch.note(check.shard.site, Signal.BLOCKED, why)
            self._flow.wake()

    def logged_in(self) -> None:
        """``warm_up()`` was done again."""
        self.login_due, self._login_at = False, self._now()

    # What the page flow tells

    def is_check(self, page: OpenPage) -> bool:
        """Is *page* that of a check?"""
        return self._check_of(page) is not None

    def site_of_check(self, page: OpenPage) -> str | None:
        """The site that *page* is asked for to judge, if it is a check."""
        check = self._check_of(page)
        return None if check is None else check.shard.site

    def arrived(
        self, page: OpenPage, held: tuple[HeldShard, int] | None, response: Response
    ) -> Sight | None:
        """A list response came; returns what is seen of it, None if nobody waits for it.

        Raises Redirected or NotAPage if it cannot be the list.
        """
        check = None if held is not None else self._check_of(page)
        if held is not None:
            site, sight = held[0].site, held[0].sights.get(held[1])
        else:
            site, sight = ("", None) if check is None else (check.shard.site, check.sight)
        if sight is None:
            return None
        sight.arrived, sight.response = self._now(), response
        sight.cached = "cached" in response.flags
        urls = response.meta.get("redirect_urls") or [_asked(response)]
        sight.asked, sight.got = str(urls[0]), response.url
        if self.on and self.watch.facts(site).moves.refused(sight.asked, sight.got):
            raise self._redirected(site, sight)
        return sight

    def read(self, site: str, sight: Sight, yielded: bool) -> None:
        """The list callback is through: remember what the page is made of."""
        response, sight.response = sight.response, None
        if not self.on or not isinstance(response, TextResponse):
            return
        looks = self.watch.facts(site).looks
        if not yielded:
            sight.made_of = elements(response.text)
        elif looks.wants():
            looks.learn(response.text)

    def check_read(self, page: OpenPage) -> bool:
        """A check's list callback is through; False if *page* is none."""
        check = self._check_of(page)
        if check is None:
            return False
        if page.yielded and check.sight is not None:
            self._over(check)
            self.read(check.shard.site, check.sight, True)
            self._well(check.shard.site, check.sight)
        else:
            self.check_failed(check, f"{check.words}, which held items before, holds none now")
        return True

    def check_closed(self, page: OpenPage) -> bool:
        """Nothing of a page is outstanding; False if it is no check's."""
        check = self._check_of(page)
        if check is None:
            return False
        trouble = page.troubles[0] if page.troubles else None
        why = "it was not read" if trouble is None else f"{trouble.error_class}: {trouble.error}"
        self.check_failed(check, f"{check.words}, which held items before, failed: {why}")
        return True

    def judged(self, shard: HeldShard, end: PageEnd, page: OpenPage) -> PageEnd:
        """What became of a page, in the light of what is known of its site."""
        sight, site = shard.sights.get(end.number), shard.site
        if not self.on or sight is None or sight.vouched:
            return end
        facts = self.watch.facts(site)
        code = end.trouble is not None and end.trouble.kind is ErrorKind.CODE
        if (self._is_empty(end) or code) and facts.moves.moved(sight.asked, sight.got):
            return _failed(end, trouble_from(Where.PAGE, self._redirected(site, sight)))
        if self._is_empty(end):
            if page.status in self.watch.limits.statuses:
                text = f"HTTP {page.status}, and the page holds no items"
                kind = ErrorKind.RETRYABLE
                return _failed(
                    end, Trouble(Where.PAGE, kind, "EmptyPage", text, status=page.status)
                )
            return self._in_light(shard, end, sight)
        if self.watch.is_blocked(site):
            return self._of_blocked(end, page, site)
        return end

    def suspects(self, shard: HeldShard, end: PageEnd) -> bool:
        """Whether the page is empty without saying itself that it is right so."""
        sight = shard.sights.get(end.number)
        return self.on and sight is not None and not sight.vouched and self._is_empty(end)

    def keep(self, shard: HeldShard, end: PageEnd) -> None:
        """Doubt an empty page; one of a blocked site is put back at once."""
        walk = shard.walk
        if self.watch.is_blocked(shard.site) or walk.blocked is not None or walk.leaving:
            self._flow.act(shard, [Discard(end.number)])
            return
        shard.doubted[end.number] = end
        shard.walk.doubted.add(end.number)
        self.watch.note(shard.site, Signal.EMPTY, f"page {end.number}")
        self.consider(shard)
        self._flow.wake()

    def told(self, shard: HeldShard, end: PageEnd, sight: Sight | None) -> None:
        """The page was acted upon: say what it tells of its site."""
        if not self.on or sight is None:
            return
        site, trouble = shard.site, end.trouble
        if end.decision is Decision.COMPLETE and not end.empty:
            self.watch.facts(site).moves.learn(sight.asked, sight.got)
            if not sight.cached:
                shard_of = shard.walk.claimed.shard
                self.watch.facts(site).good = Good(shard_of, end.number, sight.request)
                self._well(site, sight)
        elif trouble is not None and trouble.error_class == "OddPage":
            self.watch.note(site, Signal.ODD, f"page {end.number}")
        elif trouble is not None and trouble.kind is ErrorKind.BLOCKED and _says(trouble):
            self.watch.note(site, Signal.BLOCKED, trouble.error)

    def consider(self, shard: HeldShard) -> None:
        """Ask for a page known to have items, if it is time."""
        site = shard.site
        if site in self._checks or self._flow.stopping or self.watch.is_blocked(site):
            return
        doubted = list(self._of(site))
        if not doubted:
            return
        quiet = [one for one in dict.fromkeys(one for one, _ in doubted) if one.quiet]
        if quiet or len(doubted) >= self.watch.limits.empty_pages:
            self._checks[site] = Check(quiet[0] if quiet else doubted[0][0])
            self._flow.wake()

    def gone(self, shard: HeldShard) -> None:
        """The shard is ours no more, and so is a check that was asked in it."""
        check = self._checks.get(shard.site)
        if check is not None and check.shard is shard:
            self._over(check)
            self._reconsider(shard.site)

    # Inside

    def _now(self) -> int:
        self._moment += 1
        return self._moment

    def _of(self, site: str) -> Iterator[tuple[HeldShard, int]]:
        """The doubted pages of a site."""
        for shard in list(self._flow.shards.values()):
            if shard.site == site:
                for number in sorted(shard.doubted):
                    yield shard, number

    def _check_of(self, page: OpenPage) -> Check | None:
        for check in self._checks.values():
            if check.page is page:
                return check
        return None

    def _over(self, check: Check) -> None:
        self._checks.pop(check.shard.site, None)
        if check.page is not None and not check.page.closed:
            self._flow.ledger.abandon(check.page)

    def _is_empty(self, end: PageEnd) -> bool:
        return end.decision is Decision.COMPLETE and end.empty and end.end_reason is None

    def _in_light(self, shard: HeldShard, end: PageEnd, sight: Sight) -> PageEnd:
        """An empty page as it is, or as a failed one if it looks unlike the list."""
        odd = self.watch.facts(shard.site).looks.odd(sight.made_of)
        if not odd:
            return end
        again = shard.walk.attempts.get(end.number, 1) <= shard.walk.policy.retries
        text = ODD
        kind = ErrorKind.RETRYABLE if again else ErrorKind.BLOCKED
        return _failed(end, Trouble(Where.PAGE, kind, "OddPage", text))

    def _of_blocked(self, end: PageEnd, page: OpenPage, site: str) -> PageEnd:
        """What fails on a page while its site is blocked says nothing of the page."""
        spoilt = end.trouble or next(
            (t for t in page.troubles if t.where is Where.REQUEST and _sites(t)), None
        )
        if spoilt is None or not _sites(spoilt):
            return end
        return _failed(end, replace(spoilt, where=Where.PAGE, kind=ErrorKind.BLOCKED))

    def _redirected(self, site: str, sight: Sight) -> Exception:
        """Why the page failed: to be asked for again after a login, or blocked."""
        text = f"redirected from {safe_url(sight.asked)} to {safe_url(sight.got)}"
        spider = self._flow.spider
        if getattr(spider, "logs_in", False):
            if self.login_due or sight.opened < self._login_at:
                return NotAPage(text)
            if self._login_at <= self._items_at:
                self.login_due = True
                self._flow.wake()
                return NotAPage(f"{text}; warm_up() is done again")
        self.watch.note(site, Signal.REDIRECT, text)
        return Redirected(text)

    def _well(self, site: str, sight: Sight) -> None:
        """A page with items came: what arrived empty before it was asked for is true."""
        self._items_at = max(self._items_at, sight.opened)
        self.watch.note(site, Signal.ITEMS)
        self._believe(site, sight.opened)

    def _believe(self, site: str, moment: int) -> None:
        """What arrived empty before *moment* is true."""
        if not any(shard.doubted for shard in self._flow.shards.values()):
            return
        for shard, number in list(self._of(site)):
            sight = shard.sights.get(number)
            if number in shard.doubted and (sight is None or sight.arrived < moment):
                end = shard.doubted.pop(number)
                shard.walk.doubted.discard(number)
                end = end if sight is None else self._in_light(shard, end, sight)
                self._flow.act(shard, shard.walk.closed(end))
                self.told(shard, end, sight)
        self._reconsider(site)

    def _reconsider(self, site: str) -> None:
        """What is still doubted may need a check now, and else none is needed."""
        left = list(self._of(site))
        check = self._checks.get(site)
        if not left and check is not None:
            self._over(check)
        for shard in dict.fromkeys(shard for shard, _ in left):
            self.consider(shard)
        self._flow.wake()

    def _judged(self, site: str, judgement: Judgement, retry_after: float) -> None:
        """A blocked site's pages are put back, and its shards end as soon as they can."""
        if judgement.state is not SiteState.BLOCKED:
            return
        check = self._checks.get(site)
        if check is not None:
            self._over(check)
        trouble = Trouble(
            Where.PAGE, ErrorKind.BLOCKED, "SiteBlocked", judgement.reason,
            retry_after=retry_after or None,
        )  # fmt: skip
        for shard in list(self._flow.shards.values()):
            if shard.site == site:
                self.put_back(shard, trouble)

    def put_back(self, shard: HeldShard, trouble: Trouble) -> None:
        """End the shard: what is not stored yet is read again by whoever claims it next."""
        self.give_up(shard, shard.walk.block(trouble))

    def give_up(self, shard: HeldShard, stranded: list[Action]) -> None:
        """Nothing more of the shard is asked for: *stranded* pages, and those that wait for a
        check or to be tried again, wait in vain."""
        waits = {*shard.doubted, *shard.timers, *shard.walk.ready}
        shard.doubted.clear()
        self._flow.act(shard, [*stranded, *map(Discard, sorted(waits))])

    def _rested(self, shard: HeldShard) -> None:
        shard.resting = False
        self._flow.wake()


def _asked(response: Response) -> str:
    return response.url if response.request is None else response.request.url


def _failed(end: PageEnd, trouble: Trouble) -> PageEnd:
    return replace(end, decision=Decision.FAILED, trouble=trouble, record=None)


def _says(trouble: Trouble) -> bool:
    """Did the spider say that the site blocks, and not we?"""
    return trouble.error_class not in (Redirected.__name__, "OddPage", "SiteRests")


def _sites(trouble: Trouble) -> bool:
    """May the site be the cause?"""
    return trouble.kind in (ErrorKind.RETRYABLE, ErrorKind.PERMANENT, ErrorKind.BLOCKED)
