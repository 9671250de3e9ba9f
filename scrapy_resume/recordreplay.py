"""Records of a journal, brought into the database in the order in which they were written.

Each goes through the fence of its own token, like the commit that its writer did not live to
make. What the database has already changes nothing, so this may end at any point and be
repeated. Pages of a shard that is others' by now are settled as lost ones, after the rest.

A finish is not believed where pages are missing: a database that was restored from an older
backup lacks pages that were committed, and forgotten by the journal, long ago. Such a shard
stays unfinished, and its next owner reads what is missing. Few records are in memory at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from scrapy_resume import faults, journalcodec, journalnotes
from scrapy_resume.journal import Entry, Journal
from scrapy_resume.lostpages import misses_pages, same_shard, settle_lost
from scrapy_resume.replayed import Replayed
from scrapy_resume.store import checkpoints
from scrapy_resume.store.engine import Database
from scrapy_resume.store.items import ItemWriter
from scrapy_resume.store.leases import ClaimedShard
from scrapy_resume.store.records import CommitResult, Finish, PageFailure, PageRecord, Record
from scrapy_resume.store.standings import Standing, standings

logger = logging.getLogger(__name__)

GROUP = 20  # records of one commit
_LOST = 50  # pages of one salvage, or so many bytes of them
_LOST_BYTES = 4 * 1024 * 1024

Claim = tuple[int, int]  # shard and fencing token
Numbered = list[tuple[int, Record]]  # records with their numbers in the journal


@dataclass
class Replay:
    """The replay of one open journal, whose calls are all made by one thread.

    *bases* are the shards that its writer held, each where it stood before the records; the
    journal keeps them up to date.
    """

    db: Database
    journal: Journal
    actor: str
    bases: dict[int, ClaimedShard] = field(init=False)

    def __post_init__(self) -> None:
        notes = self.journal.meta
        self._tables = journalnotes.tables_of(notes)
        self._writer = ItemWriter(self.db, self._tables)
        self._hold = journalnotes.holds_records(notes)
        self._worker = notes.get(journalnotes.WORKER) or None
        self.bases = _bases(self.journal)
        self._moved: dict[int, bytes | None] = {}  # bases that the journal does not know yet
        self._lost: dict[Claim, list[int]] = {}
        self._size: dict[int, int] = {}  # in bytes, of the records at hand
        self._sizes: dict[int, int] = {}  # of what is lost
        self._holes: set[Claim] = set()  # whose finish is not believed
        self._unread: set[int] = set()  # shards with a record that cannot be understood

    def steps(self) -> Iterator[Replayed]:
        """Replay everything, a transaction or two at each step.

        Raises StoreUnavailable, and what a table raises that is not as it was declared; what is
        not done by then is still in the journal.
        """
        after = 0
        while entries := self.journal.entries(after, GROUP):
            faults.point("replay.before")
            done = self._group(entries)
            faults.point("replay.settled")
            after = entries[-1].seq
            if not self._lost:
                self._trim(after)
            yield done
        for claim in sorted(self._lost):
            for seqs in self._portions(self._lost[claim]):
                done = self._settle(claim, seqs)
                faults.point("replay.settled")
                yield done
        self._trim(after)

    def _portions(self, seqs: Sequence[int]) -> Iterator[list[int]]:
        portion: list[int] = []
        size = 0
        for seq in seqs:
            if portion and (len(portion) == _LOST or size + self._sizes[seq] > _LOST_BYTES):
                yield portion
                portion, size = [], 0
            portion.append(seq)
            size += self._sizes[seq]
        yield portion

    def _trim(self, after: int) -> None:
        """Have the journal forget in order: nothing while something before waits."""
        if after and not self._unread:
            self.journal.trim(after, self._moved)
            self._moved = {}

    def _group(self, entries: Sequence[Entry]) -> Replayed:
        records = [(entry.seq, one) for entry in entries if (one := self.read(entry))]
        now = standings(self.db, {record.shard_id for _, record in records})
        self._size = {entry.seq: len(entry.body) for entry in entries}
        ours: Numbered = []
        for seq, record in records:
            if self.is_ours(record, now.get(record.shard_id)):
                ours.append((seq, record))
            else:
                self._moved[record.shard_id] = None
                self._lose(seq, record)
        done = self._commit(ours, now) if ours else Replayed()
        return done + Replayed(unread=len(entries) - len(records))

    def read(self, entry: Entry) -> Record | None:
        """The record; None once one of its shard cannot be understood: order counts."""
        if entry.shard_id in self._unread:
            return None
        try:
            return journalcodec.load(entry.kind, entry.body)
        except ValueError as why:
            self._unread.add(entry.shard_id)
            logger.warning(
                "A record of the journal %s cannot be replayed: %s", self.journal.path, why,
                extra={"action": "replay_unread", "shard": entry.shard_id},
            )  # fmt: skip
            return None

    def is_ours(self, record: Record, now: Standing | None) -> bool:
        """Whether the journal's writer still holds the record's shard, by its row *now*."""
        now = same_shard(now, self.base(record.shard_id, record.fencing_token))
        return now is not None and now.is_held(record.fencing_token, self._worker)

    def base(self, shard_id: int, token: int) -> ClaimedShard | None:
        """The shard as the writer knew it under *token*."""
        base = self.bases.get(shard_id)
        return base if base is not None and base.fencing_token == token else None

    def _lose(self, seq: int, record: Record) -> None:
        if isinstance(record, PageRecord):
            self._lost.setdefault((record.shard_id, record.fencing_token), []).append(seq)
            self._sizes[seq] = self._size[seq]

    def _commit(self, ours: Numbered, now: Mapping[int, Standing]) -> Replayed:
        records = [record for _, record in ours if self._is_believed(record, ours, now)]
        before = {record.shard_id: now[record.shard_id].position for record in records}
        result = CommitResult()
        if records:
            result = checkpoints.commit(
                self.db, records, before, writer=self._writer, hold_records=self._hold
            )
        held = self._leave_out(ours, result)
        for seq, record in ours:
            if record.shard_id in result.fenced:
                self._lose(seq, record)
        self._advance(result)
        left = {(shard_id, page) for shard_id, page, _ in result.held}
        pages = [
            (one.shard_id, one.page)
            for one in records
            if isinstance(one, PageRecord) and one.shard_id not in result.fenced
        ]
        new = {one for one in pages if one not in left and not before[one[0]].has(one[1])}
        return Replayed(
            pages=len(new), items=result.written, rejected=len(result.rejected), held=held,
            stored=sum(one not in left and one not in new for one in pages),
        )  # fmt: skip

    def _is_believed(self, record: Record, ours: Numbered, now: Mapping[int, Standing]) -> bool:
        """Whether *record* is to be committed: a finish only if no page is missing by then."""
        if not (isinstance(record, Finish) and record.status == "done"):
            return True
        claim = (record.shard_id, record.fencing_token)
        before = [one for _, one in ours if one.shard_id == record.shard_id and one is not record]
        missing = misses_pages(now[record.shard_id], self.base(*claim), before)
        return not missing and claim not in self._holes

    def _leave_out(self, ours: Numbered, result: CommitResult) -> int:
        """Note the pages that were left out; returns how many were refused because of a row."""
        seqs = {(one.shard_id, one.page): (seq, one) for seq, one in ours
                if isinstance(one, PageRecord)}  # fmt: skip
        failures = []
        for shard_id, page, trouble in result.held:
            if shard_id in result.fenced:
                continue
            seq, record = seqs[shard_id, page]
            self._holes.add((shard_id, record.fencing_token))
            if trouble.error_class == "NotInOrder":
                self._lose(seq, record)
            else:
                failures.append(PageFailure(shard_id, record.fencing_token, page, trouble))
        if failures:
            positions = {one.shard_id: result.positions[one.shard_id] for one in failures}
            checkpoints.commit(self.db, failures, positions, writer=self._writer)
        return len(failures)

    def _advance(self, result: CommitResult) -> None:
        for shard_id, position in result.positions.items():
            base = self.bases.get(shard_id)
            if base is not None:
                moved = replace(base, position=position)
                self._moved[shard_id] = journalcodec.dump_shard(moved)
        self._moved |= dict.fromkeys({*result.statuses, *result.fenced})

    def _settle(self, claim: Claim, seqs: Sequence[int]) -> Replayed:
        bodies = self.journal.read(seqs)
        pages = [journalcodec.load("page", body) for body in bodies]
        done = settle_lost(
            self.db, [page for page in pages if isinstance(page, PageRecord)],
            self.base(*claim), tables=self._tables, actor=self.actor,
        )  # fmt: skip
        return Replayed(
            salvaged=done.salvaged, dropped=done.dropped, stored=done.stored,
            inserted=done.items.inserted,
        )  # fmt: skip


def _bases(journal: Journal) -> dict[int, ClaimedShard]:
    found = {}
    for shard_id, body in journal.bases().items():
        try:
            found[shard_id] = journalcodec.load_shard(body)
        except ValueError:  # of a newer version; the fence knows without
            continue
    return found
