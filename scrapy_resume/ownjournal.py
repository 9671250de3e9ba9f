"""This process's own journal: opened once its predecessor's was replayed, and closed at the end."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from scrapy_resume import journalcodec, journalnotes
from scrapy_resume.backlog import Backlog, Quota
from scrapy_resume.exceptions import JournalFailed
from scrapy_resume.journal import FILE, Journal
from scrapy_resume.journalling import Journalling
from scrapy_resume.store.engine import Database
from scrapy_resume.store.items import ItemTable
from scrapy_resume.threads import StoreThread

if TYPE_CHECKING:
    from scrapy_resume.claimloop import ClaimLoop

logger = logging.getLogger(__name__)


async def begin(loop: ClaimLoop) -> Journalling | None:
    """Open the journal of the loop's slot; None, with a warning, if it cannot be had."""
    settings, session = loop.settings, loop.session
    tables = session.rows.tables if session.rows is not None else []
    known = await loop.control.run(_notes, session.database, loop, tables)
    thread = StoreThread("journal")
    try:
        journal = await thread.run(_open, loop, known)
    except JournalFailed as error:
        logger.warning(
            "%s; the crawl does without a journal", error, extra={"action": "no_journal"}
        )
        await thread.stop(settings.grace)
        return None
    quota = Quota(settings.journal_max_pages, settings.journal_max_bytes)
    wake, inc_stat = loop.wakeup.set, session.inc_stat
    session.outage.journal = f"what is read meanwhile is kept in {journal.path}"
    return Journalling(
        thread, journal, Backlog(quota, str(journal.path), wake=wake, inc_stat=inc_stat),
        pressing=lambda waiting: loop.flow.pressing(waiting), wake=wake, inc_stat=inc_stat,
        on_failure=session.give_up, patience=settings.store_patience,
    )  # fmt: skip


def _notes(db: Database, loop: ClaimLoop, tables: Sequence[ItemTable]) -> dict[str, str]:
    """What a replay has to know, besides the records. Called on the control thread."""
    assert loop.task is not None
    return {
        **journalnotes.of_database(db),
        **journalnotes.of_rows(tables, loop.settings.on_failed_record),
        journalnotes.WORKER: loop.slot.worker,
        journalnotes.TASK: journalcodec.dump_task(loop.task).decode(),
    }


def _open(loop: ClaimLoop, known: dict[str, str]) -> Journal:
    journal = Journal.open(loop.slot.directory / FILE, meta=known)
    journal.trim(0, dict.fromkeys(journal.bases()))  # what its predecessor held was taken back
    return journal


async def end(loop: ClaimLoop) -> int:
    """Close the journal, and say what is left in it; returns how many records are."""
    journalling = loop.journalling
    if journalling is None:
        return 0
    pages, left = journalling.backlog.pages, journalling.backlog.records
    await journalling.close(loop.settings.grace)
    loop.crawler.stats.set_value("resume/journal/left", pages)
    tell_left(pages, journalling.path)
    return left


def tell_left(pages: int, path: str) -> None:
    """Say that so many *pages* are in the journal at *path* and nowhere else, if any are."""
    if pages:
        logger.warning(
            "%d page(s) are in the journal %s and are stored at the next start on this machine,"
            " or by `scrapy resume relay --journal %s`", pages, path, path,
            extra={"action": "journal_left"},
        )  # fmt: skip
