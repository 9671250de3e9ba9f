"""Which shards a claim may take: the most urgent ones that nobody else is taking.

Candidates are locked with SKIP LOCKED in the order of an index that serves it without
a sort; with a sort every candidate would be locked and other claimers would silently
see an empty queue. Sites are walked one equality at a time for the same reason.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator
from typing import Any

from sqlalchemy import ColumnElement, Integer, Select, and_, bindparam, or_, select
from sqlalchemy.engine import Connection, Row

from scrapy_resume.store.engine import Database

_COLUMNS = (
    "id", "task_id", "shard_no", "shard_key", "site", "lane", "priority", "ordered", "first_page",
    "last_page", "cur_page", "cursor", "first_cursor", "ahead", "failed_pages", "digests",
    "page_count", "written_count", "dropped_count", "quarantined_count", "version",
    "fencing_token", "attempt_count", "max_attempts", "spec", "reason",
)  # fmt: skip


def lock_candidates(
    conn: Connection, db: Database, task_id: int, limit: int, exclude: Collection[str]
) -> list[Row[Any]]:
    """Lock up to *limit* candidates. The task's row is locked for sharing, so that the
    run cannot be declared over or superseded meanwhile."""
    task = db.tables.task
    ready = select(task.c.id).where(
        task.c.id == task_id,
        task.c.planned_at.is_not(None),
        task.c.finished_at.is_(None),
        task.c.desired == "run",
    )
    if conn.execute(ready.with_for_update(read=True)).first() is None:
        return []
    rows: list[Row[Any]] = []
    heads = {head.site: head for head in _heads(conn, db, task_id) if head.site not in exclude}
    last: dict[str, int] = {}  # our own locks do not hide what we have, so go on behind it
    while heads and len(rows) < limit:
        most_urgent = min((head.lane, head.priority) for head in heads.values())
        sites = [s for s, head in heads.items() if (head.lane, head.priority) == most_urgent]
        random.shuffle(sites)  # so that no site starves another
        wanted = max(1, (limit - len(rows)) // len(sites))
        for site in sites[: limit - len(rows)]:
            parameters = _parameters(task_id, heads[site], last.get(site, 0), wanted)
            found = conn.execute(claim_query(db), parameters).all()
            rows += found
            if len(found) == wanted:
                last[site] = found[-1].id
            else:  # the rest of this urgency is gone, or locked by others
                last.pop(site, None)
                _advance(conn, db, task_id, heads, site)
    return sorted(rows, key=lambda row: (row.lane, row.priority, row.id))


def claim_query(db: Database) -> Select[Any]:
    """The locking read of a claim, of one site and urgency; a test looks at its plan."""
    query = db.statements.get("claim")
    if query is None:
        shard = db.tables.task_shard
        query = db.statements["claim"] = (
            select(*(shard.c[name] for name in _COLUMNS))
            .where(
                *_waiting(db),
                shard.c.site == bindparam("site"),
                shard.c.lane == bindparam("lane"),
                shard.c.priority == bindparam("priority"),
                shard.c.id > bindparam("behind"),
            )
            .order_by(shard.c.lane, shard.c.priority, shard.c.id)
            .limit(bindparam("wanted", type_=Integer))
            .with_hint(shard, *_by_index(db))
            .with_for_update(skip_locked=True)
        )
    return query


def _waiting(db: Database) -> tuple[ColumnElement[bool], ...]:
    shard = db.tables.task_shard
    return shard.c.task_id == bindparam("task"), shard.c.status == "pending", shard.c.due == 1


def _by_index(db: Database) -> tuple[str, str]:
    """With few rows the optimiser may prefer another index, and lock them all."""
    return f"FORCE INDEX ({db.tables.task_shard.name}_claim)", "mysql"


def _parameters(task_id: int, head: Row[Any], behind: int, wanted: int) -> dict[str, Any]:
    urgency = {"site": head.site, "lane": head.lane, "priority": head.priority}
    return {"task": task_id, "behind": behind, "wanted": wanted} | urgency


def _heads(conn: Connection, db: Database, task_id: int) -> Iterator[Row[Any]]:
    """The most urgent waiting shard of every site, each found by one dive into the index.

    DISTINCT would read the entry of every waiting shard.
    """
    shard = db.tables.task_shard
    query = db.statements.get("head")
    if query is None:
        columns = (shard.c.site, shard.c.lane, shard.c.priority)
        after = shard.c.site > bindparam("after")
        query = select(*columns).where(*_waiting(db), after).order_by(*columns).limit(1)
        query = db.statements["head"] = query.with_hint(shard, *_by_index(db))
    site = ""  # before every site, since none has an empty name
    while head := conn.execute(query, {"task": task_id, "after": site}).first():
        yield head
        site = head.site


def _advance(
    conn: Connection, db: Database, task_id: int, heads: dict[str, Row[Any]], site: str
) -> None:
    """Go on to the next urgency of *site*, or leave it out if there is none."""
    shard = db.tables.task_shard
    head = heads.pop(site)
    less_urgent = or_(
        shard.c.lane > head.lane, and_(shard.c.lane == head.lane, shard.c.priority > head.priority)
    )
    columns = (shard.c.site, shard.c.lane, shard.c.priority)
    query = select(*columns).where(*_waiting(db), shard.c.site == site, less_urgent)
    query = query.order_by(*columns).limit(1).with_hint(shard, *_by_index(db))
    behind: Any = conn.execute(query, {"task": task_id}).first()
    if behind is not None:
        heads[site] = behind
