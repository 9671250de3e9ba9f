"""What follows once a page is in the journal, and once the database has taken it.

While a page waits for its COMMIT nothing of its reading is kept but a :class:`Ticket`: with
a journal thousands of pages may wait.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from twisted.python.failure import Failure

from scrapy_resume.committer import Committer
from scrapy_resume.page import ErrorKind
from scrapy_resume.store.checkpoints import Finish, PageFailure, PageRecord, Record, Release
from scrapy_resume.submission import Outcome

if TYPE_CHECKING:
    from scrapy_resume.heldshard import HeldShard
    from scrapy_resume.pageflow import PageFlow

logger = logging.getLogger(__name__)


@dataclass(eq=False, slots=True)
class Ticket:
    """A record that was submitted, without its rows.

    *aside* says that the page as a whole is set aside; *fingerprints* are those of its
    requests, once it is in the journal.
    """

    record: Record
    dropped: int = 0
    quarantined: int = 0
    aside: bool = False
    fingerprints: tuple[bytes, ...] = ()

    @classmethod
    def of(cls, record: Record) -> Ticket:
        """What is remembered of *record*."""
        if not isinstance(record, PageRecord):
            return cls(record)
        aside = any(one.kind == "page" for one in record.quarantine)
        light = replace(record, rows=(), quarantine=(), cursor=None, digests=None)
        return cls(light, record.dropped, len(record.quarantine), aside)

    @property
    def page(self) -> int | None:
        """The page that it is about."""
        return self.record.page


class FollowUp:
    """Submits the records of one page flow, and acts on what becomes of them."""

    def __init__(self, flow: PageFlow, committer: Committer) -> None:
        self._flow, self._committer = flow, committer
        self._blocked: dict[int, int] = {}  # times in a row that we gave a shard back as blocked

    def blocked_before(self, shard_id: int) -> int:
        """How often in a row, before now, the shard was given back as blocked."""
        return self._blocked.get(shard_id, 0)

    def submit(self, shard: HeldShard, record: Record) -> None:
        """Have *record* stored, and follow it up."""
        ticket = Ticket.of(record)
        if ticket.page is not None:
            shard.committing[ticket.page] = ticket
        outcome = self._committer.submit(record, partial(self._journalled, shard, ticket))
        outcome.addCallback(self._stored, shard, ticket)
        outcome.addErrback(self._not_followed_up)

    def _journalled(self, shard: HeldShard, ticket: Ticket) -> None:
        """The page is safe: let its request go, and another page have its place."""
        flow, number = self._flow, ticket.page
        if number is None or shard.committing.get(number) is not ticket:
            return
        page = shard.open.get(number)
        if page is not None and isinstance(ticket.record, PageRecord) and not ticket.aside:
            ticket.fingerprints = tuple(page.fingerprints)
        shard.walk.journalled(number)
        if not flow.hold_records:
            shard.following.pop(number, None)
        flow.forget(shard, number)
        flow.wake()

    def _not_followed_up(self, failure: Failure) -> None:
        """Going on could hang the crawl: close it, the shards are read on at the next start."""
        logger.error(
            "A stored record could not be followed up", exc_info=failure.value,
            extra={"action": "not_followed_up"},
        )  # fmt: skip
        self._flow.fail(failure.value or RuntimeError("unknown"))

    def _stored(self, outcome: Outcome, shard: HeldShard, ticket: Ticket) -> None:
        flow, record, number = self._flow, ticket.record, ticket.page
        awaited = number is None or shard.committing.get(number) is ticket
        if number is not None and awaited:
            del shard.committing[number]
        if outcome.status == "fenced":
            flow.lose([shard.id] if flow.shards.get(shard.id) is shard else ())
        elif isinstance(record, (Finish, Release)):
            self._ended(shard, record, outcome.status == "committed")
        elif outcome.status == "committed":
            self._page_stored(outcome, shard, ticket, awaited)
        elif awaited and number is not None:
            if outcome.status == "refused" and outcome.trouble is not None:
                flow.act(shard, shard.walk.refused(number, outcome.trouble))
            else:
                flow.forget(shard, number)
        flow.wake()

    def _page_stored(
        self, outcome: Outcome, shard: HeldShard, ticket: Ticket, awaited: bool
    ) -> None:
        """*awaited* is false if the page was discarded meanwhile; it may be open again."""
        flow, record = self._flow, ticket.record
        if isinstance(record, PageRecord):
            flow.inc_stat("pages/committed")
            flow.inc_stat("items/dropped", ticket.dropped)
            flow.inc_stat("items/quarantined", ticket.quarantined)
            if awaited and not ticket.aside:
                page = shard.open.get(record.page)
                flow.ledger.remember(ticket.fingerprints if page is None else page.fingerprints)
        elif isinstance(record, PageFailure):
            flow.inc_stat("pages/held")
            logger.error(
                "Page %d of shard %d is held: %s: %s", record.page, shard.walk.claimed.shard_no,
                record.trouble.error_class, record.trouble.error, extra={"action": "page_held"},
            )  # fmt: skip
        if awaited and ticket.page is not None:
            shard.walk.settled(ticket.page, outcome.position)
            shard.following.pop(ticket.page, None)
            flow.forget(shard, ticket.page)
        else:
            shard.walk.moved(outcome.position)
        flow.end_if_idle(shard)

    def _count_blocked(self, shard: HeldShard, record: Finish | Release) -> None:
        """Each time in a row that a shard is blocked, without progress, it waits longer."""
        before = self._blocked.pop(shard.id, 0)
        walk = shard.walk
        if isinstance(record, Release) and record.error_kind == ErrorKind.BLOCKED.value:
            progress = walk.position.version > walk.claimed.position.version
            self._blocked[shard.id] = 1 if progress else before + 1
            self._flow.inc_stat("health/parked")

    def _ended(self, shard: HeldShard, record: Finish | Release, stored: bool) -> None:
        flow = self._flow
        if flow.shards.get(shard.id) is shard:
            del flow.shards[shard.id]
            flow.doubts.gone(shard)
        self._count_blocked(shard, record)
        if stored:
            flow.freed(isinstance(record, Release))
        if stored and isinstance(record, Finish):
            flow.inc_stat("shards/finished")
            level = logging.DEBUG if record.status == "done" else logging.ERROR
            logger.log(
                level, "Shard %d is %s: %s", shard.walk.claimed.shard_no, record.status,
                record.reason, extra={"action": "shard_finished"},
            )  # fmt: skip
