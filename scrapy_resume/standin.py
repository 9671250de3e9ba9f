"""The journal in place of the database, while nobody knows what that would say.

It takes groups of records as a commit does, and answers as the database would if the shards
are still ours. Whether they are the replay finds out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from scrapy_resume import clock, journalcodec
from scrapy_resume.backlog import tell_full
from scrapy_resume.exceptions import JournalFailed
from scrapy_resume.journal import Journal
from scrapy_resume.store.fences import fold
from scrapy_resume.store.records import CommitResult, Record, is_mere_stop
from scrapy_resume.watermark import Position


class StandIn:
    """Takes records for the database; *kept_at* is when it last did."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.kept_at = clock.monotonic()

    def is_full(self, pages: int, size: int) -> bool:
        """Whether it holds *pages* pages, or *size* bytes; says so."""
        journal = self._journal
        if journal.pages < pages and journal.size < size:
            return False
        tell_full(journal.pages, journal.size, str(journal.path), "it answers")
        return True

    def commit(self, records: Sequence[Record], positions: Mapping[int, Position]) -> CommitResult:
        """Append *records*. Raises JournalFailed, and nothing of them is kept."""
        kept = [record for record in records if not is_mere_stop(record)]
        try:
            self._journal.append([journalcodec.entry(record) for record in kept])
        except TypeError as error:
            raise JournalFailed(f"A page cannot be kept in the journal: {error}") from error
        self.kept_at = clock.monotonic()
        return CommitResult(positions=_after(kept, positions))


def _after(records: Sequence[Record], positions: Mapping[int, Position]) -> dict[int, Position]:
    moved = dict(positions)
    for record in records:
        before = moved[record.shard_id]
        folded = fold(before, [record], ())
        version = before.version + (not folded.nothing_new)
        moved[record.shard_id] = replace(folded.position, version=version)
    return moved
