"""The claim loop: from the task's run to one list request after the other.

It runs inside the spider's ``start()``: while it is suspended the spider is never
idle. It ends when the run is over, or when nothing is left that this process may do
soon: shards leased elsewhere or falling due within ``RESUME_MAX_WAIT`` are waited for.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

from scrapy import Request, signals
from scrapy.utils.asyncio import call_later
from scrapy.utils.defer import deferred_from_coro, ensure_awaitable

from scrapy_resume import clock, cursor
from scrapy_resume.committer import Committer, GroupLimits
from scrapy_resume.exceptions import LeaseLost, ResumeError, StoreUnavailable
from scrapy_resume.heartbeat import Heartbeat
from scrapy_resume.heldshard import HeldShard
from scrapy_resume.ledger import Ledger
from scrapy_resume.page import Page
from scrapy_resume.pageflow import PageFlow
from scrapy_resume.paging import PagePolicy
from scrapy_resume.planning import Plan
from scrapy_resume.reaper import Reaper
from scrapy_resume.startitems import StartItems
from scrapy_resume.threads import StoreThread, Wakeup
from scrapy_resume.walks import ChainWalk, walk_for
from scrapy_resume.work import Work
from scrapy_resume.worker import WorkerSlot

if TYPE_CHECKING:
    from scrapy_resume.mixins import ResumeSpiderMixin
    from scrapy_resume.session import Session
    from scrapy_resume.store.tasks import Task

logger = logging.getLogger(__name__)

T = TypeVar("T")

_STORE_RETRY = 2.0  # seconds


class ClaimLoop:
    """The part of one process in one run. Make it inside the event loop."""

    def __init__(self, session: Session) -> None:
        settings = session.settings
        self.session, self.settings = session, settings
        self.crawler = session.crawler
        self.spider = cast("ResumeSpiderMixin", session.crawler.spider)
        self.wakeup = Wakeup()
        self.control = StoreThread("control")
        self.slot = WorkerSlot.take(settings.home)
        self.work = Work(session.database, settings, self.spider, self.slot)
        self.committer = Committer(
            session.commits,
            session.commit,
            GroupLimits(settings.commit_pages, settings.commit_items, settings.commit_delay),
            pressing=lambda waiting: self.flow.pressing(waiting),
            inc_stat=session.inc_stat,
            on_failure=self._store_failed,
            patience=settings.store_patience,
        )
        self.flow = PageFlow(
            self.spider,
            self.committer,
            hold_records=settings.on_failed_record == "hold",
            wake=self.wakeup.set,
            inc_stat=session.inc_stat,
            stopped=self._stopped,
            fail=session.give_up,
            grace=settings.grace,
        )
        self.ledger = self.flow.ledger = Ledger(
            self.crawler, self.flow, seen_max=settings.seen_max, waitless=session.pipeline
        )
        if session.rows is not None:
            self.flow.key_of = session.rows.key_text
        self.heartbeat = Heartbeat(self)
        self.reaper = Reaper(self, session.database)
        self.policy = PagePolicy(
            settings.pages_in_flight,
            settings.page_retries,
            settings.page_retry_delay,
            settings.on_failed_page == "hold",
            settings.backoff_base,
            settings.backoff_max,
            max(1, int(self.spider.stop_on_empty or 1)),
            self.spider.states_totals,
            settings.max_wait,
        )
        self.task: Task | None = None
        self.idle = False
        self._room_wanted = self._room_made = False
        self._empty_claim = False
        self._grace: Any = None

    async def outputs(self, start: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """Open, plan if need be, and yield list requests until nothing is left to do."""
        try:
            await self._open()
            async for item in self._plan(start):
                yield item
            await ensure_awaitable(self.spider.warm_up())
            async for request in self._list_requests():
                yield request
            if not self.flow.stopping:
                await self._conclude()
        finally:
            self.flow.stop()

    async def _open(self) -> None:
        self.ledger.install(self.crawler.engine)
        self.session.ledger = self.ledger
        await self.control.run(self.session.prepare_store)
        self.task = await self.control.run(self.work.open)
        assert self.task is not None
        self.spider._resume_active = True
        self.crawler.signals.connect(self._made_room, signals.scheduler_empty)
        self.heartbeat.start()
        self.reaper.start()
        for opened in self.session.on_loop:
            opened(self)
        logger.info(
            "Working on run %d of task %r (id %d) as worker %s",
            self.task.run_no, self.task.name, self.task.id, self.slot.worker[:8],
            extra={"action": "run_opened"},
        )  # fmt: skip

    async def _plan(self, start: AsyncIterator[Any]) -> AsyncIterator[Any]:
        assert self.task is not None
        while self.task.planned_at is None and self.task.finished_at is None:
            token = await self._ask(self.work.claim_planning, self.task.id)
            if token is None:
                await self.wakeup.wait(self.settings.heartbeat)
            else:
                async for item in self._plan_as(token, start):
                    yield item
            self.task = await self._ask(self.work.reload, self.task.id)

    async def _plan_as(self, token: int, start: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """Plan under the lease that *token* fences."""
        assert self.task is not None
        self.heartbeat.planning = token
        plan, items = Plan(self.spider), StartItems(self.crawler.signals, self.wakeup)
        try:
            async for item in plan.read(start):
                items.sent()
                yield item
            await items.processed()
            if items.failures:
                await self._ask(self.work.set_aside, self.task.id, items.failures)
            if self.session.store_loose_rows is not None:
                await self.session.store_loose_rows()
            count = await self._ask(self.work.store_plan, self.task.id, token, plan.shards)
            logger.info("Planned %d shard(s)", count, extra={"action": "planned"})
        except LeaseLost:
            logger.warning("Planning took too long and was taken over by another process")
        finally:
            self.heartbeat.planning = None

    async def _list_requests(self) -> AsyncIterator[Request]:
        while not self.flow.stopping:
            await self._claim()
            opened = False
            for shard in list(self.flow.shards.values()):
                request = await self._open_page(shard)
                if request is not None:
                    opened = True
                    await self._room()
                    yield request
            if opened:
                continue
            if not self.flow.shards and await self._nothing_left():
                return
            await self.wakeup.wait(self.settings.heartbeat)

    async def _claim(self) -> None:
        """Fill up with shards, if there is room and the last claim found some.

        A shard that only waits for its last pages no longer counts: the next one may start.
        """
        if len(self.flow.shards) >= 2 * self.settings.shards:
            return  # those that only wait for their last pages have a bound too
        opening = sum(shard.walk.opening for shard in self.flow.shards.values())
        free = self.settings.shards - opening
        if any(shard.walk.suspect for shard in self.flow.shards.values()):
            self._empty_claim = False
            return  # it is tried alone, so that a death tells which one it was
        if self._empty_claim or free < max(1, self.settings.shards // 4) or self.flow.stopping:
            return
        assert self.task is not None
        alone = not self.flow.shards
        claimed = await self._ask(self.work.claim, self.task.id, free, alone)
        self._empty_claim = len(claimed) < free
        self.session.inc_stat("shards/claimed", len(claimed))
        for shard in claimed:
            if shard.resumed:
                self.session.inc_stat("pages/resumed_from", shard.position.cur_page)
            self.flow.hold(walk_for(shard, self.policy))

    async def _open_page(self, shard: HeldShard) -> Request | None:
        if self.heartbeat.unsure or self.flow.stopping:
            return None
        number = shard.walk.next_page()
        if number is None:
            return None
        try:
            page, request = await self._request(shard, number)
        except Exception as error:
            logger.exception("No request for page %d", number, extra={"action": "page_request"})
            self.flow.not_opened(shard, number, error)
            return None
        if self.flow.shards.get(shard.id) is not shard:
            return None
        request.meta.setdefault("is_start_request", True)
        if page.attempt > 1:
            request.meta["dont_cache"] = True  # an HTTP cache would give the same answer again
        opened, request = self.ledger.open(page, request)
        self.flow.opened(shard, number, opened)
        return request

    async def _request(self, shard: HeldShard, number: int) -> tuple[Page, Request]:
        walk, claimed = shard.walk, shard.walk.claimed
        text = walk.cursor_of(number)
        value = claimed.shard.cursor if text is None else cursor.load(text)
        page = Page(number, claimed.shard, value, walk.attempts[number], claimed.resumed)
        followed = shard.following.get(number)
        if followed is not None:
            request = followed.copy()
            request.meta.pop("depth", None)  # DEPTH_LIMIT counts from each list page
        elif isinstance(walk, ChainWalk) and cursor.is_request(value):
            request = cursor.to_request(value, self.spider)
        else:
            request = await ensure_awaitable(self.spider.page_request(page))
        if request.callback is None:
            request.callback = self.spider.parse_list_page
        return page, request

    async def _room(self) -> None:
        """Wait while the engine has all the requests it can take."""
        while self.crawler.engine.needs_backout() and not self.flow.stopping:
            self._room_wanted, self._room_made = True, False
            while not (self._room_made or self.flow.stopping):
                await self.wakeup.wait(self.settings.heartbeat)
                if not self.crawler.engine.needs_backout():
                    break
            self._room_wanted = False

    def _made_room(self) -> None:
        if self._room_wanted:
            self._room_made = True
            self.wakeup.set()

    async def _nothing_left(self) -> bool:
        """Whether this process may end; waits for shards that may still come back."""
        assert self.task is not None
        outlook = await self._ask(self.work.outlook, self.task.id)
        self._empty_claim = False
        if outlook.finished or not outlook.pending + outlook.running + outlook.paused:
            return True
        if outlook.due and outlook.desired == "run":
            return False
        waits = [self.settings.heartbeat] if outlook.leased_elsewhere else []
        if outlook.next_due is not None and outlook.next_due <= self.settings.max_wait:
            waits.append(outlook.next_due)
        if not waits:
            return True
        await self.wakeup.wait(max(0.01, min(waits)))
        return False

    def claim_again(self) -> None:
        """Shards may have come back since the last claim found too few."""
        self._empty_claim = False
        self.wakeup.set()

    async def _ask(self, call: Callable[..., T], *args: Any) -> T:
        """Make a store call on the control thread; an unreachable database is waited for."""
        deadline = clock.monotonic() + self.settings.store_patience
        while True:
            try:
                return await self.control.run(call, *args)
            except StoreUnavailable as error:
                if self.flow.stopping or clock.monotonic() > deadline:
                    raise
                logger.warning("%s; trying again", error, extra={"action": "store_down"})
            await self.wakeup.wait(_STORE_RETRY)

    async def _conclude(self) -> None:
        assert self.task is not None
        self.task, verdict, reason = await self._ask(self.work.conclude, self.task.id)
        self.session.set_verdict(verdict, reason)

    def _stopped(self) -> None:
        """The crawl closes: what is not stored within the grace is given to others."""
        if self._grace is None:
            self._grace = call_later(self.settings.grace, self._out_of_grace)

    def _out_of_grace(self) -> None:
        if any(shard.open for shard in self.flow.shards.values()):
            logger.warning(
                "Pages in flight did not end within RESUME_GRACE (%g s); they are abandoned and"
                " their shards released", self.settings.grace, extra={"action": "grace_over"},
            )  # fmt: skip
        self._releasing = deferred_from_coro(self.flow.release_all())
        self.ledger.abort_downloads()

    def _store_failed(self, error: BaseException) -> None:
        self.session.give_up(error)

    async def progress(self) -> tuple[int, int | None]:
        """Pages committed and pages planned (None: nobody knows) in the whole run."""
        assert self.task is not None
        return await self.control.run(self.work.progress, self.task.id)

    async def close(self) -> None:
        """Give the held shards back and stop; called once the spider is closed."""
        self.flow.stop()
        if self._grace is not None:
            self._grace.cancel()
        await self.flow.release_all()
        self.heartbeat.stop()
        self.reaper.stop()
        try:
            if self.task is not None:
                await self.control.run(self.work.stopped)
                if self.session.verdict is None:
                    await self._conclude()
        except ResumeError as error:
            logger.warning(
                "The end of this process could not be recorded: %s", error,
                extra={"action": "end_unrecorded"},
            )  # fmt: skip
        finally:
            self.idle = await self.control.stop(self.settings.grace)
            self.ledger.uninstall()
            self.slot.free()
