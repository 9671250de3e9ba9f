"""Storing: the store calls of the commit thread, and the look at the tables before them.

Plain functions of the database: nothing here runs in the event loop.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from scrapy_resume.lostpages import settle_lost
from scrapy_resume.store import checkpoints, migrate
from scrapy_resume.store.checkpoints import CommitResult, Record
from scrapy_resume.store.items import ItemTable, ItemWriter, inspection

if TYPE_CHECKING:
    from scrapy_resume.batches import Loose
    from scrapy_resume.committer import LostPage
    from scrapy_resume.session import Session
    from scrapy_resume.watermark import Position

logger = logging.getLogger(__name__)


class Storing:
    """What one crawl has stored: pages, rows of no page, and what is salvaged of lost pages."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._prepared = False
        self._writer: ItemWriter | None = None

    @property
    def _tables(self) -> Sequence[ItemTable]:
        rows = self._session.rows
        return rows.tables if rows is not None else ()

    def prepare(self) -> None:
        """Make or check the tables, ours and the users'. Called on a store thread.

        Raises SchemaMismatch, ConfigurationError or StoreUnavailable.
        """
        if self._prepared:
            return
        migrate.ensure_schema(self._session.database)
        migrate.require_transactional(self._session.database)
        checks = self._session.settings.item_checks
        for finding in inspection.require(self._session.database, self._tables, checks):
            logger.warning("%s", finding, extra={"action": "item_table"})
        self._prepared = True

    def _item_writer(self) -> ItemWriter:
        if self._writer is None:
            self._writer = ItemWriter(self._session.database, self._tables)
        return self._writer

    def commit(self, records: Sequence[Record], positions: dict[int, Position]) -> CommitResult:
        """One group commit. Called on the commit thread."""
        result = checkpoints.commit(
            self._session.database,
            records,
            positions,
            writer=self._item_writer(),
            hold_records=self._session.settings.on_failed_record == "hold",
        )
        self._session.refusals.rows(result.rejected)
        self._session.alerts.stored(records, result)
        return result

    def salvage(self, lost: Sequence[LostPage]) -> None:
        """Pages whose shards turned out to be others'. Called on the commit thread."""
        database = self._session.database
        of_one: dict[tuple[int, int], list[LostPage]] = {}
        for page, base in lost:
            of_one.setdefault((page.shard_id, page.fencing_token), []).append((page, base))
        for pages in of_one.values():
            actor = "a worker that had lost the shard"
            read = [page for page, _ in pages]
            settle_lost(database, read, pages[0][1], tables=self._tables, actor=actor)

    def loose(self, rows: Sequence[Loose]) -> CommitResult:
        """Write rows of no page in one transaction.

        Rows that the database refuses are quarantined. Called on the commit thread.
        """
        self.prepare()
        task = None if self._session.loop is None else self._session.loop.task
        result = checkpoints.store_rows(
            self._session.database,
            rows,
            writer=self._item_writer(),
            task_id=task.id if task else None,
        )
        self._session.refusals.rows(result.rejected)
        self._session.alerts.stored((), result)
        return result
