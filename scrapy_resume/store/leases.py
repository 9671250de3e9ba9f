"""Who may work on a shard: claim, renew, reclaim, and what is left to do.

The lease only decides when others may take a shard over; the fencing token decides
whether a write is accepted. Rows are locked and changed by sorted primary key and
never through a secondary index, which would deadlock with the reaper.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import select, update
from sqlalchemy.engine import Connection

from scrapy_resume import faults
from scrapy_resume.store.backlog import waiting
from scrapy_resume.store.circuits import renew_probes
from scrapy_resume.store.claims import ClaimedShard, claim, in_lists
from scrapy_resume.store.engine import Database
from scrapy_resume.store.outlook import Outlook, outlook
from scrapy_resume.store.reaping import expired_holders, reap
from scrapy_resume.store.reclaim import reclaim_worker, release_instance
from scrapy_resume.store.sites import ParkedSite, parked
from scrapy_resume.store.waits import raise_code_holds, raise_due

__all__ = [
    "ClaimedShard",
    "Outlook",
    "Renewal",
    "claim",
    "expired_holders",
    "outlook",
    "raise_code_holds",
    "raise_due",
    "reap",
    "reclaim_worker",
    "release_instance",
    "renew",
    "waiting",
]


@dataclass(frozen=True, slots=True)
class Renewal:
    """What a heartbeat learns: shards that are no longer ours, the operator's wish, and the
    sites that are parked, by name (None: unknown)."""

    lost: frozenset[int]
    desired: str
    parked: Mapping[str, ParkedSite] | None = None


def renew(
    db: Database,
    *,
    instance: str,
    shards: Mapping[int, int],
    lease: float,
    task_id: int,
    probes: Collection[str] = (),
) -> Renewal:
    """Extend the leases of *shards* (id to token) to *lease* seconds from now, and the rights
    to try the sites *probes*.

    A token that the row no longer has means lost, whoever has it now.
    """
    faults.point("renew.before")
    return db.run(lambda conn: _renew(conn, db, instance, shards, lease, task_id, probes))


def _renew(
    conn: Connection,
    db: Database,
    instance: str,
    shards: Mapping[int, int],
    lease: float,
    task_id: int,
    probes: Collection[str],
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
    renew_probes(conn, db, probes, instance, until)
    lost = frozenset(number for number, token in shards.items() if held.get(number) != token)
    desired = conn.execute(select(task.c.desired).where(task.c.id == task_id)).scalar()
    return Renewal(lost, desired or "cancel", parked(conn, db))
