"""Shards and pages as values, and the rule that judges a page.

Pure: what a page went through is counted by the ledger, told here as
:class:`Trouble` and judged by :func:`judge`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any


@dataclass(frozen=True, slots=True)
class Shard:
    """A disjoint part of a run's list pages, as ``plan()`` yields it.

    *key* names it within the run. *last_page* of None means open-ended. *cursor*
    is the JSON value that asks for the first page, *spec* any JSON the spider
    wants back. *ordered* says that pages must be read one after the other because
    each names the next (a chain); None lets the spider's way of paging decide.
    """

    key: str
    first_page: int = 1
    last_page: int | None = None
    cursor: Any = None
    priority: int = 0
    site: str | None = None
    spec: Any = None
    ordered: bool | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """One list page of a shard, as the spider's hooks get it.

    *attempt* counts the tries of this page in this process from 1; *resumed* is
    true when the shard had been worked on by an earlier claim.
    """

    number: int
    shard: Shard
    cursor: Any = None
    attempt: int = 1
    resumed: bool = False


class ErrorKind(str, Enum):
    """How an error is treated.

    RETRYABLE is tried again in place; PERMANENT (authorisation, 404 in the middle,
    invalid data) is not; BLOCKED spends no retry; CODE is an error of the spider's
    own code, due again at the next start, since that is when it was mended.
    """

    RETRYABLE = "retryable"
    PERMANENT = "permanent"
    BLOCKED = "blocked"
    CODE = "code"


_WRONG_REQUEST = frozenset({400, 413, 414, 416, 422, 500})


class Where(str, Enum):
    """What an error struck: the list page itself, a request below it, or an item."""

    PAGE = "page"
    REQUEST = "request"
    ITEM = "item"


@dataclass(frozen=True, slots=True)
class Trouble:
    """One thing that went wrong on a page; *error* is shortened and holds no secret."""

    where: Where
    kind: ErrorKind
    error_class: str
    error: str
    url: str | None = None
    status: int | None = None
    retry_after: float | None = None
    item_key: str | None = None
    item_table: str | None = None
    column: str | None = None
    value: str | None = None

    def is_refusal(self, statuses: Collection[int]) -> bool:
        """Is it what a site does to everybody whom it blocks? *statuses* are its answers then."""
        site = self.kind in (ErrorKind.RETRYABLE, ErrorKind.PERMANENT)
        return site and (self.status is None or self.status in statuses)

    @property
    def is_wrong_request(self) -> bool:
        """Does the site say that it is the request which is wrong?"""
        return self.status in _WRONG_REQUEST


class Decision(str, Enum):
    """What becomes of a page: commit it, or the page itself failed, or it does not exist."""

    COMPLETE = "complete"
    FAILED = "failed"
    MISSING = "missing"


def judge(
    troubles: Iterable[Trouble], *, hold_records: bool, end_statuses: frozenset[int]
) -> tuple[Decision, Trouble | None]:
    """Judge a page whose every request and item is done.

    *hold_records* is ``RESUME_ON_FAILED_RECORD="hold"``. *end_statuses* are the
    HTTP statuses that mean "past the end" for this shard (empty for one that
    states its last page). Returns the decision and the trouble that made it.
    """
    troubles = list(troubles)
    fatal = [t for t in troubles if t.where is Where.PAGE or hold_records]
    if not fatal:
        return Decision.COMPLETE, None
    if len(troubles) == 1 and fatal[0].where is Where.PAGE and fatal[0].status in end_statuses:
        return Decision.MISSING, fatal[0]
    return Decision.FAILED, min(fatal, key=_gravity)


_ORDER = (ErrorKind.BLOCKED, ErrorKind.CODE, ErrorKind.PERMANENT, ErrorKind.RETRYABLE)


def _gravity(trouble: Trouble) -> tuple[bool, int]:
    return trouble.where is not Where.PAGE, _ORDER.index(trouble.kind)
