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
from twisted.python.failure import Failure

from scrapy_resume import cursor
from scrapy_resume.committer import Committer, Outcome
from scrapy_resume.doubts import Doubts
from scrapy_resume.exceptions import NotAPage, ResumeError
from scrapy_resume.health import HealthLimits
from scrapy_resume.heldshard import HeldShard, content_of, own_fault, place, statuses
from scrapy_resume.loopguard import digest
from scrapy_resume.page import Decision, ErrorKind, Trouble, judge
from scrapy_resume.paging import Action, Commit, Discard, Hold, PageEnd, Retry, SetAside, Walk
from scrapy_resume.sitewatch import SiteWatch
from scrapy_resume.store.checkpoints import Finish, PageFailure, PageRecord, Release
from scrapy_resume.store.quarantine import QuarantineRecord
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
        self._blocked: dict[int, int] = {}  # times in a row that we gave a shard back as blocked
        self.ledger: Ledger
        self.spider, self._committer = spider, committer
        self._hold_records, self.wake, self._inc = hold_records, wake, inc_stat
        self._freed = freed
        self.key_of: Callable[[Any], str | None] | None = None
        self._on_stop, self._fail, self._grace = stopped, fail, grace
        self._end_statuses = statuses(spider.end_statuses)
        self.watch = watch or SiteWatch(HealthLimits(), on=False, inc_stat=inc_stat)
        self.doubts = Doubts(self, self.watch)

    # What the claim loop calls

    def hold(self, walk: Walk) -> None:
        """A shard was claimed.

        Perhaps one that we held before: it may have been taken from us, and come back,
        before a heartbeat could tell. Pages of the earlier claim must not keep waiting.
        """
        shard = HeldShard(walk)
        if shard.id in self.shards:
            self.lose([shard.id])
        if not any(one.site == shard.site and one.walk.blocked for one in self.shards.values()):
            self.watch.begin(shard.site)
        self.shards[shard.id] = shard
        walk.blocked_before = self._blocked.get(shard.id, 0)
        self._committer.positions[shard.id] = walk.position
        self._end_if_idle(shard)

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
        """Whether *waiting* complete pages are enough to commit them now.

        They are when nothing is being read that could join them, or when neither the
        pages being read nor the free slots outnumber them.
        """
        if self.read_now == 0:
            return True
        slots = sum(shard.walk.policy.in_flight for shard in self.shards.values())
        return waiting >= max(self.read_now, slots - self.read_now - waiting)

    def not_opened(self, shard: HeldShard, number: int, error: Exception) -> None:
        """The spider could not say how to ask for a page."""
        shard.begun = True
        trouble = own_fault(error)
        self.act(shard, shard.walk.closed(PageEnd(number, Decision.FAILED, trouble)))

    def lose(self, shard_ids: Any) -> None:
        """These shards belong to others now: drop their pages, say so once."""
        for shard_id in shard_ids:
            shard = self.shards.pop(shard_id, None)
            if shard is None:
                continue
            self._inc("leases/lost")
            logger.warning(
                "lost lease: shard %d of the run was taken over; its %d open pages are dropped",
                shard.walk.claimed.shard_no, len(shard.open),
                extra={"action": "lease_lost", "shard": shard_id},
            )  # fmt: skip
            for page in shard.open.values():
                self.ledger.drop(page)
            self._drop_all(shard)
            self.doubts.gone(shard)
        self.wake()

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
            for number in set(shard.waiting) - shard.committing:
                shard.waiting.pop(number).callback(None)
        self._committer.hurry(self._grace)

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
                self._submit(shard, Release(*ids, reason, None, None, False, None))
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
            shard.walk.read(number, self._next_cursor(shard, page), page.end_reason)
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
        end = self.doubts.suspicion.judged(shard, self._judged(shard, number, page), page)
        sight = shard.sights.get(number)
        suspect = self.doubts.suspects(shard, end)
        if self.stopping and (suspect or end.decision is not Decision.COMPLETE):
            self._forget(shard, number)
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

    def _judged(self, shard: HeldShard, number: int, page: OpenPage) -> PageEnd:
        walk = shard.walk
        open_ended = isinstance(walk, OpenEndedWalk)
        decision, trouble = judge(
            page.troubles,
            hold_records=self._hold_records,
            end_statuses=self._end_statuses if open_ended else frozenset(),
        )
        try:
            next_cursor = self._next_cursor(shard, page)
        except ResumeError as error:
            next_cursor, decision, trouble = None, Decision.FAILED, own_fault(error)
        rows = tuple(row for _, row in sorted(page.rows, key=lambda numbered: numbered[0]))
        record = None
        content = "" if page.yielded == 0 else content_of(shard, number, page, rows)
        if decision is Decision.COMPLETE:
            place(rows, walk, number)
            aside = tuple(self._aside(walk, number, t, page.page.attempt) for t in page.troubles)
            record = PageRecord(shard.id, shard.token, number, rows, aside, page.items_dropped)
        return PageEnd(
            number, decision, trouble, record,
            rows=page.items_in,
            empty=page.yielded == 0,
            content=content,
            next_cursor=next_cursor,
            end_reason=page.end_reason,
            stated_total=shard.stated.pop(number, None),
        )  # fmt: skip

    def _next_cursor(self, shard: HeldShard, page: OpenPage) -> str | None:
        if not page.has_next or not isinstance(shard.walk, ChainWalk):
            if page.has_next:
                raise ResumeError("next_page() in a numbered shard, whose pages need no cursor")
            return None
        if page.next_request is not None:
            return cursor.dump(cursor.of_request(page.next_request, self.spider))
        return cursor.dump(page.next_cursor)

    def _aside(self, walk: Walk, number: int, trouble: Trouble, tries: int) -> QuarantineRecord:
        claimed = walk.claimed
        return QuarantineRecord(
            task_id=claimed.task_id, shard_id=claimed.id, shard_no=claimed.shard_no, page=number,
            kind=trouble.where.value, url=trouble.url, item_key=trouble.item_key,
            error_class=trouble.error_class, error=trouble.error, attempts=tries,
            item_table=trouble.item_table, column_name=trouble.column, value=trouble.value,
        )  # fmt: skip

    def act(self, shard: HeldShard, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, Commit):
                self._submit(shard, action.record)
            elif isinstance(action, Retry):
                self._retry(shard, action)
            elif isinstance(action, Hold):
                ids = (shard.id, shard.token, action.number)
                self._submit(shard, PageFailure(*ids, action.trouble, action.attempts))
            elif isinstance(action, SetAside):
                aside = self._aside(shard.walk, action.number, action.trouble, action.attempts)
                ids = (shard.id, shard.token, action.number)
                self._submit(shard, PageRecord(*ids, (), (aside,), 0))
            elif isinstance(action, Discard):
                self._discard(shard, action.number)
        self._end_if_idle(shard)

    def _retry(self, shard: HeldShard, action: Retry) -> None:
        self._inc("pages/retried")
        self._forget(shard, action.number)
        if not self.stopping:
            timer = call_later(action.delay, self._retry_due, shard, action.number)
            shard.timers[action.number] = timer

    def _retry_due(self, shard: HeldShard, number: int) -> None:
        shard.timers.pop(number, None)
        shard.walk.retry_due(number)
        self.wake()

    def _discard(self, shard: HeldShard, number: int) -> None:
        shard.walk.settled(number, None)
        self._forget(shard, number)

    def _forget(self, shard: HeldShard, number: int) -> None:
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
            self._forget(shard, number)

    def _submit(self, shard: HeldShard, record: Any) -> None:
        if isinstance(record, (PageRecord, PageFailure)):
            shard.committing.add(record.page)
        outcome = self._committer.submit(record)
        outcome.addCallback(self._stored, shard, record)
        outcome.addErrback(self._not_followed_up)

    def _not_followed_up(self, failure: Failure) -> None:
        """Going on could hang the crawl: close it, the shards are read on at the next start."""
        logger.error(
            "A stored record could not be followed up", exc_info=failure.value,
            extra={"action": "not_followed_up"},
        )  # fmt: skip
        self._fail(failure.value or RuntimeError("unknown"))

    def _stored(self, outcome: Outcome, shard: HeldShard, record: Any) -> None:
        if isinstance(record, (PageRecord, PageFailure)):
            shard.committing.discard(record.page)
        if outcome.status == "fenced":
            self.lose([shard.id] if self.shards.get(shard.id) is shard else ())
        elif isinstance(record, (Finish, Release)):
            self._ended(shard, record, outcome.status == "committed")
        elif outcome.status == "refused" and outcome.trouble is not None:
            self.act(shard, shard.walk.refused(record.page, outcome.trouble))
        elif outcome.status == "committed":
            self._page_stored(outcome, shard, record)
        else:
            self._forget(shard, record.page)
        self.wake()

    def _page_stored(self, outcome: Outcome, shard: HeldShard, record: Any) -> None:
        page = shard.open.get(record.page)
        if isinstance(record, PageRecord):
            self._inc("pages/committed")
            self._inc("items/dropped", record.dropped)
            self._inc("items/quarantined", len(record.quarantine))
            if page is not None and not any(one.kind == "page" for one in record.quarantine):
                self.ledger.remember(page)
        else:
            self._inc("pages/held")
            logger.error(
                "Page %d of shard %d is held: %s: %s", record.page, shard.walk.claimed.shard_no,
                record.trouble.error_class, record.trouble.error, extra={"action": "page_held"},
            )  # fmt: skip
        shard.walk.settled(record.page, outcome.position)
        shard.following.pop(record.page, None)
        self._forget(shard, record.page)
        self._end_if_idle(shard)

    def _end_if_idle(self, shard: HeldShard) -> None:
        ours = self.shards.get(shard.id) is shard
        if not ours or shard.ending or self.stopping:
            return
        if shard.doubted:
            self.doubts.consider(shard)
        elif shard.walk.idle:
            shard.ending = True
            for number in sorted(shard.walk.in_flight):
                self._discard(shard, number)  # empty pages that no later page will judge
            self._submit(shard, shard.walk.result())

    def _count_blocked(self, shard: HeldShard, record: Finish | Release) -> None:
        """Each time in a row that a shard is blocked, without progress, it waits longer."""
        before = self._blocked.pop(shard.id, 0)
        walk = shard.walk
        if isinstance(record, Release) and record.error_kind == ErrorKind.BLOCKED.value:
            progress = walk.position.version > walk.claimed.position.version
            self._blocked[shard.id] = 1 if progress else before + 1

    def _ended(self, shard: HeldShard, record: Finish | Release, stored: bool) -> None:
        if self.shards.get(shard.id) is shard:
            del self.shards[shard.id]
            self.doubts.gone(shard)
        self._count_blocked(shard, record)
        if stored:
            self._freed(isinstance(record, Release))
        if stored and isinstance(record, Finish):
            self._inc("shards/finished")
            level = logging.DEBUG if record.status == "done" else logging.ERROR
            logger.log(
                level, "Shard %d is %s: %s", shard.walk.claimed.shard_no, record.status,
                record.reason, extra={"action": "shard_finished"},
            )  # fmt: skip
