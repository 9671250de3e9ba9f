"""The statements of a claim, each built once; tests look at their plans.

Locking reads are served by an index in their own order: with a sort every candidate
would be locked, and other claimers would silently see an empty queue. The other reads
are single dives into the same index.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Integer, Select, and_, bindparam, not_, select
from sqlalchemy.sql import Executable

from scrapy_resume.store.accesspath import by_index, by_primary_key
from scrapy_resume.store.columns import DIED, LAPSED
from scrapy_resume.store.engine import Database

IN_LIST = 900  # ids of one IN list at most; MariaDB makes a table of 1,000 and joins it
SUSPECT_ATTEMPTS = 2  # without a commit, the last of which ended in death
_COLUMNS = (
    "id", "shard_no", "shard_key", "site", "lane", "priority", "ordered", "first_page",
    "last_page", "first_cursor", "spec", "fencing_token", "attempt_count", "max_attempts",
)  # fmt: skip

S = TypeVar("S", bound=Executable)


def built_once(db: Database, name: str, build: Callable[[], S]) -> S:
    """The statement *name*, made by *build* when it is first needed."""
    statement: S | None = db.statements.get(name)
    if statement is None:
        statement = db.statements[name] = build()
    return statement


def ready_query(db: Database) -> Select[Any]:
    """Finds the run, and locks it for sharing, if its shards may be claimed."""
    task = db.tables.task

    def build() -> Select[Any]:
        ready = (
            task.c.planned_at.is_not(None),
            task.c.finished_at.is_(None),
            task.c.desired == "run",
        )
        columns = (task.c.id, task.c.read_again_at)
        query: Select[Any] = select(*columns).where(task.c.id == bindparam("task"), *ready)
        return query.with_for_update(read=True)

    return built_once(db, "claim: ready", build)


def priority_query(db: Database) -> Select[Any]:
    """The most urgent priority of a lane within bounds, and the first site that has it."""
    shard = db.tables.task_shard

    def build() -> Select[Any]:
        between = shard.c.priority.between(bindparam("low"), bindparam("high"))
        return _dive(db, [shard.c.priority, shard.c.site], between)

    return built_once(db, "claim: priority", build)


def site_query(db: Database) -> Select[Any]:
    """The next site that has shards of an urgency."""
    shard = db.tables.task_shard

    def build() -> Select[Any]:
        behind = and_(
            shard.c.priority == bindparam("priority"), shard.c.site > bindparam("after_site")
        )
        return _dive(db, [shard.c.site], behind)

    return built_once(db, "claim: site", build)


def claim_query(db: Database, *, suspects: bool = False) -> Select[Any]:
    """The locking read of a claim, of one site and urgency."""
    shard = db.tables.task_shard

    def build() -> Select[Any]:
        urgency = (
            shard.c.lane == bindparam("lane"),
            shard.c.priority == bindparam("priority"),
            shard.c.site == bindparam("site"),
        )
        query = _candidates(db, suspects).where(*urgency, shard.c.id > bindparam("behind"))
        query = query.order_by(shard.c.id).limit(bindparam("wanted", type_=Integer))
        return by_index(query, shard, "claim")

    return built_once(db, f"claim: {suspects}", build)


def hint_query(db: Database, *, suspects: bool = False) -> Select[Any]:
    """The locking read of shards that the queue names, by primary key."""
    shard = db.tables.task_shard

    def build() -> Select[Any]:
        named = shard.c.id.in_(bindparam("ids", expanding=True))
        return by_primary_key(_candidates(db, suspects).where(named), shard)

    return built_once(db, f"claim: hinted {suspects}", build)


def urgency_query(db: Database) -> Select[Any]:
    """Where shards that the queue names stand now; locks nothing."""
    shard = db.tables.task_shard

    def build() -> Select[Any]:
        named = shard.c.id.in_(bindparam("ids", expanding=True))
        columns = (shard.c.id, shard.c.lane, shard.c.priority, shard.c.site)
        return by_primary_key(select(*columns).where(named, *_waiting(db)), shard)

    return built_once(db, "claim: urgency", build)


def _candidates(db: Database, suspects: bool) -> Select[Any]:
    shard = db.tables.task_shard
    query = select(*(shard.c[name] for name in _COLUMNS)).where(*_waiting(db))
    suspect = _suspect(db)
    query = query.where(suspect if suspects else not_(suspect))
    return query.with_for_update(skip_locked=True)


def _suspect(db: Database) -> ColumnElement[bool]:
    """Did its last processes die without a commit?"""
    shard = db.tables.task_shard
    return and_(shard.c.attempt_count >= SUSPECT_ATTEMPTS, shard.c.reason.in_((DIED, LAPSED)))


def _dive(
    db: Database, columns: list[ColumnElement[Any]], where: ColumnElement[bool]
) -> Select[Any]:
    shard = db.tables.task_shard
    query = select(*columns).where(*_waiting(db), shard.c.lane == bindparam("lane"), where)
    return by_index(query.order_by(*columns).limit(1), shard, "claim")


def _waiting(db: Database) -> tuple[ColumnElement[bool], ...]:
    shard = db.tables.task_shard
    return shard.c.task_id == bindparam("task"), shard.c.status == "pending", shard.c.due == 1
