"""What an owner says of a shard, and what became of it; all as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, TypeAlias

from scrapy_resume.page import Trouble
from scrapy_resume.store.items.table import Row
from scrapy_resume.store.quarantine import QuarantineRecord
from scrapy_resume.store.repeats import Repeats
from scrapy_resume.watermark import Position


@dataclass(frozen=True, slots=True)
class PageRecord:
    """A complete page: its rows, what of it was set aside, and how many items were dropped.

    *cursor* is the JSON text that asks for the next page, given by chains, whose pages
    come in order; *digests* is text of the loop guard. *ends* says that the shard ends with
    this page, which becomes its last one in the same transaction. An *ordered* page is
    stored only right behind the watermark: a chain's cursor must not pass over a hole.
    """

    shard_id: int
    fencing_token: int
    page: int
    rows: tuple[Row, ...]
    quarantine: tuple[QuarantineRecord, ...] = ()
    dropped: int = 0
    cursor: str | None = None
    digests: str | None = None
    ends: bool = False
    ordered: bool = False


@dataclass(frozen=True, slots=True)
class PageFailure:
    """A page that is held: recorded as failed, the watermark stays below it."""

    shard_id: int
    fencing_token: int
    page: int
    trouble: Trouble
    attempts: int = 1


@dataclass(frozen=True, slots=True)
class Finish:
    """The shard is final: *status* is done or failed."""

    page: ClassVar[None] = None  # it is about no single one

    shard_id: int
    fencing_token: int
    status: str
    reason: str


@dataclass(frozen=True, slots=True)
class Release:
    """The shard goes back to pending, to be due in *delay* seconds, or at once for None.

    With the kind ``code`` and no delay it is due when a process starts. *spend_attempt*
    keeps the attempt that the claim counted; when those are used up the shard fails.
    """

    page: ClassVar[None] = None  # it is about no single one

    shard_id: int
    fencing_token: int
    reason: str
    error_kind: str | None = None
    delay: float | None = None
    spend_attempt: bool = False
    last_error: str | None = None


Record: TypeAlias = PageRecord | PageFailure | Finish | Release


def is_mere_stop(record: Record | None) -> bool:
    """Whether *record* gives a shard back that nothing is wrong with, as any start would."""
    return isinstance(record, Release) and record.error_kind is None


@dataclass(frozen=True, slots=True)
class CommitResult:
    """What one commit did.

    *positions* of the shards that are still ours; *fenced* shards are not, and nothing
    of them was written. *rejected* are rows that the database refused, on record in
    quarantine. *written* counts rows stored, a key once per page; *repeated* are rows whose
    key had come before on their page. *ignored* are fields without a column, *coerced*
    values stored less exactly than given. *held* are pages left out because of a refused row
    (only with *hold_records*), each with its trouble.
    *statuses* are those that Finish and Release led to. *repeats* counts the transactions
    that failed before this one, by cause.
    """

    positions: dict[int, Position] = field(default_factory=dict)
    fenced: frozenset[int] = frozenset()
    rejected: tuple[QuarantineRecord, ...] = ()
    written: int = 0
    repeated: int = 0
    ignored: int = 0
    coerced: int = 0
    held: tuple[tuple[int, int, Trouble], ...] = ()
    statuses: dict[int, str] = field(default_factory=dict)
    repeats: Mapping[str, int] = field(default_factory=dict)

    @property
    def retries(self) -> int:
        """How often the transaction was repeated."""
        return sum(self.repeats.values())


def with_repeats(result: CommitResult, repeats: Repeats) -> CommitResult:
    """*result* with what *repeats* counted on the way to it."""
    return replace(result, repeats=dict(repeats.counts)) if repeats.counts else result
