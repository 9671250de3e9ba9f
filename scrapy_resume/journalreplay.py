"""Replay: what a process that died had read, and not yet stored, comes into the database.

Whoever holds a slot's lock replays its journal before anything raises the fencing tokens of
what its process held (``recordreplay`` does the work). The file is then as good as new.

What cannot be replayed, for a table that is gone or a record that a newer version wrote, is
set aside with the file and said: it must not keep the slot from working. A journal of another
database is left alone; its own processes replay it.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path

from scrapy_resume import clock, journalnotes
from scrapy_resume.exceptions import JournalFailed, StoreUnavailable
from scrapy_resume.journal import FILE, FOREIGN, REFUSED, Journal, aside_for, is_there
from scrapy_resume.recordreplay import Replay
from scrapy_resume.replayed import Replayed
from scrapy_resume.store import leases, operations
from scrapy_resume.store.engine import Database

__all__ = ["Replayed", "replay", "replay_open", "steps"]

logger = logging.getLogger(__name__)


def replay(
    db: Database, directory: Path, *, actor: str, holders: Collection[str] = (), lease: float = 0
) -> Replayed:
    """Replay the journal in a slot's *directory*, whose lock the caller holds, as :func:`steps`."""
    return sum(steps(db, directory, actor=actor, holders=holders, lease=lease), Replayed())


def steps(
    db: Database, directory: Path, *, actor: str, holders: Collection[str] = (), lease: float = 0
) -> Iterator[Replayed]:
    """The same in steps of a transaction or two, all on one thread.

    *holders* are the dead instances whose leases are renewed, for *lease* seconds each time,
    while their journal is replayed, lest a reaper hands their shards to somebody meanwhile. Raises
    StoreUnavailable; then it is to be repeated before anything is taken back.
    """
    known: dict[str, str] = {}
    for path in _journals(directory):
        known = known or journalnotes.of_database(db)
        journal = _found(path, known)
        if journal is not None:
            try:
                yield from _replayed(db, journal, actor, holders, lease)
            finally:
                journal.close()
            if path.name != FILE and not journal.records:
                path.unlink(missing_ok=True)  # where databases take turns one comes each time


def _journals(directory: Path) -> Iterator[Path]:
    """The slot's journal, if it has one, and those that processes with another database found
    there and set aside."""
    path = directory / FILE
    if is_there(path):
        yield path
    yield from aside_for(path, FOREIGN)


def _found(path: Path, known: Mapping[str, str]) -> Journal | None:
    try:
        return Journal.find(path, meta=known)
    except JournalFailed as error:
        logger.warning(
            "A journal cannot be replayed: %s; its pages are read again", error,
            extra={"action": "replay_failed"},
        )  # fmt: skip
        return None


class _Renewal:
    """Renews what dead instances hold, so that their journal is replayed in peace."""

    def __init__(self, db: Database, holders: Collection[str], lease: float) -> None:
        self._db, self._holders, self._lease = db, holders, lease
        self._due = clock.monotonic()

    def look(self, shards: Mapping[int, int]) -> None:
        """Renew *shards* (id to token) if it is time again."""
        if not (self._lease and shards) or clock.monotonic() < self._due:
            return
        for instance in self._holders:
            leases.renew(self._db, instance=instance, shards=shards, lease=self._lease, task_id=0)
        self._due = clock.monotonic() + self._lease / 3


def replay_open(
    db: Database, journal: Journal, *, actor: str, holders: Collection[str] = (), lease: float = 0
) -> Iterator[Replayed]:
    """Replay the open *journal* of a process that died.

    Its bases are then where the shards stand that it still holds on record, until somebody
    takes them back.

    Raises what a table raises that is not as it was declared, JournalFailed, StoreUnavailable.
    """
    if journal.damage is not None:
        _record(db, "journal_damaged", actor, str(journal.damage))
    work = Replay(db, journal, actor)
    held = {shard_id: base.fencing_token for shard_id, base in work.bases.items()}
    renewal = _Renewal(db, holders, lease)
    if journal.records:
        logger.info(
            "Replaying %d page(s) from %s", journal.pages, journal.path,
            extra={"action": "replaying"},
        )  # fmt: skip
        renewal.look(held)
    for done in work.steps():
        yield done
        if clock.monotonic() > db.deadline:
            raise StoreUnavailable(f"the crawl ends before {journal.path} is replayed")
        renewal.look(held)
    journal.flush()


def _replayed(
    db: Database, journal: Journal, actor: str, holders: Collection[str], lease: float
) -> Iterator[Replayed]:
    total = Replayed()
    try:
        for done in replay_open(db, journal, actor=actor, holders=holders, lease=lease):
            total += done
            yield done
    except StoreUnavailable:
        raise
    except JournalFailed as error:
        logger.warning(
            "A journal cannot be replayed further: %s; what is left of its pages is read again",
            error, extra={"action": "replay_failed"},
        )  # fmt: skip
    except Exception as error:
        db.look(lambda conn: None)  # raises if it is not the journal that is refused
        _set_aside(db, journal, actor, str(error))
    else:
        if total.unread:
            _set_aside(db, journal, actor, f"{total.unread} records cannot be understood")
    _say(total, journal)


def _set_aside(db: Database, journal: Journal, actor: str, why: str) -> None:
    pages, path = journal.pages, journal.set_aside(REFUSED)
    told = f"{pages} pages of a journal cannot be stored ({why}); it is set aside as {path}"
    logger.error(
        "%s. Its pages are read again. 'scrapy resume relay --journal' tries it again.", told,
        extra={"action": "replay_refused"},
    )  # fmt: skip
    _record(db, "journal_refused", actor, told)


def _record(db: Database, kind: str, actor: str, told: str) -> None:
    operations.note(db, operations.Operation(kind, actor, told))


def _say(total: Replayed, journal: Journal) -> None:
    if not any(asdict(total).values()):
        return
    lost = total.salvaged or total.dropped
    logger.log(
        logging.WARNING if lost or total.held else logging.INFO,
        "The journal %s was replayed: %s", journal.path, total,
        extra={"action": "replayed", **asdict(total)},
    )  # fmt: skip
