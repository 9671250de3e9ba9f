"""Taking back the shards of silent holders: who they are, and a bounded share at a time."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, and_, or_, select
from sqlalchemy.engine import Connection

from scrapy_resume.store.accesspath import by_index
from scrapy_resume.store.columns import LAPSED
from scrapy_resume.store.engine import Database
from scrapy_resume.store.reclaim import reclaim, shards_with_owners
from scrapy_resume.store.turns import in_turns, lock

_AT_ONCE = 100  # shards taken back by one transaction
_OF_A_CALL = 1000


def expired_holders(db: Database) -> set[str]:
    """The instances that hold leases that have ended, and perhaps others that have not."""
    shard = db.tables.task_shard

    def work(conn: Connection) -> set[str]:
        silent = select(shard.c.instance).distinct()
        silent = silent.where(shard.c.lease_until < db.now(conn), shard.c.status == "running")
        return set(conn.execute(by_index(silent, shard, "lease")).scalars())

    return db.look(work)


def reap(
    db: Database,
    *,
    actor: str,
    alive: Collection[str] = (),
    lease: float = 0.0,
    only: Collection[str] | None = None,
) -> list[int]:
    """Take back up to 1,000 shards whose lease has ended; returns the ids that wait again.

    The others have used up their attempts, or their run is paused or cancelled. Instances
    in *alive* keep what ended less than *lease* seconds ago; with *only* no instance but
    these is looked at.
    """
    rule = expired_rule(db, db.look(db.now), alive, lease, only)
    expired = shards_with_owners(db).where(rule)

    def work(conn: Connection, ids: list[int]) -> list[int]:
        return reclaim(conn, db, lock(conn, db, expired, ids), LAPSED, actor=actor)

    returned: list[int] = []
    for part in in_turns(db, "lease", rule, limit=_OF_A_CALL, part=_AT_ONCE):
        returned += db.run(lambda conn, ids=part: work(conn, ids))  # type: ignore[misc]
    return returned


def expired_rule(
    db: Database,
    now: datetime,
    alive: Collection[str] = (),
    lease: float = 0.0,
    only: Collection[str] | None = None,
) -> ColumnElement[bool]:
    """May a shard be taken back, as seen at *now*?"""
    shard = db.tables.task_shard
    rules = [shard.c.lease_until < now, shard.c.status == "running"]
    if alive:
        long_ago = shard.c.lease_until < now - timedelta(seconds=lease)
        rules.append(or_(shard.c.instance.not_in(sorted(alive)), long_ago))
    if only is not None:
        rules.append(shard.c.instance.in_(sorted(only)))
    return and_(*rules)
