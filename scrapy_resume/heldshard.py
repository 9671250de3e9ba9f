"""A shard that this process holds, and what its pages are judged by."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from scrapy.utils.asyncio import CallLaterResult
from twisted.internet.defer import Deferred

from scrapy_resume import clock
from scrapy_resume.exceptions import ConfigurationError
from scrapy_resume.loopguard import digest
from scrapy_resume.page import ErrorKind, Trouble, Where
from scrapy_resume.paging import PageEnd, Walk
from scrapy_resume.store.items import Row
from scrapy_resume.walks import ChainWalk, OpenEndedWalk

if TYPE_CHECKING:
    from scrapy import Request

    from scrapy_resume.ledger import OpenPage
    from scrapy_resume.suspicion import Sight

logger = logging.getLogger(__name__)

LONG = 300.0  # seconds after which a shard is reported as too large


@dataclass(eq=False, slots=True)
class HeldShard:
    """A shard this process holds the lease of: its walk and its open pages.

    *following* keeps the next requests of a chain as the spider made them, with the
    cookies and secrets that a stored cursor leaves out.
    """

    walk: Walk
    open: dict[int, OpenPage] = field(default_factory=dict)
    waiting: dict[int, Deferred[None]] = field(default_factory=dict)
    committing: set[int] = field(default_factory=set)
    following: dict[int, Request] = field(default_factory=dict)
    body_digest: dict[int, str] = field(default_factory=dict)
    stated: dict[int, int] = field(default_factory=dict)
    timers: dict[int, CallLaterResult] = field(default_factory=dict)
    sights: dict[int, Sight] = field(default_factory=dict)
    doubted: dict[int, PageEnd] = field(default_factory=dict)
    resting: bool = False
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
        read = self.walk.in_flight - set(self.waiting) - set(self.doubted)
        return not read and not self.committing and not self.walk.may_open

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


def content_of(shard: HeldShard, number: int, page: OpenPage, rows: tuple[Row, ...]) -> str:
    """What the page yielded, to be compared with other pages of its list.

    Keys and requests tell pages apart where each item has a key of its own and all of
    them were kept. Else the whole page counts: a page is not another one because
    what is left of it looks the same.
    """
    body = shard.body_digest.pop(number, "")
    if not isinstance(shard.walk, (OpenEndedWalk, ChainWalk)) or not (rows or page.seen):
        return body
    keys = {f"{row.table}\x1f{row.key!r}" for row in rows}
    requests = [fingerprint.hex() for fingerprint in page.seen]
    whole = len(keys) == len(rows) == page.items_in
    if whole and len(rows) + len(requests) > 1:
        return digest([*keys, *requests])
    values = [repr(sorted(row.values.items())) for row in rows]
    return digest([*values, *requests, *([] if whole else [body])])


def statuses(declared: Any) -> frozenset[int]:
    """The spider's ``end_statuses``; one number will do, and so will text given by ``-a``."""
    if isinstance(declared, int):
        return frozenset({declared})
    parts = declared.replace(",", " ").split() if isinstance(declared, str) else declared or ()
    try:
        return frozenset(int(status) for status in parts)
    except (TypeError, ValueError):
        raise ConfigurationError(
            f"end_statuses is {declared!r}; it must be HTTP statuses such as (404, 410)"
        ) from None


def place(rows: tuple[Row, ...], walk: Walk, number: int) -> None:
    """Tell the rows of the default item table where they were found."""
    claimed = walk.claimed
    where = {"task_id": claimed.task_id, "shard_no": claimed.shard_no, "page": number}
    for row in rows:
        if row.table is None:
            row.values.update(where)


def own_fault(error: Exception) -> Trouble:
    """An error of the spider's own code."""
    return Trouble(Where.PAGE, ErrorKind.CODE, type(error).__name__, str(error)[:200])
