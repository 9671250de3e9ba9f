"""Claiming shards: candidates are locked, then made ours in the same transaction.

Every claim raises the fencing token and spends an attempt.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.engine import Connection, Row

from scrapy_resume import faults
from scrapy_resume.page import Shard
from scrapy_resume.store.candidates import lock_candidates
from scrapy_resume.store.columns import DIED, LAPSED
from scrapy_resume.store.engine import Database
from scrapy_resume.watermark import PageRanges, Position

_IN_LIST = 2000  # ids of one IN list at most; longer ones are planned as a full scan
_SUSPECT = 2  # attempts without a commit, the last of which ended in death


@dataclass(frozen=True, slots=True)
class ClaimedShard:
    """A shard we hold, as it stood when it was claimed.

    *suspect* says that it was claimed at least twice without a commit and that its last
    process died: one of its pages may have killed it.
    """

    id: int
    task_id: int
    shard_no: int
    shard: Shard
    position: Position
    ordered: bool
    fencing_token: int
    attempt_count: int
    max_attempts: int
    resumed: bool
    site: str
    suspect: bool = False


def claim(
    db: Database,
    task_id: int,
    *,
    worker: str,
    instance: str,
    limit: int,
    lease: float,
    exclude_sites: Collection[str] = (),
    alone: bool = True,
) -> list[ClaimedShard]:
    """Claim up to *limit* shards for *lease* seconds, the most urgent first.

    A suspect is claimed alone, and only if *alone* says that the caller holds nothing:
    if its process dies again, no other shard pays with an attempt. An empty list does not
    mean that the run is over: others may hold the rest.
    """
    landed: list[Row[Any]] = []  # what an attempt claimed whose COMMIT had no reply

    def work(conn: Connection) -> list[ClaimedShard]:
        faults.point("claim.begin")
        rows = _still_ours(conn, db, landed, instance)
        if not rows:
            rows = _chosen(lock_candidates(conn, db, task_id, limit, exclude_sites), alone)
            _take(conn, db, rows, worker, instance, lease)
            landed[:] = rows
        faults.point("claim.before")
        return [_claimed(row) for row in rows]

    claimed = db.run(work) if limit > 0 else []
    faults.point("claim.after")
    return claimed


def _take(
    conn: Connection, db: Database, rows: list[Row[Any]], worker: str, instance: str, lease: float
) -> None:
    shard = db.tables.task_shard
    now = db.now(conn)
    values = {
        "status": "running",
        "reason": "claimed",
        "worker": worker,
        "instance": instance,
        "lease_until": now + timedelta(seconds=lease),
        "due": 0,
        "error_kind": None,
        "updated_at": now,
        "fencing_token": shard.c.fencing_token + 1,
        "attempt_count": shard.c.attempt_count + 1,
    }
    for ids in in_lists(row.id for row in rows):
        taken = conn.execute(update(shard).where(shard.c.id.in_(ids)).values(values)).rowcount
        assert taken == len(ids), "candidates are locked, so each is taken once"


def _still_ours(
    conn: Connection, db: Database, rows: list[Row[Any]], instance: str
) -> list[Row[Any]]:
    shard = db.tables.task_shard
    tokens = {row.id: row.fencing_token + 1 for row in rows}
    held: set[int] = set()
    for ids in in_lists(tokens):
        mine = select(shard.c.id, shard.c.fencing_token).where(
            shard.c.id.in_(ids), shard.c.instance == instance, shard.c.status == "running"
        )
        held |= {row.id for row in conn.execute(mine) if tokens[row.id] == row.fencing_token}
    return [row for row in rows if row.id in held]


def _is_suspect(row: Row[Any]) -> bool:
    return bool(row.attempt_count >= _SUSPECT and row.reason in (DIED, LAPSED))


def _chosen(rows: list[Row[Any]], alone: bool) -> list[Row[Any]]:
    """*rows* without suspects; or one of them and nothing else, if nothing else is held."""
    cleared = [row for row in rows if not _is_suspect(row)]
    return cleared or (rows[:1] if alone else [])


def _claimed(row: Row[Any]) -> ClaimedShard:
    """The shard as the claim made it; *row* was read before."""
    cursor, spec = (json.loads(text) if text else None for text in (row.first_cursor, row.spec))
    shard = Shard(
        key=row.shard_key,
        first_page=row.first_page,
        last_page=row.last_page,
        cursor=cursor,
        priority=row.priority,
        site=row.site,
        spec=spec,
        ordered=bool(row.ordered),
    )
    return ClaimedShard(
        id=row.id,
        task_id=row.task_id,
        shard_no=row.shard_no,
        shard=shard,
        position=position_of(row),
        ordered=bool(row.ordered),
        fencing_token=row.fencing_token + 1,
        attempt_count=row.attempt_count + 1,
        max_attempts=row.max_attempts,
        resumed=row.fencing_token > 0,
        site=row.site,
        suspect=_is_suspect(row),
    )


def position_of(row: Any) -> Position:
    """The position that a row of ``task_shard`` holds."""
    return Position(
        version=row.version,
        cur_page=row.cur_page,
        cursor=row.cursor,
        ahead=PageRanges.parse(row.ahead),
        failed=PageRanges.parse(row.failed_pages),
        page_count=row.page_count,
        written_count=row.written_count,
        dropped_count=row.dropped_count,
        quarantined_count=row.quarantined_count,
        digests=row.digests,
    )


def in_lists(ids: Iterable[int]) -> list[list[int]]:
    """*ids* in ascending order, in lists short enough for a lookup by primary key."""
    ordered = sorted(ids)
    return [ordered[at : at + _IN_LIST] for at in range(0, len(ordered), _IN_LIST)]
