"""The claim loop: from the task's run to one list request after the other.

It runs inside the spider's ``start()``: while it is suspended the spider is never
idle. It ends when the run is over, or when nothing is left that this process may do
soon: shards leased elsewhere or falling due within ``RESUME_MAX_WAIT`` are waited for.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar, cast

from scrapy import Request
from scrapy.utils.defer import ensure_awaitable

from scrapy_resume import clock
from scrapy_resume.claimer import Claimer
from scrapy_resume.committer import Committer, GroupLimits
from scrapy_resume.departure import Departure
from scrapy_resume.exceptions import StoreUnavailable
from scrapy_resume.heartbeat import Heartbeat
from scrapy_resume.ledger import Ledger
from scrapy_resume.pageflow import PageFlow
from scrapy_resume.pageopener import PageOpener
from scrapy_resume.paging import PagePolicy
from scrapy_resume.patience import Waits
from scrapy_resume.planner import Planner
from scrapy_resume.prospects import Prospects
from scrapy_resume.queuelink import QueueLink
from scrapy_resume.reaper import Reaper
from scrapy_resume.threads import StoreThread, Wakeup
from scrapy_resume.work import Work
from scrapy_resume.worker import WorkerSlot

if TYPE_CHECKING:
    from scrapy_resume.mixins import ResumeSpiderMixin
    from scrapy_resume.session import Session
    from scrapy_resume.settings import ResumeSettings
    from scrapy_resume.store.tasks import Task

logger = logging.getLogger(__name__)

T = TypeVar("T")


class ClaimLoop:
    """The part of one process in one run. Make it inside the event loop."""

    def __init__(self, session: Session) -> None:
        settings = session.settings
        self.session, self.settings = session, settings
        self.crawler = session.crawler
        self.spider = cast("ResumeSpiderMixin", session.crawler.spider)
        self.link = QueueLink.of(
            settings, self.crawler.settings, inc_stat=session.inc_stat, on_wake=self.news
        )
        self.wakeup = Wakeup()
        self.control = StoreThread("control")
        self.slot = WorkerSlot.take(settings.home)
        self.work = Work(session.database, settings, self.spider, self.slot)
        self.departure = Departure(self)
        self.committer = self._make_committer()
        self.flow = self._make_flow()
        self.ledger = self.flow.ledger = Ledger(
            self.crawler, self.flow, seen_max=settings.seen_max, waitless=session.pipeline
        )
        self.heartbeat = Heartbeat(self)
        self.ledger.unsure = lambda: self.heartbeat.unsure
        self.reaper = Reaper(self, session.database)
        self.claimer, self.opener, self.planner = Claimer(self), PageOpener(self), Planner(self)
        self.prospects = Prospects(self)
        self.policy = _policy(settings, self.spider)
        self.task: Task | None = None
        self._read_again_at: datetime | None = None
        self.idle = False  # no store call of ours hangs any more, said by close()

    def _make_committer(self) -> Committer:
        settings, session = self.settings, self.session
        return Committer(
            session.commits,
            session.commit,
            GroupLimits(settings.commit_pages, settings.commit_items, settings.commit_delay),
            pressing=lambda waiting: self.flow.pressing(waiting),
            inc_stat=session.inc_stat,
            on_failure=session.give_up,
            patience=settings.store_patience,
            outage=session.outage,
        )

    def _make_flow(self) -> PageFlow:
        flow = PageFlow(
            self.spider,
            self.committer,
            hold_records=self.settings.on_failed_record == "hold",
            wake=self.wakeup.set,
            freed=self._freed,
            inc_stat=self.session.inc_stat,
            watch=self.session.watch,
            stopped=self.departure.begin,
            fail=self.session.give_up,
            grace=self.settings.grace,
        )
        if self.session.rows is not None:
            flow.key_of = self.session.rows.key_text
        return flow

    async def outputs(self, start: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """Open, plan if need be, and yield list requests until nothing is left to do."""
        try:
            await self._open()
            async for item in self.planner.plan(start):
                yield item
            await ensure_awaitable(self.spider.warm_up())
            async for request in self._list_requests():
                yield request
            if not self.flow.stopping:
                await self.conclude()
        finally:
            self.flow.stop()

    async def _open(self) -> None:
        self.ledger.install(self.crawler.engine)
        self.session.ledger = self.ledger
        await self.control.run(self.session.prepare_store)
        self.task = await self.control.run(self.work.open)
        if self.link is not None:
            await self.link.open(await self.control.run(self.work.database_id), self.task.id)
            self.link.exchange(self.ledger.duplicates, _moment(self.task.read_again_at))
        self._read_again_at = self.task.read_again_at
        self.spider._resume_active = True
        self.heartbeat.start()
        self.reaper.start()
        for opened in self.session.on_loop:
            opened(self)
        logger.info(
            "Working on run %d of task %r (id %d) as worker %s",
            self.task.run_no, self.task.name, self.task.id, self.slot.worker[:8],
            extra={"action": "run_opened"},
        )  # fmt: skip

    async def _list_requests(self) -> AsyncIterator[Request]:
        while not self.flow.stopping:
            if self.flow.doubts.suspicion.login_due:
                await self._log_in_again()
            asked = await self.claimer.claim()
            opened = False
            for shard in list(self.flow.shards.values()):
                request = await self.opener.open(shard)
                if request is not None:
                    opened = True
                    await self.opener.room()
                    yield request
            if opened:
                continue
            if asked and not self.flow.shards and await self.prospects.none():
                return
            await self.wakeup.wait(self.claimer.wait)

    async def _log_in_again(self) -> None:
        """A list led to a login: do what was done before the first page."""
        logger.info("warm_up() is done again", extra={"action": "warm_up"})
        try:
            await ensure_awaitable(self.spider.warm_up())
        except Exception:
            logger.exception("warm_up() failed", extra={"action": "warm_up"})
        self.flow.doubts.suspicion.logged_in()

    def put_back(self, at: datetime | None) -> None:
        """Pages of the run were put back at *at*, by the database's clock: forget what is
        remembered of reading them, or it would hide what they ask for."""
        if at is None or at == self._read_again_at:
            return
        self._read_again_at = at
        self.ledger.duplicates.forget()
        if self.link is not None:
            self.link.exchange(self.ledger.duplicates, _moment(at))

    def news(self) -> None:
        """Shards may have come back since the last claim found too few, or the run is over."""
        self.claimer.news()
        self.wakeup.set()

    def tell_others(self) -> None:
        """There is news for every process of the run, this one included."""
        self.news()
        if self.link is not None:
            self.link.wake()

    def _freed(self, returned: bool) -> None:
        """A shard is no longer ours: *returned* to be claimed again, or final."""
        self.claimer.again()
        if returned or self.settings.site_shards:
            self.tell_others()

    def beaten(self) -> None:
        """A heartbeat came through: look at what is held."""
        for shard in self.flow.shards.values():
            shard.report_if_long(self.session.inc_stat)
        self.wakeup.set()

    async def ask(self, call: Callable[..., T], *args: Any) -> T:
        """Make a store call on the control thread; an unreachable database is waited for."""
        deadline, waits = clock.monotonic() + self.settings.store_patience, Waits()
        while True:
            try:
                answer = await self.control.run(call, *args)
            except StoreUnavailable as error:
                if self.flow.stopping or clock.monotonic() > deadline:
                    raise
                self.session.outage.began("claims", error)
            else:
                self.session.outage.ended("claims")
                return answer
            await self.wakeup.wait(waits.next())

    async def conclude(self) -> None:
        """Declare the run over if it is, and have its verdict said."""
        assert self.task is not None
        task, verdict, reason = await self.ask(self.work.conclude, self.task.id)
        self.task = task
        if task.finished_at is None and self.prospects.reason is not None:
            reason += f"; {self.prospects.reason}"
        self.session.set_verdict(verdict, reason)
        if task.finished_at is not None:
            self.tell_others()
            if self.link is not None:
                self.link.forget()

    async def progress(self) -> tuple[int, int | None]:
        """Pages committed and pages planned (None: nobody knows) in the whole run."""
        assert self.task is not None
        return await self.control.run(self.work.progress, self.task.id)

    async def close(self) -> None:
        """Give the held shards back and stop; called once the spider is closed."""
        self.idle = await self.departure.complete()


def _moment(at: datetime | None) -> str:
    return "" if at is None else at.isoformat()


def _policy(settings: ResumeSettings, spider: ResumeSpiderMixin) -> PagePolicy:
    return PagePolicy(
        in_flight=settings.pages_in_flight,
        retries=settings.page_retries,
        retry_delay=settings.page_retry_delay,
        hold_pages=settings.on_failed_page == "hold",
        backoff_base=settings.backoff_base,
        backoff_max=settings.backoff_max,
        stop_on_empty=max(1, int(spider.stop_on_empty or 1)),
        counts_rows=spider.states_totals,
        longest_wait=settings.max_wait,
        blocked_wait=settings.health_wait,
        blocked_wait_max=settings.health_wait_max,
    )
