"""UpsertPipeline: items become rows, stored with their page or in batches of their own.

An item of a page travels with the page: its row is written in the transaction that
moves the checkpoint. Items of no page (from ``start()``, or of a spider without the
mixin) are written in batches; a killed process loses at most the last batch.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from scrapy.utils.asyncio import call_later
from scrapy.utils.defer import maybe_deferred_to_future

from scrapy_resume import faults
from scrapy_resume.exceptions import ResumeError
from scrapy_resume.itemrows import ItemRows
from scrapy_resume.ledger import current_page
from scrapy_resume.session import Session

if TYPE_CHECKING:
    from scrapy.crawler import Crawler
    from twisted.internet.defer import Deferred

    from scrapy_resume.ledger import OpenPage
    from scrapy_resume.store.items import Row

logger = logging.getLogger(__name__)

BATCH_SECONDS = 1.0
"""How long a row of no page waits for company at most."""


class UpsertPipeline:
    """Writes items into the default item table or the spider's own tables.

    Without the mixin it is a batching upsert pipeline for any spider.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._rows: ItemRows | None = None
        self._loose: list[Row] = []
        self._writing: Deferred[Any] | None = None
        self._timer: Any = None

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> UpsertPipeline:
        """Share the crawl's session."""
        return cls(Session.of(crawler, "UpsertPipeline"))

    def open_spider(self) -> None:
        """Learn the spider's tables; they are looked at before the first request."""
        session = self._session
        if not session.settings.enabled:
            return
        try:
            self._rows = session.rows = ItemRows(session.crawler.spider)
            if type(self).process_item is UpsertPipeline.process_item:
                session.pipeline = self  # a subclass may want to see every item itself
            session.store_loose_rows = self.flush
        except ResumeError as error:
            session.refuse(error)

    async def process_item(self, item: Any) -> Any:
        """Keep the item's row. Raises for an item that cannot be stored: a failed record."""
        if self._rows is None:
            return item
        if item is None:
            raise ValueError("a pipeline before this one returned None instead of the item")
        faults.point("page.item")
        row = self._rows.row(item)
        page = current_page()
        if page is not None:
            page.add_row(row)
        else:
            await self._keep(row)
        return item

    def take(self, page: OpenPage, item: Any) -> bool:
        """Keep the row of an item of *page* where nobody else wants to see the item.

        False if it cannot be stored: the usual way says so and sets it aside.
        """
        if self._rows is None:
            return False
        try:
            faults.point("page.item")
            row = self._rows.row(item)
        except Exception:
            return False
        page.items_in += 1
        page.items_scraped += 1
        page.rows.append((page.items_in, row))
        return True

    async def _keep(self, row: Row) -> None:
        self._loose.append(row)
        if len(self._loose) >= self._session.settings.commit_items:
            await self.flush()
        elif self._timer is None:
            self._timer = call_later(BATCH_SECONDS, self._flush_soon)

    def _flush_soon(self) -> None:
        self._timer = None
        if self._writing is None:
            self._start_writing()

    def _start_writing(self) -> None:
        rows, self._loose = self._loose, []
        if rows:
            self._writing = self._session.commits.call(self._session.store_rows, rows)
            self._writing.addBoth(self._written, len(rows))

    def _written(self, result: Any, count: int) -> None:
        self._writing = None
        if isinstance(result, int):
            self._session.inc_stat("items/written", result)
            return
        self._session.inc_stat("items/lost", count)
        logger.error(
            "%d items of no page could not be stored: %s", count, result.value,
            extra={"action": "items_lost"},
        )  # fmt: skip

    async def flush(self) -> None:
        """Store every row that waits for company."""
        while self._writing is not None or self._loose:
            if self._writing is None:
                self._start_writing()
            if self._writing is not None:
                await maybe_deferred_to_future(self._writing)

    async def close_spider(self) -> None:
        """Store what is left; close the database if no page needs it."""
        if self._timer is not None:
            self._timer.cancel()
        await self.flush()
        if self._session.loop is None:
            await self._session.close()
