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

from collections.abc import Iterator
from typing import TYPE_CHECKING

from scrapy.utils.asyncio import call_later

from scrapy_resume.checks import Check, Checks
from scrapy_resume.health import Judgement, Signal, SiteState
from scrapy_resume.page import Decision, ErrorKind, Trouble, Where
from scrapy_resume.paging import Action, Discard, PageEnd
from scrapy_resume.sitewatch import Good, SiteWatch
from scrapy_resume.suspicion import ODD_PAGE, Sight, Suspicion, is_empty, is_own_word

if TYPE_CHECKING:
    from scrapy import Request

    from scrapy_resume.heldshard import HeldShard
    from scrapy_resume.ledger import OpenPage
    from scrapy_resume.pageflow import PageFlow

UNTOLD = "it was tried, and no page of this run is known to hold items as those of others are"
UNHEALTHY = "unhealthy: no page holds items, although an earlier run stored some"


class Doubts:
    """The doubted pages of one crawl, and what becomes of them."""

    def __init__(self, flow: PageFlow, watch: SiteWatch) -> None:
        self._flow, self.watch = flow, watch
        logs_in = bool(getattr(flow.spider, "logs_in", False))
        self.suspicion = Suspicion(watch, logs_in=logs_in, wake=flow.wake)
        self.checks = Checks(lambda page: flow.ledger.abandon(page))
        watch.listeners.append(self.judged)

    # What the opener asks

    def opened(self, request: Request) -> Sight:
        """A list request is on its way."""
        return Sight(request, self.suspicion.now())

    def may_open(self, shard: HeldShard) -> bool:
        """Whether another page of the shard, or a check in it, may be asked for now."""
        rest = self.watch.resting(shard.site)
        if rest and not shard.resting:
            shard.resting = True
            call_later(rest, self._rested, shard)
        return not rest and not self.suspicion.login_due

    def has_room(self, shard: HeldShard) -> bool:
        """Whether pages may still be read, and not too many of the site are doubted."""
        site = shard.site
        return self.checks.at(site) is None and not self._is_full(site)

    def nothing_known(self, check: Check, stored_before: bool, others: bool = False) -> None:
        """No page of the run has items that could be asked for again.

        A blocked site does not pass by that if *others* can tell how it is.
        """
        if not self.checks.end(check):
            return
        if others and check.shard.trying:
            self.watch.note(check.site, Signal.BLOCKED, UNTOLD)
        elif stored_before and any(is_empty(s.doubted[n]) for s, n in self._doubted(check.site)):
            self.watch.note(check.site, Signal.BLOCKED, UNHEALTHY)
        else:
            self.watch.note(check.site, Signal.ITEMS)
            self._end_probes(check.site, True, "its list is empty, as it ever was")
            self._believe(check.site, self.suspicion.now())
        self._flow.wake()

    def check_failed(self, check: Check, why: str) -> None:
        """The check could not be asked, or its page has no items any more."""
        if self.checks.end(check):
            self.watch.note(check.site, Signal.BLOCKED, why)
            self._flow.wake()

    # What the page flow tells

    def held(self, shard: HeldShard) -> None:
        """A shard was claimed. While others of its site end, which was judged blocked, it does
        so too: each of its pages would be refused."""
        if self.watch.is_blocked(shard.site):
            judgement = self.watch.judgement(shard.site)
            self._block(shard, judgement, self.watch.resting(shard.site))

    def sight_of(
        self, page: OpenPage, held: tuple[HeldShard, int] | None
    ) -> tuple[str, Sight | None]:
        """The site of an open page, and what is seen of it; *held* is None for a check."""
        if held is not None:
            return held[0].site, held[0].sights.get(held[1])
        check = self.checks.of(page)
        return ("", None) if check is None else (check.site, check.sight)

    def check_read(self, page: OpenPage) -> None:
        """The list callback of a check is through."""
        check = self.checks.of(page)
        if check is None or check.sight is None:
            return
        if not page.yielded:
            self.watch.facts(check.site).barren.add((page.page.shard.key, page.page.number))
            self.check_failed(check, f"{check.words}, which held items before, holds none now")
        elif self.checks.end(check):
            self.suspicion.read(check.site, check.sight, True)
            self._well(check.site, check.sight)

    def check_closed(self, page: OpenPage) -> None:
        """Nothing of a check's page is outstanding, and it was not read."""
        check = self.checks.of(page)
        if check is not None:
            trouble = page.troubles[0] if page.troubles else None
            why = "" if trouble is None else f": {trouble.error_class}: {trouble.error}"
            self.check_failed(check, f"{check.words}, which held items before, failed{why}")

    def closed(self, shard: HeldShard, end: PageEnd, page: OpenPage) -> PageEnd:
        """What became of a page, in the light of what is known of its site.

        If its site is tried with it, that is decided, unless the page is to be doubted.
        """
        end = self.suspicion.judged(shard, end, page)
        if not shard.trying or self.suspects(shard, end):
            return end
        failed = end.decision is Decision.FAILED
        if not failed and not self.watch.facts(shard.site).window.refuses:
            self._end_probe(shard, True, f"page {end.number} was read")
            return end
        # Else it is no page, or one whose details were refused.
        details = (one for one in page.troubles if one.where is Where.REQUEST)
        self.probe_failed(shard, end.trouble if failed else next(details, None))
        return self.suspicion.judged(shard, end, page)

    def probe_failed(self, shard: HeldShard, trouble: Trouble | None) -> None:
        """The page that its site was tried with is none: the site is blocked as before."""
        why = "" if trouble is None else f": {trouble.error_class}: {trouble.error}"
        self.watch.note(shard.site, Signal.BLOCKED, f"it was tried{why}")

    def suspects(self, shard: HeldShard, end: PageEnd) -> bool:
        """Whether the page is empty without anybody's word that it is right so, or was refused
        as all others may be."""
        sight = shard.sights.get(end.number)
        if sight is None or sight.vouched:
            return False
        return self._is_refused(shard, end) or (self.suspicion.on and is_empty(end))

    def _is_refused(self, shard: HeldShard, end: PageEnd) -> bool:
        """Is the page to be given up, and has its site given no good answer since it was first
        asked for? Then it may be the site's fault."""
        trouble, watch = end.trouble, self.watch
        if shard.trying:
            return False  # it was blocked, and is so still
        if trouble is None or not watch.on or not trouble.is_refusal(watch.limits.statuses):
            return False
        tries = shard.walk.attempts.get(end.number, 1)
        refusals = watch.facts(shard.site).window.refusals
        return refusals >= tries and not shard.walk.tries_again(end.number, trouble)

    def keep(self, shard: HeldShard, end: PageEnd) -> None:
        """Doubt an empty or refused page; one of a blocked site is put back at once."""
        walk = shard.walk
        if self.watch.is_blocked(shard.site) or walk.blocked is not None or walk.leaving:
            self._flow.act(shard, [Discard(end.number)])
            return
        shard.doubted[end.number] = end
        walk.doubted.add(end.number)
        if is_empty(end):
            self.watch.note(shard.site, Signal.EMPTY, f"page {end.number}")
        self.consider(shard)
        self._flow.wake()

    def told(self, shard: HeldShard, end: PageEnd, sight: Sight | None) -> None:
        """The page was acted upon: say what it tells of its site."""
        site, trouble = shard.site, end.trouble
        if sight is None:
            return
        if end.decision is Decision.COMPLETE and not end.empty:
            facts = self.watch.facts(site)
            facts.moves.learn(sight.asked, sight.got)
            if not sight.cached:
                facts.good = Good(shard.walk.claimed.shard, end.number, sight.request)
                self._well(site, sight)
        elif trouble is not None and trouble.error_class == ODD_PAGE:
            self.watch.note(site, Signal.ODD, f"page {end.number}")
        elif trouble is not None and is_own_word(trouble):
            self.watch.note(site, Signal.BLOCKED, trouble.error)

    def consider(self, shard: HeldShard) -> None:
        """Have a page known to have items asked for, if it is time."""
        site = shard.site
        if self.checks.at(site) or self._flow.stopping or self.watch.is_blocked(site):
            return
        doubted = dict.fromkeys(one for one, _ in self._doubted(site))
        quiet = [one for one in doubted if one.quiet]
        if quiet or (doubted and self._is_full(site)):
            self.checks.begin(next(iter(quiet or doubted)))
            self._flow.wake()

    def gone(self, shard: HeldShard) -> None:
        """The shard is ours no more, and so is a check that was asked in it."""
        if shard.probe is not None:
            shard.probe.end(None)
        check = self.checks.at(shard.site)
        if check is not None and check.shard is shard:
            self.checks.end(check)
            self._reconsider(shard.site)

    def give_up(self, shard: HeldShard, stranded: list[Action]) -> None:
        """Nothing more of the shard is asked for: *stranded* pages, and those that wait for a
        check or to be tried again, wait in vain."""
        waits = {*shard.doubted, *shard.timers, *shard.walk.ready}
        shard.doubted.clear()
        self._flow.act(shard, [*stranded, *map(Discard, sorted(waits))])

    # Inside

    def _end_probes(self, site: str, passed: bool, why: str) -> None:
        for shard in list(self._flow.shards.values()):
            if shard.site == site and shard.trying:
                self._end_probe(shard, passed, why)

    def _end_probe(self, shard: HeldShard, passed: bool, why: str) -> None:
        assert shard.probe is not None
        if passed:
            shard.walk.policy = shard.probe.policy
            self._flow.wake()
        shard.probe.end(passed, why)

    def _doubted(self, site: str) -> Iterator[tuple[HeldShard, int]]:
        for shard in list(self._flow.shards.values()):
            if shard.doubted and shard.site == site:
                for number in sorted(shard.doubted):
                    yield shard, number

    def _is_full(self, site: str) -> bool:
        limit = self.watch.limits.empty_pages
        return self.suspicion.on and sum(1 for _ in self._doubted(site)) >= limit

    def _well(self, site: str, sight: Sight) -> None:
        """A page with items came: what arrived empty before it was asked for is true."""
        self.suspicion.found_items(sight)
        self.watch.note(site, Signal.ITEMS)
        self._end_probes(site, True, "a page of it held what it should")
        self._believe(site, sight.opened)

    def _believe(self, site: str, moment: int) -> None:
        """What arrived empty before *moment* is true, unless it looks unlike the list."""
        if not any(shard.doubted for shard in self._flow.shards.values()):
            return
        for shard, number in list(self._doubted(site)):
            sight = shard.sights.get(number)
            if number in shard.doubted and (sight is None or sight.arrived < moment):
                end = shard.doubted.pop(number)
                shard.walk.doubted.discard(number)
                if sight is not None and is_empty(end):
                    end = self.suspicion.in_light(shard, end, sight)
                self._flow.act(shard, shard.walk.closed(end))
                self.told(shard, end, sight)
        self._reconsider(site)

    def _reconsider(self, site: str) -> None:
        """What is still doubted may need a check now, and else none is needed."""
        left = dict.fromkeys(shard for shard, _ in self._doubted(site))
        if not left:
            self.checks.end(self.checks.at(site))
        for shard in left:
            self.consider(shard)
        self._flow.wake()

    def judged(self, site: str, judgement: Judgement, retry_after: float) -> None:
        """A blocked site's pages are put back, and its shards end as soon as they can."""
        if judgement.state is not SiteState.BLOCKED:
            return
        self._end_probes(site, False, judgement.reason)
        self.checks.end(self.checks.at(site))
        for shard in list(self._flow.shards.values()):
            if shard.site == site:
                self._block(shard, judgement, retry_after)

    def _block(self, shard: HeldShard, judgement: Judgement, retry_after: float) -> None:
        trouble = Trouble(
            Where.PAGE, ErrorKind.BLOCKED, "SiteBlocked", judgement.reason,
            retry_after=retry_after or None,
        )  # fmt: skip
        self.give_up(shard, shard.walk.block(trouble))

    def _rested(self, shard: HeldShard) -> None:
        shard.resting = False
        self._flow.wake()
