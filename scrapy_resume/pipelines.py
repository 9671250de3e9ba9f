"""UpsertPipeline: items become rows, stored with their page or in batches of their own.

An item of a page travels with the page: its row is written in the transaction that
moves the checkpoint. Items of no page (from ``start()``, or of a spider without the
mixin) are written in :mod:`~scrapy_resume.batches`. The pipeline needs none of the other
components, in any spider.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scrapy_resume import faults, wraps
from scrapy_resume.batches import Batches, BatchLimits
from scrapy_resume.exceptions import ResumeError
from scrapy_resume.itemrows import ItemRows
from scrapy_resume.ledger import current_page
from scrapy_resume.patience import Patience
from scrapy_resume.refuseditem import RefusedItem
from scrapy_resume.session import Session
from scrapy_resume.store.quarantine import QuarantineRecord
from scrapy_resume.troubles import safe_text

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

    from scrapy_resume.ledger import OpenPage


class UpsertPipeline:
    """Writes items into the default item table or the spider's own tables.

    Without the mixin it is a batching upsert pipeline for any spider.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._rows: ItemRows | None = None
        self._batches: Batches | None = None

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> UpsertPipeline:
        """Share the crawl's session."""
        return cls(Session.of(crawler, "UpsertPipeline"))

    async def open_spider(self) -> None:
        """Learn the spider's tables, and look at them before the first request.

        The page middleware does the latter, where it is on: once the crawl begins, which
        ``scrapy shell`` never does.
        """
        session = self._session
        if session.alone and session.mistake is not None:
            session.refuse(session.mistake)
        if not session.settings.enabled:
            return
        try:
            self._rows = session.rows = ItemRows(session.crawler.spider, session.settings)
            if type(self).process_item is UpsertPipeline.process_item:
                session.pipeline = self  # a subclass may want to see every item itself
            wraps.watch(session.crawler.engine, self._closing, lambda: self._is_crowded)
            if session.alone:
                await session.commits.run(session.storing.prepare)
        except ResumeError as error:
            session.refuse(error)

    async def process_item(self, item: Any) -> Any:
        """Keep the item's row. Raises RefusedItem for one that has none: it is set aside."""
        if self._rows is None:
            return item
        if item is None:
            raise ValueError("a pipeline before this one returned None instead of the item")
        faults.point("page.item")
        page = current_page()
        try:
            row = self._rows.row(item)
        except RefusedItem as why:
            self._session.refusals.tell(why.table, why.column, why.error_class, why.reason)
            if page is None:  # else the page puts it on record
                await self._batch().add(_record(why, self._rows, item))
            raise
        if page is not None:
            page.add_row(row)
        else:
            await self._batch().add(row)
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

    def _batch(self) -> Batches:
        """The batches, made for the first row of no page."""
        if self._batches is None:
            self._batches = _batches(self._session)
            self._session.store_loose_rows = self._batches.flush
        return self._batches

    @property
    def _is_crowded(self) -> bool:
        return self._batches is not None and self._batches.crowded

    def _closing(self) -> None:
        """The engine begins to close: what waits is written at once."""
        self._session.hurry()
        if self._batches is not None:
            self._batches.hurry(self._session.settings.grace)

    async def close_spider(self) -> None:
        """Store what is left; close the database if no page needs it."""
        if self._batches is not None:
            await self._batches.close()
        if self._session.loop is None:
            await self._session.close()


def _record(why: RefusedItem, rows: ItemRows, item: Any) -> QuarantineRecord:
    """The record of an item of no page."""
    try:
        key: str | None = rows.key_text(item)
    except Exception:
        key = None
    return QuarantineRecord(
        None, None, None, None, "item", None, key, why.error_class, safe_text(why.reason),
        item_table=why.table, column_name=why.column, value=why.value,
    )  # fmt: skip


def _batches(session: Session) -> Batches:
    settings = session.settings
    return Batches(
        Patience(
            "batches", session.commits, session.outage,
            seconds=settings.store_patience, inc_stat=session.inc_stat,
        ),
        session.storing.loose,
        BatchLimits(settings.commit_items, settings.batch_delay),
        inc_stat=session.inc_stat,
        on_failure=session.give_up,
    )  # fmt: skip
