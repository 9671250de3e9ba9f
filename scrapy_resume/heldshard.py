"""A shard that this process holds, and what its pages are judged by."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from scrapy.utils.asyncio import CallLaterResult
from twisted.internet.defer import Deferred

from scrapy_resume import clock
from scrapy_resume.paging import PageEnd, PagePolicy, Walk
from scrapy_resume.walks import ChainWalk

if TYPE_CHECKING:
    from scrapy import Request

    from scrapy_resume.followup import Ticket
    from scrapy_resume.ledger import OpenPage
    from scrapy_resume.suspicion import Sight

logger = logging.getLogger(__name__)

LONG = 300.0  # seconds after which a shard is reported as too large


@dataclass(eq=False, slots=True)
class Probe:
    """A blocked site is tried with one page. *policy* is for the time after it, *told* hears
    how it went, once (None: it ended without showing anything)."""

    policy: PagePolicy
    told: Callable[[bool | None, str], None]
    over: bool = False

    def end(self, passed: bool | None, why: str = "") -> None:
        """Say how it went, if nobody did before."""
        if not self.over:
            self.over = True
            self.told(passed, why)


@dataclass(eq=False, slots=True)
class HeldShard:
    """A shard this process holds the lease of: its walk and its open pages.

    *following* keeps the next requests of a chain as the spider made them, with the
    cookies and secrets that a stored cursor leaves out.
    """

    walk: Walk
    probe: Probe | None = None
    open: dict[int, OpenPage] = field(default_factory=dict)
    waiting: dict[int, Deferred[None]] = field(default_factory=dict)
    committing: dict[int, Ticket] = field(default_factory=dict)
    following: dict[int, Request] = field(default_factory=dict)
    body_digest: dict[int, str] = field(default_factory=dict)
    stated: dict[int, int] = field(default_factory=dict)
    timers: dict[int, CallLaterResult] = field(default_factory=dict)
    sights: dict[int, Sight] = field(default_factory=dict)
    doubted: dict[int, PageEnd] = field(default_factory=dict)
    resting: bool = False
    waits: bool = False  # for its site: to have rested, or for what a check of it shows
    ending: bool = False
    begun: bool = False
    since: float = field(default_factory=lambda: clock.monotonic())
    reported: bool = False

    @property
    def id(self) -> int:
        """The shard's id."""
        return self.walk.claimed.id

    @property
    def site(self) -> str:
        """The site whose health counts for it."""
        return self.walk.claimed.site

    @property
    def quiet(self) -> bool:
        """Whether nothing of it is being read or stored, and nothing may be opened now."""
        kept = self.walk.kept  # safe in the journal: read, and as good as stored
        read = self.walk.in_flight - set(self.waiting) - set(self.doubted) - kept
        may_open = self.walk.may_open and not (self.trying and self.begun)
        return not read and not self.committing.keys() - kept and not may_open

    @property
    def trying(self) -> bool:
        """Whether its site is being tried with it, by one page."""
        return self.probe is not None and not self.probe.over

    @property
    def token(self) -> int:
        """The fencing token of this claim."""
        return self.walk.claimed.fencing_token

    def report_if_long(self, inc_stat: Callable[[str], None]) -> None:
        """Say once that the shard takes long, with the size that would not.

        Its pages could be read by several processes if it were several shards. A chain
        cannot be cut.
        """
        taken = clock.monotonic() - self.since
        read = self.walk.position.page_count - self.walk.claimed.position.page_count
        if self.reported or taken < LONG or not read or isinstance(self.walk, ChainWalk):
            return
        self.reported = True
        inc_stat("shards/long")
        logger.info(
            "Shard %d has been read for %.0f min, %d pages of it; shards of %d pages would take"
            " about %.0f min each and could be shared out", self.walk.claimed.shard_no, taken / 60,
            read, max(1, int(read * LONG / taken)), LONG / 60, extra={"action": "shard_long"},
        )  # fmt: skip
