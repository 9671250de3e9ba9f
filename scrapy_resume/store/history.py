"""What lists held before: which page is known to have items, and whether any ever had."""

from __future__ import annotations

import json
import random
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.engine import Connection, Row

from scrapy_resume.page import Shard
from scrapy_resume.store.engine import Database
from scrapy_resume.watermark import PageRanges

_MOST = 100  # shards of a site that are looked at


@dataclass(frozen=True, slots=True)
class KnownPage:
    """A committed page of a shard that stored items; *ordered* says that it is a chain."""

    shard: Shard
    number: int
    ordered: bool


@dataclass(frozen=True, slots=True)
class History:
    """*page* is one of this run that should hold items, if any has. *stored_before* says that
    an earlier run of the task stored some, *others* that another unfinished run did and waits to
    go on: who reads that can tell how the site is."""

    page: KnownPage | None
    stored_before: bool
    others: bool = False


def history(
    db: Database,
    task_id: int,
    site: str,
    *,
    but: Collection[tuple[str, int]] = (),
    anywhere: bool = False,
) -> History:
    """What the lists of *site* held in this run, and those of the task in earlier ones.

    Nobody knows of a single page that it held items: one may have been empty, or be so now. So
    where pages *but*, by shard key and number, proved to be empty, another one is taken. With
    *anywhere* it may be any that is committed, not a first one.
    """

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
        rows = conn.execute(here.order_by(shard.c.shard_no).limit(_MOST)).all()
        page = _choose(rows, but, anywhere)
        if page is not None:
            return History(page, True)
        name = select(task.c.name).where(task.c.id == task_id).scalar_subquery()
        earlier = select(task.c.id).where(task.c.name == name, task.c.id < task_id)
        before = select(shard.c.id).where(shard.c.task_id.in_(earlier), *stored).limit(1)
        others = (
            select(shard.c.id)
            .join(task, task.c.id == shard.c.task_id)
            .where(task.c.open_name.is_not(None), task.c.id != task_id, *stored)
            .where(shard.c.status == "pending", shard.c.site == site)
        )
        return History(
            None,
            conn.execute(before).first() is not None,
            conn.execute(others.limit(1)).first() is not None,
        )

    return db.look(work)


def _choose(
    rows: Sequence[Row[Any]], but: Collection[tuple[str, int]], anywhere: bool
) -> KnownPage | None:
    """The first page that is not one of *but*, at best the first of a list; if all of them are,
    the first of all."""
    first = next((row for row in rows if _first(row) is not None), None)
    firsts = [] if anywhere else _firsts(rows)
    for row, number in [*firsts, *_others(rows), *_firsts(rows)]:
        if (row.shard_key, number) not in but:
            return _known(row, number)
    return None if first is None else _known(first, _first(first) or 0)


def _firsts(rows: Sequence[Row[Any]]) -> list[tuple[Row[Any], int]]:
    return [(row, number) for row in rows if (number := _first(row)) is not None]


def _others(rows: Sequence[Row[Any]]) -> Iterator[tuple[Row[Any], int]]:
    """A page of each numbered shard, at random."""
    for row in random.sample(rows, len(rows)):
        if not row.ordered:
            done = PageRanges.parse(row.ahead).ranges
            spans = [(row.first_page, row.cur_page)] if row.cur_page >= row.first_page else []
            low, high = random.choice([*spans, *done])
            yield row, random.randint(low, high)


def _first(row: Row[Any]) -> int | None:
    """The first page, which a chain can always be asked for; of a numbered shard one that is
    committed."""
    if row.cur_page >= row.first_page:
        return int(row.first_page)
    ahead = PageRanges.parse(row.ahead)
    return None if row.ordered or not ahead else ahead.ranges[0][0]


def _known(row: Row[Any], number: int) -> KnownPage:
    cursor, spec = (json.loads(text) if text else None for text in (row.first_cursor, row.spec))
    shard = Shard(
        row.shard_key, row.first_page, row.last_page, cursor, row.priority, row.site, spec,
        bool(row.ordered),
    )  # fmt: skip
    return KnownPage(shard, number, bool(row.ordered))
