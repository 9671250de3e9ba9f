"""Records in the journal: the codec and the file together, on the journal's thread."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from scrapy_resume import journalcodec
from scrapy_resume.exceptions import JournalFailed
from scrapy_resume.journal import Given, Journal
from scrapy_resume.store.leases import ClaimedShard
from scrapy_resume.submission import Submission

logger = logging.getLogger(__name__)

Place = tuple[int, int]  # number in the journal, and bytes
Bases = Mapping[int, ClaimedShard | None]


class RecordJournal:
    """A journal that takes submissions and gives their records back."""

    def __init__(self, journal: Journal) -> None:
        self.path = str(journal.path)
        self._journal = journal
        self._probes = 0

    def append(self, batch: Sequence[Submission]) -> list[Place | None]:
        """The place of each record that is kept; None for what need not or cannot be.

        Raises JournalFailed, and nothing of the batch is kept.
        """
        entries = [_entry(one) for one in batch]
        given = [one for one in entries if one is not None]
        seqs = iter(self._journal.append(given) if given else ())
        return [None if one is None else (next(seqs), len(one[-1])) for one in entries]

    def trim(self, upto: int, held: Bases) -> None:
        """Forget what is settled, and remember where shards stand now."""
        bases = {
            shard_id: None if claimed is None else journalcodec.dump_shard(claimed)
            for shard_id, claimed in held.items()
        }
        self._journal.trim(upto, bases)

    def load(self, group: Sequence[Submission]) -> list[JournalFailed | None]:
        """Bring records back to memory; those that are lost say why."""
        return [self._load(one) if one.record is None else None for one in group]

    def _load(self, one: Submission) -> JournalFailed | None:
        try:
            (body,) = self._journal.read([] if one.seq is None else [one.seq])
            one.record = journalcodec.load("page", body)
        except JournalFailed as error:
            return error
        except ValueError as error:
            return JournalFailed(f"a page in the journal {self.path} cannot be read: {error}")
        return None

    def probe(self) -> None:
        """See whether a little can be written. Raises JournalFailed."""
        self._probes += 1
        self._journal.set_meta("probe", str(self._probes))
        self._journal.flush()

    def flush(self) -> None:
        """Write what is settled, if that is possible now."""
        try:
            self._journal.flush()
        except JournalFailed:
            logger.debug("Nothing could be written to %s", self.path, exc_info=True)

    def close(self) -> None:
        """Write what is settled and let the file go."""
        self._journal.close()


def _entry(one: Submission) -> Given | None:
    if one.record is None or one.is_mere_stop:
        return None
    try:
        return journalcodec.entry(one.record)
    except TypeError as error:
        logger.warning(
            "A record of shard id %d is not in the journal, only on its way to the database: %s",
            one.shard_id, error, extra={"action": "not_journalled"},
        )  # fmt: skip
        return None
