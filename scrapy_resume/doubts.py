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

A page whose details were refused is doubted too: a site that begins to refuse everything is
judged blocked some answers later. The next good answer of the site, to whatever request, has
it stored without them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from scrapy.utils.asyncio import call_later
from twisted.internet.defer import Deferred

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
_LOOK = 1.0  # seconds between two looks whether others of a site still read
UNHEALTHY = "unhealthy: no page holds items, although an earlier run stored some"


class Doubts:
    """The doubted pages of one crawl, and what becomes of them."""

    def __init__(self, flow: PageFlow, watch: SiteWatch) -> None:
        self._flow, self.watch = flow, watch
        logs_in = bool(getattr(flow.spider, "logs_in", False))
        self.suspicion = Suspicion(watch, logs_in=logs_in, wake=flow.wake)
        self.checks = Checks(lambda page: flow.ledger.abandon(page))
        self._looking: set[str] = set()
        watch.listeners.append(self.judged)
        watch.answered = self.answered

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
            self.answered(check.site)
            self._well(check.site, check.sight)

    def check_closed(self, page: OpenPage) -> None:
        """Nothing of a check's page is outstanding, and it was not read."""
        check = self.checks.of(page)
        if check is not None:
            trouble = page.troubles[0] if page.troubles else None
            why = "" if trouble is None else f": {trouble.error_class}: {trouble.error}"
            self.check_failed(check, f"{check.words}, which held items before, failed{why}")

    def closed(self, shard: HeldShard, end: PageEnd, page: OpenPage) -> tuple[PageEnd, bool]:
        """What became of a page, in the light of what is known of its site, and whether it is
        to be doubted. If its site is tried with it and it is not, that is decided."""
        end = self.suspicion.judged(shard, end, page)
        sight = shard.sights.get(end.number)
        if sight is not None:
            sight.refused = self._misses_details(shard, end, page)
        if not shard.trying or self.suspects(shard, end):
            return end, self.suspects(shard, end)
        end = self._tried(shard, end, page)
        return end, self.suspects(shard, end)

    def _tried(self, shard: HeldShard, end: PageEnd, page: OpenPage) -> PageEnd:
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
            return sight is not None and sight.refused
        return (
            sight.refused or self._is_refused(shard, end) or (self.suspicion.on and is_empty(end))
        )

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

    def _misses_details(self, shard: HeldShard, end: PageEnd, page: OpenPage) -> bool:
        """Were details of a complete page refused, and has its site given no good answer since?
        Then the site may have begun to refuse everything."""
        if shard.trying or not self.suspicion.on or end.decision is not Decision.COMPLETE:
            return False
        statuses = self.watch.limits.statuses
        details = (one for one in page.troubles if one.where is Where.REQUEST)
        refused = any(one.is_refusal(statuses) for one in details)
        return refused and self.watch.facts(shard.site).window.refusals > 0

    def answered(self, site: str) -> None:
        """The site gave a good answer: it does not refuse everything. That to a check says so
        only once it is read."""
        check = self.checks.at(site)
        sights = (shard.sights.get(number) for shard, number in self._doubted(site))
        if (check is None or check.page is None) and any(map(_lacks_details, sights)):
            self._store(site, _lacks_details)

    def keep(self, shard: HeldShard, end: PageEnd) -> None:
        """Doubt an empty or refused page, or one whose details were; one of a blocked site is put
        back at once."""
        walk, sight = shard.walk, shard.sights.get(end.number)
        if self.watch.is_blocked(shard.site) or walk.blocked is not None or walk.leaving:
            self._flow.act(shard, [Discard(end.number)])
            return
        shard.doubted[end.number] = end
        walk.doubted.add(end.number)
        if is_empty(end):
            self.watch.note(shard.site, Signal.EMPTY, f"page {end.number}")
        elif sight is not None and sight.refused:
            sight.arrived = self.suspicion.now()  # with the last of its details
            facts = self.watch.facts(shard.site)
            if facts.good is None and not end.empty and not sight.cached:
                facts.good = Good(walk.claimed.shard, end.number, sight.request)
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
        quiet, full = [one for one in doubted if one.quiet], self._is_full(site)
        if quiet and not full and self._others_tell(site, quiet):
            self._look_later(site)
        elif quiet or (doubted and full):
            self.checks.begin(next(iter(quiet or doubted)))
            self._flow.wake()

    def _others_tell(self, site: str, quiet: list[HeldShard]) -> bool:
        """Do *quiet* shards wait for nothing but a good answer, and is more of the site read?"""
        sights = (one.sights.get(number) for one in quiet for number in one.doubted)
        shards = self._flow.shards.values()
        others = any(one.site == site and not one.quiet for one in shards)
        return others and all(map(_lacks_details, sights))

    def _look_later(self, site: str) -> None:
        """What the others read may end without any answer."""
        if site not in self._looking:
            self._looking.add(site)
            call_later(_LOOK, self._look, site)

    def _look(self, site: str) -> None:
        self._looking.discard(site)
        if any(self._doubted(site)):
            self._reconsider(site)

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
        self._store(site, lambda sight: sight is None or sight.arrived < moment)

    def _store(self, site: str, believed: Callable[[Sight | None], bool]) -> None:
        """Act upon the doubted pages whose sight is *believed*."""
        if not any(shard.doubted for shard in self._flow.shards.values()):
            return
        for shard, number in list(self._doubted(site)):
            sight = shard.sights.get(number)
            if number in shard.doubted and believed(sight):
                end = shard.doubted.pop(number)
                shard.walk.doubted.discard(number)
                shard.waiting[number] = Deferred()  # it is read: nobody waits for more of it
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


def _lacks_details(sight: Sight | None) -> bool:
    return sight is not None and sight.refused
