"""The store calls that open, plan, watch and end one process's part in a run.

Plain functions of the database for the control thread: nothing here runs in the
event loop.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING

from scrapy_resume import __version__, footing, journalreplay, planning
from scrapy_resume.exceptions import RunRefused
from scrapy_resume.footing import Wanted
from scrapy_resume.intake import Waiting
from scrapy_resume.page import Shard
from scrapy_resume.reaper import recover
from scrapy_resume.store import (
    attendance,
    leases,
    meta,
    migrate,
    quarantine,
    status,
    tasks,
    wishes,
    workers,
)
from scrapy_resume.store.engine import Database
from scrapy_resume.store.history import History, history
from scrapy_resume.store.leases import ClaimedShard, Outlook, Renewal
from scrapy_resume.store.quarantine import QuarantineRecord
from scrapy_resume.store.tasks import Task
from scrapy_resume.troubles import safe_text
from scrapy_resume.worker import WorkerSlot

if TYPE_CHECKING:
    from scrapy_resume.mixins import ResumeSpiderMixin
    from scrapy_resume.settings import ResumeSettings

logger = logging.getLogger(__name__)

_TOLD = 3  # other workers that are named
_UNKNOWN = "released: the reply to its claim was lost"


class Work:
    """One crawl's view of the store."""

    def __init__(
        self,
        database: Database,
        settings: ResumeSettings,
        spider: ResumeSpiderMixin,
        slot: WorkerSlot,
    ) -> None:
        self._db, self._settings, self._spider, self._slot = database, settings, spider, slot
        self.registered = False
        self._run = settings.run
        self.replayed = journalreplay.Replayed()

    def open(self) -> Task:
        """Take back what died on this machine, open the run and say that we work on it.

        The tables are prepared. Raises ConfigurationError, RunRefused or StoreUnavailable.
        """
        slot, db = self._slot, self._db
        db.require_claims()
        self._be_unmistakable()
        self._replay()
        leases.reclaim_worker(db, worker=slot.worker, instance=slot.instance)
        workers.register(
            db, worker=slot.worker, instance=slot.instance, host=slot.host, pid=slot.pid,
            version=__version__, protocol=migrate.PROTOCOL_VERSION,
            capacity=self._settings.shards, job=planning.job_id(self._spider.resume_args),
        )  # fmt: skip
        self.registered = True
        slot.registered()
        recover(db, slot, lease=self._settings.lease)
        task = self._open_run()
        self._attend(task)
        leases.raise_code_holds(db, task.id)
        return task

    def _be_unmistakable(self) -> None:
        """Give up an identity that another process has: its shards must not count as those of
        our earlier instance, which is dead."""
        slot, known = self._slot, {*self._slot.earlier, self._slot.instance}
        others = workers.namesakes(
            self._db, worker=slot.worker, known=known, within=self._settings.lease
        )
        if others:
            host, pid = others[0]
            logger.warning(
                "RESUME_HOME is a copy of one in use: pid %d on %s works under the id that this"
                " home holds, %s; this process takes another one", pid, host, slot.worker[:8],
                extra={"action": "copied_home"},
            )  # fmt: skip
            slot.begin_anew()

    def _replay(self) -> None:
        """Store what our earlier instance had read and not stored, while its tokens still count."""
        slot = self._slot
        self.replayed = journalreplay.replay(
            self._db, slot.directory, actor=slot.signature,
            holders=slot.earlier, lease=self._settings.lease,
        )  # fmt: skip

    def wanted(self) -> Wanted:
        """What we would resume, as far as it can be said without the database."""
        name = planning.task_name(self._spider.name, self._arguments)
        settings, slot = self._settings, self._slot
        sites = settings.intake.sites
        return Wanted(name, settings.run, self._db.address, slot.earlier, sites)

    def origin(self, task: Task) -> bytes:
        """What our mirror in Redis is for."""
        return footing.origin(self._db.address, self._slot.instance, task)

    def renew_earlier(self, held: Mapping[int, int]) -> Collection[int]:
        """Renew what our earlier instances held (id to token); returns what they have lost."""
        lost, lease = set(held), self._settings.lease
        for instance in self._slot.earlier if held else ():
            lost &= leases.renew(
                self._db, instance=instance, shards=held, lease=lease, task_id=0
            ).lost
        return lost

    @cached_property
    def _arguments(self) -> dict[str, str]:
        return planning.identity_arguments(self._spider, self._spider.resume_args)

    def _open_run(self) -> Task:
        spider, slot = self._spider, self._slot
        task = tasks.open_run(
            self._db,
            name=planning.task_name(spider.name, self._arguments),
            spider=spider.name,
            args=planning.arguments_text(self._arguments),
            run=self._run,
            actor=slot.signature,
        )
        self._run = "resume" if self._run == "new" else self._run  # should we be asked again
        if task.finished_at is not None:
            raise RunRefused(f"run {task.run_name} of {task.name} is over: {task.verdict}")
        return task

    def _attend(self, task: Task) -> None:
        settings = self._settings
        others = attendance.attend(
            self._db, task.id, instance=self._slot.instance, lease=settings.lease,
            alone=not settings.join,
        )  # fmt: skip
        if not others:
            return
        told = "; by ".join(map(str, others[:_TOLD]))
        more = f", and by {len(others) - _TOLD} more" if len(others) > _TOLD else ""
        said = f"run {task.run_no} of {task.name} is worked on by {told}{more}"
        if not settings.join:
            raise RunRefused(f"{said}; RESUME_JOIN is False")
        logger.info("This process joins: %s", said, extra={"action": "joined"})

    def database_id(self) -> str:
        """What tells this database from others, in Redis."""
        return meta.database_id(self._db)

    def reload(self, task_id: int) -> Task:
        """The run as it is now."""
        return tasks.find_tasks(self._db, task_id)[0]

    def claim_planning(self, task_id: int, again: bool = False) -> int | None:
        """The planning token, or None while someone else plans; *again* after it was lost."""
        slot, lease = self._slot, self._settings.lease
        return tasks.claim_planning(
            self._db, task_id, worker=slot.worker, instance=slot.instance, lease=lease, again=again
        )

    def clear_plan(self, task_id: int, token: int) -> bool:
        """Delete some of what a dead planner left; True if there may be more."""
        return tasks.clear_plan(self._db, task_id, token)

    def add_shards(self, task_id: int, token: int, shards: Sequence[Shard], first_no: int) -> None:
        """Store a part of the plan, which begins with shard *first_no*. Raises LeaseLost."""
        tasks.add_shards(
            self._db, task_id, token, shards, first_no,
            default_site=planning.default_site(self._spider),
            max_attempts=self._settings.max_attempts,
        )  # fmt: skip

    def finish_plan(self, task_id: int, token: int, count: int) -> None:
        """Make the *count* stored shards claimable. Raises LeaseLost."""
        tasks.finish_plan(self._db, task_id, token, count)

    def set_aside(self, task_id: int, failures: Sequence[BaseException]) -> None:
        """Put items of ``start()`` that failed in a pipeline on record."""
        records = [
            QuarantineRecord(
                task_id, None, None, None, "item", None, None, type(error).__name__,
                safe_text(str(error)),
            )
            for error in failures
        ]  # fmt: skip
        quarantine.set_aside(self._db, records)

    def claim(
        self,
        task_id: int,
        limit: int,
        alone: bool,
        hints: Sequence[int] = (),
        without: Collection[str] = (),
    ) -> list[ClaimedShard]:
        """Claim up to *limit* shards, *hints* first, none of the sites *without*; *alone* says
        that we hold none."""
        slot, settings = self._slot, self._settings
        return leases.claim(
            self._db,
            task_id,
            worker=slot.worker,
            instance=slot.instance,
            limit=limit,
            lease=settings.lease,
            intake=settings.intake,
            site_cap=settings.site_shards,
            hints=hints,
            alone=alone,
            without=without,
        )

    def waiting(self, task_id: int, after: int, limit: int) -> list[Waiting]:
        """Shards that may be claimed, with ids above *after*."""
        return leases.waiting(self._db, task_id, after=after, limit=limit)

    def beat(
        self,
        task_id: int,
        held: Mapping[int, int],
        planning: int | None,
        probes: Collection[str] = (),
    ) -> Renewal:
        """One heartbeat: renew the held shards (id to token), the planning lease, and the right
        to try the sites *probes*."""
        db, lease = self._db, self._settings.lease
        workers.beat(db, instance=self._slot.instance, load=len(held))
        if planning is not None:
            tasks.renew_planning(db, task_id, planning, lease)
        return leases.renew(
            db, instance=self._slot.instance, shards=held, lease=lease, task_id=task_id,
            probes=probes,
        )  # fmt: skip

    def outlook(self, task_id: int) -> Outlook:
        """What is left to do in the run, for a process that holds no shard.

        Raises what fell due meanwhile, and gives back what is ours on record all the same: a
        claim may have been stored after we gave up waiting for the database.
        """
        db, settings, instance = self._db, self._settings, self._slot.instance
        leases.raise_due(db)
        ask = partial(
            leases.outlook, db, task_id, instance=instance, intake=settings.intake,
            site_cap=settings.site_shards,
        )  # fmt: skip
        found = ask()
        if found.running and leases.release_instance(db, instance=instance, reason=_UNKNOWN):
            found = ask()
        return found

    def history(
        self, task_id: int, site: str, but: Collection[tuple[str, int]], anywhere: bool
    ) -> History:
        """What the lists of *site* are known to have held, on other pages than *but* if it may
        be."""
        return history(self._db, task_id, site, but=but, anywhere=anywhere)

    def progress(self, task_id: int) -> tuple[int, int | None]:
        """Pages committed and pages planned (None: nobody knows) in the whole run."""
        return status.progress(self._db, task_id)

    def conclude(self, task_id: int) -> tuple[Task, str, str]:
        """Declare the run over if it is; returns it with its verdict and reason as of now.

        The reason of a run that goes on says when its next try is due.
        """
        task = wishes.follow(self._db, task_id)
        verdict, reason = tasks.read_verdict(self._db, task_id)
        if task.finished_at is None:
            reason += _next_try(self.outlook(task_id))
        return task, verdict.value, reason

    def stopped(self, failure: str | None = None) -> None:
        """Give back what this instance still holds, and record that it ended.

        *failure* is the error that stopped the crawl, if one did.
        """
        ended = f"the crawl was stopped by: {failure}" if failure else "its process ended"
        leases.release_instance(self._db, instance=self._slot.instance, reason=f"released: {ended}")
        workers.stopped(self._db, instance=self._slot.instance)


def _next_try(outlook: Outlook) -> str:
    if outlook.due:
        return "; the next try is due at once"
    times = [time for time in (outlook.next_due, outlook.next_try) if time is not None]
    if times:
        return f"; the next try is due in {min(times):.0f} s"
    if outlook.leased_elsewhere:
        return f"; {outlook.leased_elsewhere} shard(s) are worked on elsewhere"
    # What others take, or what waits for its site, is due whenever they want it.
    ours = outlook.pending - outlook.other - outlook.parked
    return "; the next try is due at the next start" if ours > 0 else ""
