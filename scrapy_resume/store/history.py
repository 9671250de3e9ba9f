"""What lists held before: which page is known to have items, and whether any ever had."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.engine import Connection, Row

from scrapy_resume.page import Shard
from scrapy_resume.store.engine import Database
from scrapy_resume.watermark import PageRanges


@dataclass(frozen=True, slots=True)
class KnownPage:
    """A committed page of a shard that stored items; *ordered* says that it is a chain."""

    shard: Shard
    number: int
    ordered: bool


@dataclass(frozen=True, slots=True)
class History:
    """*page* is one of this run that should hold items, if any has. *stored_before* says that
    an earlier run of the task stored some."""

    page: KnownPage | None
    stored_before: bool


def history(db: Database, task_id: int, site: str) -> History:
    """What the lists of *site* held in this run, and those of the task in earlier ones."""

    def work(conn: Connection) -> History:
        task, shard = db.tables.task, db.tables.task_shard
        stored = (shard.c.written_count > 0, shard.c.page_count > 0)
        names = (
            "shard_key", "first_page", "last_page", "first_cursor", "priority", "site", "spec",
            "ordered", "cur_page", "ahead",
        )  # fmt: skip
        here = select(*(shard.c[name] for name in names)).where(
            shard.c.task_id == task_id, shard.c.site == site, *stored
        )
        row = conn.execute(here.order_by(shard.c.shard_no).limit(1)).first()
        page = None if row is None else _known(row)
        if page is not None:
            return History(page, True)
        name = select(task.c.name).where(task.c.id == task_id).scalar_subquery()
        earlier = select(task.c.id).where(task.c.name == name, task.c.id < task_id)
        before = select(shard.c.id).where(shard.c.task_id.in_(earlier), *stored).limit(1)
        return History(None, conn.execute(before).first() is not None)

    return db.look(work)


def _known(row: Row[Any]) -> KnownPage | None:
    """The first page, which a chain can always be asked for; of a numbered shard one that is
    committed."""
    number = row.first_page
    if row.cur_page < number:
        ahead = PageRanges.parse(row.ahead)
        if row.ordered or not ahead:
            return None
        number = ahead.ranges[0][0]
    cursor, spec = (json.loads(text) if text else None for text in (row.first_cursor, row.spec))
    shard = Shard(
        row.shard_key, row.first_page, row.last_page, cursor, row.priority, row.site, spec,
        bool(row.ordered),
    )  # fmt: skip
    return KnownPage(shard, number, bool(row.ordered))
