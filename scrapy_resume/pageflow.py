"""From a page's last event to its COMMIT: the ledger's listener.

The ledger tells when a list response arrived, when its callback is through and when
nothing of the page is outstanding any more. Here the page is judged, its shard's walk
says what to do, and the record goes to the committer. The Deferred given back to the
ledger keeps the page's last request "in progress" until the page is durable, which is
both the back-pressure and what a graceful stop waits for.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from scrapy.utils.asyncio import call_later
from scrapy.utils.defer import ensure_awaitable
from twisted.internet.defer import Deferred

from scrapy_resume.committer import Committer
from scrapy_resume.doubts import Doubts
from scrapy_resume.exceptions import NotAPage, ResumeError
from scrapy_resume.followup import FollowUp
from scrapy_resume.health import HealthLimits
from scrapy_resume.heldshard import HeldShard, Probe
from scrapy_resume.loopguard import digest
from scrapy_resume.page import Decision
from scrapy_resume.pagejudge import PageJudge, aside, own_fault
from scrapy_resume.paging import Action, Commit, Discard, Hold, PageEnd, Retry, SetAside, Walk
from scrapy_resume.sitewatch import SiteWatch
from scrapy_resume.store.checkpoints import PageFailure, PageRecord, Release
from scrapy_resume.walks import ChainWalk, OpenEndedWalk

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.http import Response

    from scrapy_resume.ledger import Ledger, OpenPage
    from scrapy_resume.mixins import ResumeSpiderMixin

logger = logging.getLogger(__name__)

_ENDING = "no page is asked for any more, and shards are given back once what is read is stored"
_WISHES = {
    "run": "goes on",
    "pause": f"is paused: {_ENDING}",
    "cancel": f"is cancelled: {_ENDING}",
}


class PageFlow:
    """Judges pages and moves them to the committer, for every shard held."""

    def __init__(
        self,
        spider: ResumeSpiderMixin,
        committer: Committer,
        *,
        hold_records: bool,
        wake: Callable[[], None],
        freed: Callable[[bool], None],
        stopped: Callable[[], None],
        fail: Callable[[BaseException], None],
        grace: float,
        inc_stat: Callable[..., None],
        watch: SiteWatch | None = None,
    ) -> None:
        self.shards: dict[int, HeldShard] = {}
        self.stopping = False
        self.wished = "run"
        self.read_now = 0
        self._by_token: dict[str, tuple[HeldShard, int]] = {}
        self.ledger: Ledger
        self.spider, self._committer = spider, committer
        self.hold_records, self.wake, self.inc_stat = hold_records, wake, inc_stat
        self.freed = freed
        self.key_of: Callable[[Any], str | None] | None = None
        self._on_stop, self.fail, self._grace = stopped, fail, grace
        self._judge = PageJudge(spider, hold_records=hold_records)
        self.watch = watch or SiteWatch(HealthLimits(), on=False, inc_stat=inc_stat)
        self.doubts = Doubts(self, self.watch)
        self._follow = FollowUp(self, committer)

    # What the claim loop calls

    def hold(self, walk: Walk, probe: Probe | None = None) -> None:
        """A shard was claimed, perhaps as a *probe* of its site.

        Perhaps one that we held before: it may have been taken from us, and come back,
        before a heartbeat could tell. Pages of the earlier claim must not keep waiting.
        """
        if self.stopping:
            return  # it is given back with all that is on record as ours
        shard = HeldShard(walk, probe)
        if shard.id in self.shards:
            self.lose([shard.id])
        if not any(one.site == shard.site and one.walk.blocked for one in self.shards.values()):
            self.watch.begin(shard.site, anew=probe is not None)
        self.shards[shard.id] = shard
        walk.blocked_before = self._follow.blocked_before(shard.id)
        self._committer.hold(walk.claimed)
        self.doubts.held(shard)
        self.end_if_idle(shard)

    def site_of(self, page: OpenPage) -> str | None:
        """The site that an open page is read from; None if nobody waits for it any more."""
        held = self._by_token.get(page.token)
        return self.doubts.sight_of(page, held)[0] or None

    def opened(self, shard: HeldShard, number: int, page: OpenPage, request: Request) -> None:
        """A page of a held shard is about to be asked for."""
        shard.begun = True
        shard.sights[number] = self.doubts.opened(request)
        shard.open[number] = page
        self._by_token[page.token] = (shard, number)
        self.read_now += 1

    def pressing(self, waiting: int) -> bool:
        """Whether *waiting* complete pages, which keep their places, are enough to store now.

        They are when nothing is being read that could join them, or when neither the
        pages being read nor the free slots outnumber them. Pages that keep no place are in
        no hurry as long as others may come.
        """
        if self.read_now == 0:
            return waiting > 0 or not any(one.walk.may_open for one in self.shards.values())
        slots = sum(shard.walk.policy.in_flight for shard in self.shards.values())
        return waiting >= max(self.read_now, slots - self.read_now - waiting)

    def not_opened(self, shard: HeldShard, number: int, error: Exception) -> None:
        """The spider could not say how to ask for a page."""
        shard.begun = True
        trouble = own_fault(error)
        if shard.trying:
            self.doubts.probe_failed(shard, trouble)
        self.act(shard, shard.walk.closed(PageEnd(number, Decision.FAILED, trouble)))

    def lose(self, shard_ids: Any) -> None:
        """These shards belong to others now: drop their pages, say so once."""
        for shard_id in shard_ids:
            shard = self.shards.pop(shard_id, None)
            if shard is None:
                continue
            self.inc_stat("leases/lost")
            logger.warning(
                "lost lease: shard %d of the run was taken over; its %d open pages are dropped",
                shard.walk.claimed.shard_no, len(shard.open),
                extra={"action": "lease_lost", "shard": shard_id},
            )  # fmt: skip
            self._let_go(shard)
            self._committer.lose(shard_id)
        self.wake()

    def use(self, committer: Committer, inc_stat: Callable[..., None]) -> None:
        """Have what is read from now on stored by *committer*. The shards held until now are
        let go: nothing more is said of them."""
        while self.shards:
            self._let_go(self.shards.popitem()[1])
        self._committer, self.inc_stat = committer, inc_stat
        self._follow = FollowUp(self, committer)

    def _let_go(self, shard: HeldShard) -> None:
        for page in shard.open.values():
            self.ledger.drop(page)
        self._drop_all(shard)
        self.doubts.gone(shard)

    def wish(self, desired: str) -> None:
        """What the operator wishes of the run: unless it is to run, no page is opened any
        more, and each shard is given back once its pages in flight are stored.

        A shard that is on its way back stays so: whoever claims it next reads it on.
        """
        if desired != self.wished:
            self.wished = desired
            logger.info("The run %s", _WISHES[desired], extra={"action": "wished"})
        if desired != "run":
            for shard in list(self.shards.values()):
                if not shard.walk.leaving:
                    self.doubts.give_up(shard, shard.walk.leave())
        self.wake()

    def closing(self) -> None:
        """The engine closes: queued requests will not be asked for any more."""
        self._on_stop()
        self.stop()

    def stop(self) -> None:
        """The crawl is closing: nothing may wait for pages that will never be asked for."""
        if self.stopping:
            return
        self.stopping = True
        for shard in self.shards.values():
            for number in shard.waiting.keys() - shard.committing.keys():
                shard.waiting.pop(number).callback(None)
        self._committer.hurry(self._grace)

    def abandon(self) -> None:
        """The grace is over: what is still being read is nobody's any more.

        Its downloads and its code are about to be ended, which says nothing of the page.
        """
        for shard in self.shards.values():
            for number in shard.open.keys() - shard.committing.keys():
                self.forget(shard, number)

    async def release_all(self, why: str | None = None) -> None:
        """Give every held shard back, once what was submitted is stored.

        *why* is the error that stopped the crawl, if one did.
        """
        await self._committer.drained()
        for shard in list(self.shards.values()):
            if not shard.ending:
                shard.ending = True
                ids = (shard.id, shard.token)
                reason = "released: the crawl was stopped" + (f" by: {why}" if why else "")
                self._follow.submit(shard, Release(*ids, reason, None, None, False, None))
            self._drop_all(shard)
        await self._committer.drained()

    # What the ledger calls

    async def before_callback(self, page: OpenPage, response: Response) -> None:
        """Check a list response; an exception from here fails the page quietly."""
        held = self._by_token.get(page.token)
        site, sight = self.doubts.sight_of(page, held)
        if sight is None:
            return
        self.doubts.suspicion.arrived(site, sight, response)
        if response.status == 200 and not response.body:
            raise NotAPage("the body is empty (0 bytes)")
        checked = self.spider.check_page(response, page.page)
        if checked is not None:
            sight.vouched = await ensure_awaitable(checked) is True
        if held is None:
            return
        shard, number = held
        stated = self.spider.stated_total(response)
        if stated is not None:
            shard.stated[number] = int(stated)
        if isinstance(shard.walk, (OpenEndedWalk, ChainWalk)):
            shard.body_digest[number] = digest([response.body.hex()])

    def page_read(self, page: OpenPage) -> None:
        """The list callback is through: a chain may go on to its next page."""
        held = self._by_token.get(page.token)
        if held is None:
            self.doubts.check_read(page)
            return
        shard, number = held
        if (sight := shard.sights.get(number)) is not None:
            self.doubts.suspicion.read(shard.site, sight, page.yielded > 0)
        try:
            shard.walk.read(number, self._judge.next_cursor(shard, page), page.end_reason)
            if page.next_request is not None:
                shard.following[number + 1] = page.next_request
        except ResumeError as error:
            page.troubles.append(own_fault(error))
        self.wake()

    def page_closed(self, page: OpenPage) -> Deferred[None] | None:
        """Nothing of the page is outstanding: judge it, and store it if it is complete."""
        held = self._by_token.pop(page.token, None)
        if held is None:
            self.doubts.check_closed(page)
            return None
        shard, number = held
        self.read_now -= 1
        end, suspect = self.doubts.closed(shard, self._judge.end(shard, number, page), page)
        sight = shard.sights.get(number)
        if self.stopping and (suspect or end.decision is not Decision.COMPLETE):
            self.forget(shard, number)
            return None
        if suspect:
            self.doubts.keep(shard, end)
            self._committer.consider()
            return None
        durable: Deferred[None] = Deferred()
        shard.waiting[number] = durable
        self.act(shard, shard.walk.closed(end))
        self.doubts.told(shard, end, sight)
        if self.stopping and number in shard.waiting and number not in shard.committing:
            shard.waiting.pop(number).callback(None)
        self._committer.consider()
        return durable

    def item_key(self, item: Any) -> str | None:
        """The key a failed item would be stored under, for its record in quarantine."""
        if self.key_of is None:
            return None
        try:
            return self.key_of(item)
        except Exception:
            return None

    # Inside

    def act(self, shard: HeldShard, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, Commit):
                self._follow.submit(shard, action.record)
            elif isinstance(action, Retry):
                self._retry(shard, action)
            elif isinstance(action, Hold):
                ids = (shard.id, shard.token, action.number)
                self._follow.submit(shard, PageFailure(*ids, action.trouble, action.attempts))
            elif isinstance(action, SetAside):
                apart = aside(shard.walk, action.number, action.trouble, action.attempts)
                ids = (shard.id, shard.token, action.number)
                self._follow.submit(shard, PageRecord(*ids, (), (apart,), 0))
            elif isinstance(action, Discard):
                self._discard(shard, action.number)
        self.end_if_idle(shard)

    def _retry(self, shard: HeldShard, action: Retry) -> None:
        self.inc_stat("pages/retried")
        self.forget(shard, action.number)
        if not self.stopping:
            timer = call_later(action.delay, self._retry_due, shard, action.number)
            shard.timers[action.number] = timer

    def _retry_due(self, shard: HeldShard, number: int) -> None:
        shard.timers.pop(number, None)
        shard.walk.retry_due(number)
        self.wake()

    def _discard(self, shard: HeldShard, number: int) -> None:
        shard.committing.pop(number, None)
        shard.walk.settled(number, None)
        self.forget(shard, number)

    def forget(self, shard: HeldShard, number: int) -> None:
        """Nobody waits for what is read of the page any more: let its request go."""
        page = shard.open.pop(number, None)
        if page is not None:
            if self._by_token.pop(page.token, None) is not None:
                self.read_now -= 1
            self.ledger.abandon(page)
        shard.body_digest.pop(number, None)
        shard.sights.pop(number, None)
        shard.doubted.pop(number, None)
        if (timer := shard.timers.pop(number, None)) is not None:
            timer.cancel()
        waiting = shard.waiting.pop(number, None)
        if waiting is not None:
            waiting.callback(None)

    def _drop_all(self, shard: HeldShard) -> None:
        for number in {*shard.open, *shard.waiting, *shard.timers}:
            self.forget(shard, number)

    def end_if_idle(self, shard: HeldShard) -> None:
        """Say the last word of the shard if nothing of it is being read or stored."""
        ours = self.shards.get(shard.id) is shard
        if not ours or shard.ending or self.stopping:
            return
        if shard.doubted:
            self.doubts.consider(shard)
        elif shard.walk.idle:
            shard.ending = True
            for number in sorted(shard.walk.in_flight):
                self._discard(shard, number)  # empty pages that no later page will judge
            self._follow.submit(shard, shard.walk.result())
