"""Rows that the database refuses, as records of quarantine or as troubles of their page."""

from __future__ import annotations

from scrapy_resume.page import ErrorKind, Trouble, Where
from scrapy_resume.store.items.rowerrors import as_text
from scrapy_resume.store.items.table import Rejection, Row
from scrapy_resume.store.quarantine import QuarantineRecord
from scrapy_resume.store.records import PageRecord


def refused(
    one: Rejection,
    row: Row,
    page: PageRecord | None,
    shard: tuple[int | None, int | None],
    default: str,
) -> QuarantineRecord:
    """The record of a refused row; *shard* is the task and number of its page's shard.

    *default* is the name of the default item table.
    """
    task_id, shard_no = shard
    return QuarantineRecord(
        task_id=task_id,
        shard_id=page.shard_id if page else None,
        shard_no=shard_no,
        page=page.page if page else None,
        kind="row",
        url=None,
        item_key=_key_text(row),
        error_class=one.error_class,
        error=one.error,
        column_name=one.column,
        value=one.value,
        item_table=default if row.table is None else row.table,
    )


def _key_text(row: Row) -> str:
    parts = row.key[1:] if row.table is None else row.key
    return " / ".join(map(as_text, parts))


def trouble(one: Rejection, row: Row) -> Trouble:
    """The trouble that holds the page of a refused row."""
    return Trouble(
        Where.ITEM, ErrorKind.PERMANENT, one.error_class, one.error, item_key=_key_text(row)
    )
