"""A record on its way from the page flow into the database, and what becomes of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from twisted.internet.defer import Deferred

from scrapy_resume.page import Trouble
from scrapy_resume.store.records import CommitResult, PageRecord, Record, is_mere_stop
from scrapy_resume.watermark import Position


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one record.

    It is *committed*, *fenced* (not ours any more), *refused*, *left* in the journal for the
    next start, or *unstored*. *trouble* says which row the database refused when the page was
    left out because records hold (``RESUME_ON_FAILED_RECORD="hold"``).
    """

    status: str
    position: Position | None = None
    trouble: Trouble | None = None


@dataclass(eq=False, slots=True)
class Submission:
    """One record until it is committed. *record* is None while the journal alone holds it.

    *seq* is its number in the journal, if it is there, and *size* its bytes; then *let_go* is
    called: its page needs no place among those in flight any more. *in_memory* counts it among
    those whose rows the memory holds beside the journal.
    """

    record: Record | None
    shard_id: int
    token: int
    page: int | None
    pages: int
    items: int
    let_go: Callable[[], None] | None = None
    seq: int | None = None
    size: int = 0
    in_memory: bool = False
    done: Deferred[Outcome] = field(default_factory=Deferred)

    @classmethod
    def of(cls, record: Record, let_go: Callable[[], None] | None = None) -> Submission:
        """*record*, about to be submitted."""
        whole = isinstance(record, PageRecord)
        return cls(
            record,
            record.shard_id,
            record.fencing_token,
            record.page,
            int(whole),
            len(record.rows) if isinstance(record, PageRecord) else 0,
            let_go,
        )

    @property
    def is_mere_stop(self) -> bool:
        """Whether it gives a shard back that nothing is wrong with, as any start would."""
        return is_mere_stop(self.record)

    @property
    def kept(self) -> bool:
        """Whether the journal holds it."""
        return self.seq is not None

    def resolve(self, outcome: Outcome) -> None:
        """Tell its submitter what became of it."""
        if not self.done.called:
            self.done.callback(outcome)


def outcomes_of(group: Sequence[Submission], result: CommitResult) -> list[Outcome]:
    """What *result* says became of each of *group*.

    A record of an earlier claim of its shard than another one of the group is void.
    """
    held = {(shard_id, page): trouble for shard_id, page, trouble in result.held}
    newest: dict[int, int] = {}
    for one in group:
        newest[one.shard_id] = max(one.token, newest.get(one.shard_id, 0))
    return [
        Outcome("fenced") if one.token < newest[one.shard_id] else _outcome(one, result, held)
        for one in group
    ]


def _outcome(
    one: Submission, result: CommitResult, held: Mapping[tuple[int, int], Trouble]
) -> Outcome:
    if one.shard_id in result.fenced:
        return Outcome("fenced")
    if one.pages and one.page is not None and (one.shard_id, one.page) in held:
        return Outcome("refused", trouble=held[one.shard_id, one.page])
    return Outcome("committed", result.positions.get(one.shard_id))
