"""What of a run waits to be claimed, listed for the queue in the order of ids.

A walk along the primary key: with the claim's index every step would sort all that is
left. It begins and ends at the run's own shards, not at those of other runs.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Integer, Select, bindparam, select
from sqlalchemy.engine import Connection

from scrapy_resume.intake import Waiting
from scrapy_resume.store.accesspath import by_primary_key
from scrapy_resume.store.claimindex import built_once
from scrapy_resume.store.engine import Database


def waiting(db: Database, task_id: int, *, after: int, limit: int) -> list[Waiting]:
    """Up to *limit* claimable shards with ids behind *after*, in the order of their ids.

    Fewer than *limit* mean that there are no more.
    """

    def work(conn: Connection) -> list[Waiting]:
        task, shard = db.tables.task, db.tables.task_shard
        ready = select(task.c.id).where(
            task.c.id == task_id, task.c.planned_at.is_not(None), task.c.finished_at.is_(None)
        )
        ours = select(shard.c.id).where(shard.c.task_id == task_id).limit(1)
        first = conn.execute(ours.order_by(shard.c.shard_no)).scalar()
        last = conn.execute(ours.order_by(shard.c.shard_no.desc())).scalar()
        if first is None or last is None or conn.execute(ready).first() is None:
            return []
        between = {"after": max(after, first - 1), "last": last}
        rows = conn.execute(waiting_query(db), {"task": task_id, "limit": limit} | between)
        return [Waiting(*row) for row in rows]

    return db.look(work)


def waiting_query(db: Database) -> Select[Any]:
    """One step of the walk; a test looks at its plan."""
    shard = db.tables.task_shard

    def build() -> Select[Any]:
        query = select(shard.c.id, shard.c.site, shard.c.lane, shard.c.priority).where(
            shard.c.id > bindparam("after"),
            shard.c.id <= bindparam("last"),
            shard.c.task_id == bindparam("task"),
            shard.c.status == "pending",
            shard.c.due == 1,
        )
        query = query.order_by(shard.c.id).limit(bindparam("limit", type_=Integer))
        return by_primary_key(query, shard)

    return built_once(db, "waiting", build)
