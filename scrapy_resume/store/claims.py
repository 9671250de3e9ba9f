"""Claiming shards: candidates are locked, then made ours in the same transaction.

Every claim raises the fencing token and spends an attempt.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Select, Update, bindparam, func, select, text, update
from sqlalchemy.engine import Connection, Row

from scrapy_resume import faults
from scrapy_resume.intake import Intake
from scrapy_resume.page import Shard
from scrapy_resume.store import transitions
from scrapy_resume.store.candidates import Candidates, Want, lock_candidates
from scrapy_resume.store.claimindex import IN_LIST, built_once
from scrapy_resume.store.columns import Moment
from scrapy_resume.store.engine import Database
from scrapy_resume.watermark import PageRanges, Position

_EVERYTHING = Intake()
_NOBODY = Candidates([], False)


@dataclass(frozen=True, slots=True)
class ClaimedShard:
    """A shard we hold, as it stood when it was claimed.

    *suspect* says that it was claimed at least twice without a commit and that its last
    process died: one of its pages may have killed it. *read_again_at* is when pages of the run
    were last put back: what is remembered of reading them before no longer counts.
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
    read_again_at: datetime | None = None


def claim(
    db: Database,
    task_id: int,
    *,
    worker: str,
    instance: str,
    limit: int,
    lease: float,
    intake: Intake = _EVERYTHING,
    site_cap: int = 0,
    hints: Sequence[int] = (),
    alone: bool = True,
    tries: str | None = None,
    without: Collection[str] = (),
) -> list[ClaimedShard]:
    """Claim up to *limit* shards for *lease* seconds, the most urgent first.

    Of the shards that *intake* takes; *hints* are ids that the queue names, tried first and
    in their order, each of which the row itself confirms. With *site_cap* a site has at most
    so many running shards, of all runs and workers; the sites *without* are left out, and
    parked ones, but for the one that *instance* has the right to try and *tries*.

    A suspect is claimed only if nothing else can be, alone, and only if *alone* says that the
    caller holds nothing: if its process dies again, no other shard pays with an attempt. An
    empty list does not mean that the run is over: others may hold the rest.
    """
    trial = (tries, instance) if tries else None
    want = Want(limit, intake, site_cap, hints, alone, trial, without)
    landed = _NOBODY  # what an attempt claimed whose COMMIT had no reply

    def work(conn: Connection) -> list[ClaimedShard]:
        nonlocal landed
        faults.point("claim.begin")
        ours = landed._replace(rows=_still_ours(conn, db, landed.rows, instance))
        if not ours.rows:
            ours = lock_candidates(conn, db, task_id, want)
            _take(conn, db, [row.id for row in ours.rows], worker, instance, lease)
            landed = ours
        positions = _positions(conn, db, ours.rows)
        faults.point("claim.before")
        return [_claimed(row, task_id, positions.get(row.id), ours) for row in ours.rows]

    claimed = db.run(work) if limit > 0 else []
    faults.point("claim.after")
    return claimed


def _take(
    conn: Connection, db: Database, ids: list[int], worker: str, instance: str, lease: float
) -> None:
    owner: dict[str, Any] = {"b_worker": worker, "b_instance": instance}
    if db.dialect == "sqlite":
        now = db.now(conn)
        owner |= {"b_now": now, "b_until": now + timedelta(seconds=lease)}
    else:
        owner["b_lease"] = round(lease * 1_000_000)
    statement = built_once(db, "claim: take", lambda: _build_take(db))
    for part in in_lists(ids):
        taken = conn.execute(statement, owner | {"b_ids": part}).rowcount
        assert taken == len(part), "candidates are locked, so each is taken once"


def _build_take(db: Database) -> Update:
    shard = db.tables.task_shard
    now, until = _moments(db)
    values = transitions.shard_values("claim", "running", "claimed") | {
        "worker": bindparam("b_worker"),
        "instance": bindparam("b_instance"),
        "lease_until": until,
        "error_kind": None,
        "updated_at": now,
        "fencing_token": shard.c.fencing_token + 1,
        "attempt_count": shard.c.attempt_count + 1,
    }
    return update(shard).where(shard.c.id.in_(bindparam("b_ids", expanding=True))).values(values)


def _moments(db: Database) -> tuple[ColumnElement[Any], ColumnElement[Any]]:
    """Now, and the end of a lease, as the statement says them when it runs."""
    if db.dialect == "sqlite":
        return bindparam("b_now", type_=Moment), bindparam("b_until", type_=Moment)
    now = func.utc_timestamp(text("6"))
    return now, func.timestampadd(text("MICROSECOND"), bindparam("b_lease"), now)


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


def _positions(conn: Connection, db: Database, rows: list[Row[Any]]) -> dict[int, Position]:
    """Where the shards stand; one that was never claimed stands where its plan put it."""
    shard = db.tables.task_shard
    names = [name for name in Position.__dataclass_fields__ if name != "failed"]

    def build() -> Select[Any]:
        columns = (shard.c[name] for name in ("id", "failed_pages", *names))
        return select(*columns).where(shard.c.id.in_(bindparam("ids", expanding=True)))

    query = built_once(db, "claim: positions", build)
    found: dict[int, Position] = {}
    for ids in in_lists(row.id for row in rows if row.fencing_token):
        found |= {row.id: position_of(row) for row in conn.execute(query, {"ids": ids})}
    return found


def _claimed(
    row: Row[Any], task_id: int, position: Position | None, ours: Candidates
) -> ClaimedShard:
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
        task_id=task_id,
        shard_no=row.shard_no,
        shard=shard,
        position=position or Position(0, row.first_page - 1, row.first_cursor),
        ordered=bool(row.ordered),
        fencing_token=row.fencing_token + 1,
        attempt_count=row.attempt_count + 1,
        max_attempts=row.max_attempts,
        resumed=row.fencing_token > 0,
        site=row.site,
        suspect=ours.suspect,
        read_again_at=ours.read_again_at,
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
    return [ordered[at : at + IN_LIST] for at in range(0, len(ordered), IN_LIST)]
