"""Who may work on a shard: claim, renew, reclaim, and what is left to do.

The lease only decides when others may take a shard over; the fencing token decides
whether a write is accepted. Rows are locked and changed by sorted primary key and
never through a secondary index, which would deadlock with the reaper.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import func, select, update
from sqlalchemy.engine import Connection

from scrapy_resume import faults
from scrapy_resume.store.claims import ClaimedShard, claim, in_lists
from scrapy_resume.store.engine import Database
from scrapy_resume.store.reclaim import (
    raise_code_holds,
    raise_due,
    reap,
    reclaim_worker,
    release_instance,
)
from scrapy_resume.store.runs import existing

__all__ = [
    "ClaimedShard",
    "Outlook",
    "Renewal",
    "claim",
    "outlook",
    "raise_code_holds",
    "raise_due",
    "reap",
    "reclaim_worker",
    "release_instance",
    "renew",
]


@dataclass(frozen=True, slots=True)
class Renewal:
    """What a heartbeat learns: shards that are no longer ours, and the operator's wish."""

    lost: frozenset[int]
    desired: str


@dataclass(frozen=True, slots=True)
class Outlook:
    """Shards of a run by status, and when more can be claimed.

    *leased_elsewhere* counts running shards of other instances. *due* counts pending
    shards that may be claimed now, *next_due* is the time in seconds until the next
    pending one falls due (None: none waits), *next_expiry* until the next lease of
    another instance ends.
    """

    pending: int = 0
    running: int = 0
    paused: int = 0
    done: int = 0
    failed: int = 0
    due: int = 0
    leased_elsewhere: int = 0
    next_due: float | None = None
    next_expiry: float | None = None
    planned: bool = False
    finished: bool = False
    desired: str = "run"


def renew(
    db: Database, *, instance: str, shards: Mapping[int, int], lease: float, task_id: int
) -> Renewal:
    """Extend the leases of *shards* (id to token) to *lease* seconds from now.

    A token that the row no longer has means lost, whoever has it now.
    """
    faults.point("renew.before")
    return db.run(lambda conn: _renew(conn, db, instance, shards, lease, task_id))


def live_elsewhere(db: Database, task_id: int, *, instance: str) -> int:
    """How many shards of a run other instances hold by a lease that has not ended."""
    shard = db.tables.task_shard

    def work(conn: Connection) -> int:
        query = select(func.count()).where(
            shard.c.task_id == task_id,
            shard.c.status == "running",
            shard.c.instance != instance,
            shard.c.lease_until >= db.now(conn),
        )
        return int(conn.execute(query).scalar_one())

    return db.look(work)


def outlook(db: Database, task_id: int, *, instance: str | None = None) -> Outlook:
    """What there is to do in a run, and for whom; *instance* is the asking one."""
    return db.look(lambda conn: _outlook(conn, db, task_id, instance))


def _outlook(conn: Connection, db: Database, task_id: int, instance: str | None) -> Outlook:
    shard = db.tables.task_shard
    ours = shard.c.task_id == task_id
    groups = (shard.c.status, shard.c.due)
    rows = conn.execute(select(*groups, func.count()).where(ours).group_by(*groups)).all()
    counts: dict[str, int] = {}
    for status, _, count in rows:
        counts[status] = counts.get(status, 0) + count
    others = conn.execute(
        select(func.count(), func.min(shard.c.lease_until)).where(
            ours, shard.c.status == "running", shard.c.instance != (instance or "")
        )
    ).one()
    waiting = (ours, shard.c.status == "pending", shard.c.due == 0)
    next_due = conn.execute(select(func.min(shard.c.next_run_at)).where(*waiting)).scalar()
    state, now = existing(conn, db, task_id), db.now(conn)
    return Outlook(
        **counts,
        due=sum(count for _, due, count in rows if due),
        leased_elsewhere=others[0],
        next_due=_until(next_due, now),
        next_expiry=_until(others[1], now),
        planned=state.planned_at is not None,
        finished=state.finished_at is not None,
        desired=state.desired,
    )


def _until(moment: datetime | None, now: datetime) -> float | None:
    return None if moment is None else max(0.0, (moment - now).total_seconds())


def _renew(
    conn: Connection,
    db: Database,
    instance: str,
    shards: Mapping[int, int],
    lease: float,
    task_id: int,
) -> Renewal:
    task, shard = db.tables.task, db.tables.task_shard
    held: dict[int, int] = {}
    for ids in in_lists(shards):
        rows = select(shard.c.id, shard.c.fencing_token, shard.c.instance)
        found = conn.execute(rows.where(shard.c.id.in_(ids)).with_for_update())
        held.update((row.id, row.fencing_token) for row in found if row.instance == instance)
    until = db.now(conn) + timedelta(seconds=lease)
    for ids in in_lists(held):
        conn.execute(update(shard).where(shard.c.id.in_(ids)).values(lease_until=until))
    lost = frozenset(number for number, token in shards.items() if held.get(number) != token)
    desired = conn.execute(select(task.c.desired).where(task.c.id == task_id)).scalar()
    return Renewal(lost, desired or "cancel")
