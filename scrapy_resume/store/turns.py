"""Housekeeping takes shards in turns: the first of every run, then the second, and so on.

So a run with ten thousand expired or waiting shards does not keep those of another one
waiting. Choosing locks nothing; whoever chose looks again when it locks its part.
"""

from __future__ import annotations

import random
from typing import Any

from sqlalchemy import ColumnElement, Select, func, select
from sqlalchemy.engine import Connection, Row

from scrapy_resume.store.accesspath import by_index, by_primary_key
from scrapy_resume.store.engine import Database


def in_turns(
    db: Database, index: str, rule: ColumnElement[bool], *, limit: int, part: int
) -> list[list[int]]:
    """Ids of up to *limit* shards that *rule* picks, in lists of *part*.

    *index* is ``due`` or ``lease``. The lists come in any order, since others may be
    working on the same ones.
    """
    query = turns_query(db, index, rule).limit(limit)
    ids = db.look(lambda conn: list(conn.execute(query).scalars()))
    parts = [ids[at : at + part] for at in range(0, len(ids), part)]
    random.shuffle(parts)
    return parts


def turns_query(db: Database, index: str, rule: ColumnElement[bool]) -> Select[Any]:
    """Picks the ids, from the entries of one index; a test looks at its plan."""
    shard = db.tables.task_shard
    moment = {"due": shard.c.next_run_at, "lease": shard.c.lease_until}[index]
    turn = func.row_number().over(partition_by=shard.c.task_id, order_by=moment)
    picked = select(shard.c.id, turn.label("turn")).where(rule)
    ranked = by_index(picked, shard, index).subquery()
    return select(ranked.c.id).order_by(ranked.c.turn)


def lock(
    conn: Connection, db: Database, query: Select[Any], ids: list[int], *, wait: bool = False
) -> list[Row[Any]]:
    """The rows of *query* among *ids*, locked by primary key: a search would lock what it
    passes by. Those that others have locked are left out unless *wait*."""
    shard = db.tables.task_shard
    ours = query.where(shard.c.id.in_(sorted(ids))).with_for_update(skip_locked=not wait)
    return list(conn.execute(by_primary_key(ours, shard)))
