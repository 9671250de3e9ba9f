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

from scrapy_resume import ownjournal
from scrapy_resume.claimer import Claimer
from scrapy_resume.committer import Committer, GroupLimits
from scrapy_resume.departure import Departure
from scrapy_resume.heartbeat import Heartbeat
from scrapy_resume.journalling import Journalling
from scrapy_resume.ledger import Ledger
from scrapy_resume.pageflow import PageFlow
from scrapy_resume.pageopener import PageOpener
from scrapy_resume.paging import PagePolicy
from scrapy_resume.patience import Questions
from scrapy_resume.planner import Planner
from scrapy_resume.prospects import Prospects
from scrapy_resume.provisional import Provisional
from scrapy_resume.queuelink import QueueLink
from scrapy_resume.reaper import Reaper
from scrapy_resume.sitegate import SiteGate
from scrapy_resume.threads import StoreThread, Wakeup
from scrapy_resume.work import Work
from scrapy_resume.worker import WorkerSlot

if TYPE_CHECKING:
    from scrapy_resume.mirroring import Mirroring
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
        self._questions = Questions(
            self.control, session.outage, seconds=settings.store_patience,
            stopping=lambda: self.flow.stopping,
        )  # fmt: skip
        self.departure = Departure(self)
        self.committer = self._make_committer()
        self.flow = self._make_flow()
        self.ledger = self.flow.ledger = Ledger(
            self.crawler, self.flow, seen_max=settings.seen_max, waitless=session.pipeline
        )
        self.gate = SiteGate(self)
        self.heartbeat = Heartbeat(self)
        self.committer.patience.holds_back = lambda: self.heartbeat.missing
        self.ledger.unsure = lambda: self.halted
        self.reaper = Reaper(self, session.database)
        self.claimer, self.opener, self.planner = Claimer(self), PageOpener(self), Planner(self)
        self.prospects = Prospects(self)
        self.policy = _policy(settings, self.spider)
        self.task: Task | None = None
        self._read_again_at: datetime | None = None
        self.journalling: Journalling | None = None
        self.provisional = Provisional(self)
        self._mirroring: Mirroring | None = None
        self._warm = False
        self.idle = False  # no store call of ours hangs any more, said by close()

    def _make_committer(self) -> Committer:
        settings, session = self.settings, self.session
        return Committer(
            session.commits,
            session.storing.commit,
            GroupLimits(settings.commit_pages, settings.commit_items, settings.commit_delay),
            pressing=lambda waiting: self.flow.pressing(waiting),
            inc_stat=session.inc_stat,
            on_failure=session.give_up,
            patience=settings.store_patience,
            outage=session.outage,
            salvage=session.storing.salvage,
            stored=lambda result: self._mirror(),
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
            stopped=self._stopping,
            fail=self.session.give_up,
            grace=self.settings.grace,
        )
        if self.session.rows is not None:
            flow.key_of = self.session.rows.key_text
        return flow

    def _stopping(self) -> None:
        self.departure.begin()
        self._questions.go_on()

    @property
    def halted(self) -> bool:
        """Whether the site may not be asked for anything now."""
        if self.task is None:
            return False  # nothing is claimed yet, and what is read on needs no lease
        journal = self.journalling
        return self.heartbeat.unsure or (journal is not None and journal.halted)

    async def outputs(self, start: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """Open, plan if need be, and yield list requests until nothing is left to do."""
        try:
            self._install()
            async for request in self.provisional.opening():
                yield request
            if self.task is None:
                return
            async for item in self.planner.plan(start):
                yield item
            await self.warm_up()
            async for request in self._list_requests():
                yield request
            if not self.flow.stopping:
                await self.conclude()
        finally:
            self.flow.stop()

    def _install(self) -> None:
        self.ledger.install(self.crawler.engine)
        self.session.ledger = self.ledger
        self.spider._resume_active = True

    async def warm_up(self) -> None:
        """What the spider does before the first page of its process; once."""
        if not self._warm:
            self._warm = True
            await ensure_awaitable(self.spider.warm_up())

    async def open(self) -> None:
        """Take back what died, open the run, begin the duties. Repeated if the database fails."""
        await self.control.run(self.session.storing.prepare)
        self.task = await self.control.run(self.work.open)
        self.session.inc_stat("journal/replayed", self.work.replayed.pages)
        self.session.inc_stat("journal/salvaged", self.work.replayed.salvaged)
        database_id = await self.control.run(self.work.database_id)
        if self.settings.journals:
            self.journalling = await ownjournal.begin(self)
        if self.journalling is not None:
            self.committer.keep_in(self.journalling)
        if self.link is not None:
            await self.link.open(database_id, self.task.id)
            self.link.exchange(self.ledger.duplicates, _moment(self.task.read_again_at))
            self._mirroring = self.link.mirror(self.slot.worker, self.work.origin(self.task))
        self._read_again_at = self.task.read_again_at
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
            asked = await self.claimer.look()
            opened = False
            async for request in self.list_pages():
                opened = True
                yield request
            if opened:
                continue
            if asked and not self.flow.shards and await self.prospects.none():
                return
            await self.wakeup.wait(self.claimer.wait)

    async def list_pages(self) -> AsyncIterator[Request]:
        """The next list request of each shard that may ask for one now."""
        for shard in list(self.flow.shards.values()):
            request = await self.opener.open(shard)
            if request is not None:
                await self.opener.room()
                yield request

    async def _log_in_again(self) -> None:
        """A list led to a login: do what was done before the first page."""
        logger.info("warm_up() is done again", extra={"action": "warm_up"})
        try:
            await ensure_awaitable(self.spider.warm_up())
        except Exception:
            logger.exception("warm_up() failed", extra={"action": "warm_up"})
        self.flow.doubts.suspicion.logged_in()

    def _mirror(self) -> None:
        """Have Redis know where the held shards stand, as the database has it."""
        if self._mirroring is not None:
            self._mirroring.keep(self.flow.shards.values())

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
        """A heartbeat came through: what waited for the database goes on, and what is held is
        looked at."""
        self.committer.patience.go_on()
        self._questions.go_on()
        for shard in self.flow.shards.values():
            shard.report_if_long(self.session.inc_stat)
        self._mirror()
        self.wakeup.set()

    async def ask(self, call: Callable[..., T], *args: Any) -> T:
        """Make a store call on the control thread; an unreachable database is waited for."""
        return await self._questions.ask(call, *args)

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
