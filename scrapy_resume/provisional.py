"""The provisional start: a crawl reads on before the database can be asked whether it may.

A process that starts while the database is away looks where the instance before it stood
(``footing``): first in its journal, then in Redis' mirror. It reads those shards on, under the
tokens which that instance had, and whatever comes of it goes into the journal and nowhere else.

Nothing is decided by that, since only the database knows whose the shards are by now. Once it
answers, the leases are renewed, no page is opened any more, those in flight are given a
moment, the shards are let go, and the ordinary start follows as if the process had just
begun: it replays the journal through the fence, then raises the tokens and claims. What was
taken over meanwhile is salvaged, and read twice at worst.

If nothing says where to read on, the database is waited for.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from scrapy.utils.defer import deferred_from_coro, maybe_deferred_to_future

from scrapy_resume import clock, footing, journalnotes, ownjournal
from scrapy_resume.committer import Committer, GroupLimits
from scrapy_resume.exceptions import JournalFailed, StoreUnavailable
from scrapy_resume.journal import FILE, Journal
from scrapy_resume.patience import Waits
from scrapy_resume.redismirror import Mirrored
from scrapy_resume.standin import StandIn
from scrapy_resume.store.leases import ClaimedShard
from scrapy_resume.threads import StoreThread, Wakeup
from scrapy_resume.walks import walk_for

if TYPE_CHECKING:
    from scrapy import Request

    from scrapy_resume.claimloop import ClaimLoop

logger = logging.getLogger(__name__)

_LOOK = 0.25  # seconds
_NOTHING = "nothing says where to read on"

Found = tuple[list[ClaimedShard], "str | None"]


class Provisional:
    """What one claim loop does while the database cannot be reached at its start."""

    def __init__(self, loop: ClaimLoop) -> None:
        self._loop, self._settings = loop, loop.settings
        self._thread: StoreThread | None = None
        self._journal: Journal | None = None
        self._standin: StandIn | None = None
        self._committer: Committer | None = None
        self._pause = Wakeup()
        self._away: StoreUnavailable
        self._answered = self._over = self._full = False
        self._since = 0.0

    async def opening(self) -> AsyncIterator[Request]:
        """Have the loop opened; list requests as long as the database is away.

        Raises StoreUnavailable once ``RESUME_STORE_PATIENCE`` has passed without an answer and
        without another page in the journal.
        """
        loop = self._loop
        while not loop.flow.stopping:
            try:
                await loop.open()
                return
            except StoreUnavailable as error:
                loop.task, away = None, error
            async for request in self._meanwhile(away):
                yield request

    async def _meanwhile(self, away: StoreUnavailable) -> AsyncIterator[Request]:
        loop, flow = self._loop, self._loop.flow
        self._away, self._since = away, clock.monotonic()
        self._answered = self._over = self._full = False
        self._pause = Wakeup()
        asking = deferred_from_coro(self._ask())
        try:
            await self._begin()
            while not (self._answered or flow.stopping):
                opened = False
                if not self._is_full():
                    async for request in loop.list_pages():
                        opened = True
                        yield request
                if not opened:
                    await loop.wakeup.wait(self._patience())
        finally:
            self._over = True
            self._pause.set()
        if not flow.stopping:
            await maybe_deferred_to_future(asking)
            await self._end()

    async def close(self) -> None:
        """Let the journal go, and say what is left in it; harmless when repeated."""
        journal, thread = self._journal, self._thread
        self._journal = self._thread = self._committer = self._standin = None
        if journal is not None and thread is not None:
            await thread.run(journal.close)
            if not self._answered:
                ownjournal.tell_left(journal.pages, str(journal.path))
        if thread is not None:
            await thread.stop(self._settings.grace)

    # The beginning

    async def _begin(self) -> None:
        if self._loop.flow.stopping:
            return  # which is why it failed, perhaps
        shards, why = await self._find()
        patience = f"{self._settings.store_patience:g} s at most (RESUME_STORE_PATIENCE)"
        ours = f"{len(shards)} shard(s) of our earlier process"
        done = f"{ours} are read on, into the journal, {patience}"
        if why is not None:
            done = f"it is waited for, {patience}, since {why}"
        logger.warning(
            "The database cannot be reached: %s; %s", self._away, done,
            extra={"action": "store_away_at_start"},
        )  # fmt: skip
        if why is not None:
            return
        self._read_on(shards)
        await self._loop.warm_up()

    async def _find(self) -> Found:
        loop = self._loop
        if not (loop.slot.earlier and self._settings.journals):
            return [], _NOTHING
        of, mirrored = b"", list[Mirrored]()
        if loop.link is not None:
            of, mirrored = await loop.link.mirrored(loop.slot.worker)
        self._thread = StoreThread("journal")
        try:
            return await self._thread.run(self._look, of, mirrored)
        except JournalFailed as error:
            return [], str(error)

    def _read_on(self, shards: Sequence[ClaimedShard]) -> None:
        assert self._thread is not None and self._journal is not None
        loop, settings = self._loop, self._settings
        self._standin = StandIn(self._journal)
        self._committer = Committer(
            self._thread,
            self._standin.commit,
            GroupLimits(settings.commit_pages, settings.commit_items, settings.commit_delay),
            pressing=loop.flow.pressing,
            inc_stat=lambda *args: None,  # groups of appends are no commits
            on_failure=self._broken,
            patience=0,
            outage=loop.session.outage,
        )
        loop.flow.use(self._committer, self._count)
        for shard in shards:
            loop.flow.hold(walk_for(shard, loop.policy))

    # On the journal's thread

    def _look(self, of: bytes, mirrored: Sequence[Mirrored]) -> Found:
        """The shards to read on, or why there are none; the journal is open if there are any."""
        loop = self._loop
        wanted, path = loop.work.wanted(), loop.slot.directory / FILE
        if not (path.exists() or footing.of_mirror(of, mirrored, wanted)):
            return [], _NOTHING
        meta = {"database": "", "address": wanted.address, journalnotes.WORKER: loop.slot.worker}
        self._journal = journal = Journal.open(path, meta=meta)
        shards = footing.find(journal, (of, mirrored), wanted)
        rows = loop.session.rows
        ours = journalnotes.of_rows(rows.tables if rows else (), self._settings.on_failed_record)
        return shards, footing.obstacle(journal, ours) if shards else _NOTHING

    # Meanwhile

    async def _ask(self) -> None:
        """Ask the database again and again until it answers, whatever it says."""
        waits, loop = Waits(), self._loop
        await self._pause.wait(waits.next())
        while not (self._over or loop.flow.stopping):
            held = {shard.id: shard.token for shard in loop.flow.shards.values()}
            try:
                lost = await loop.control.run(self._contact, held)
            except StoreUnavailable as error:
                self._away = error
                await self._pause.wait(waits.next())
            except Exception:  # the ordinary start meets it again
                break
            else:
                loop.flow.lose(lost)
                break
        self._answered = not self._over
        loop.wakeup.set()

    def _contact(self, held: Mapping[int, int]) -> Collection[int]:
        self._loop.session.storing.prepare()
        return self._loop.work.renew_earlier(held)

    def _is_full(self) -> bool:
        standin, settings = self._standin, self._settings
        if self._full or standin is None:
            return True
        self._full = standin.is_full(settings.journal_max_pages, settings.journal_max_bytes)
        self._loop.session.inc_stat("journal/full", int(self._full))
        return self._full

    def _patience(self) -> float:
        last = self._since if self._standin is None else self._standin.kept_at
        left = last + self._settings.store_patience - clock.monotonic()
        if left <= 0:
            raise self._away
        return min(left, self._settings.heartbeat)

    def _broken(self, error: BaseException) -> None:
        self._full = True
        logger.error(
            "%s; nothing more is asked for until the database answers", error,
            extra={"action": "journal_failed"},
        )  # fmt: skip

    def _count(self, name: str, count: float = 1) -> None:
        """Nothing is committed yet; the replay counts what it commits."""
        inc_stat = self._loop.session.inc_stat
        if name == "pages/committed":
            inc_stat("journal/provisional", count)
        elif name != "shards/finished":
            inc_stat(name, count)

    # The end

    async def _end(self) -> None:
        """Let the pages in flight come to their end, and the shards go."""
        loop, flow = self._loop, self._loop.flow
        deadline = clock.monotonic() + min(self._settings.grace, self._settings.lease / 2)
        while flow.read_now and clock.monotonic() < deadline:
            await loop.wakeup.wait(_LOOK)
        if self._committer is not None:
            await self._committer.drained()
            flow.use(loop.committer, loop.session.inc_stat)
            loop.ledger.duplicates.forget()  # some of it may have to be read again after all
        logger.warning(
            "The database is back after %.0f s", clock.monotonic() - self._since,
            extra={"action": "store_back"},
        )  # fmt: skip
        await self.close()
