"""What there is left to do in a run, and for whom: what an idle worker asks at each beat.

Final shards are not counted, and of the others no more than some thousands, so that an
answer costs the same early and late in a run of any size.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, func, literal, not_, or_, select, true
from sqlalchemy.engine import Connection

from scrapy_resume.intake import RESUMED, Intake
from scrapy_resume.store.accesspath import by_index
from scrapy_resume.store.engine import Database
from scrapy_resume.store.runs import existing
from scrapy_resume.store.sites import ParkedSite, full, parked

COUNTED = 1000  # shards that one number counts at most
_EVERYTHING = Intake()
_NONE = literal(0)


@dataclass(frozen=True, slots=True)
class Outlook:
    """Unfinished shards of a run, and when more can be claimed.

    *pending*, *running* and *paused* count all of them; a number of 1,000 says "so many
    or more". The rest is about what the asking worker takes, where a running shard counts
    as one of the resumed lane too, since that is what it will be if its holder dies:
    *due* shards may be claimed now; *parked* wait for their site, *capped* (due but for
    that) for a running shard of their site to end; *leased_elsewhere* are held by other
    instances. *next_due* is the time in seconds until the next waiting shard falls due
    (None: none waits for a time), *next_try* that until a parked site with shards that
    are due may be tried, or its pause is over. *other* are unfinished shards that the
    worker does not take.
    """

    pending: int = 0
    running: int = 0
    paused: int = 0
    due: int = 0
    parked: int = 0
    capped: int = 0
    other: int = 0
    leased_elsewhere: int = 0
    next_due: float | None = None
    next_try: float | None = None
    finished: bool = False
    desired: str = "run"


def outlook(
    db: Database,
    task_id: int,
    *,
    instance: str | None = None,
    intake: Intake = _EVERYTHING,
    site_cap: int = 0,
) -> Outlook:
    """What there is to do in a run for *instance*, which takes what *intake* says."""

    def work(conn: Connection) -> Outlook:
        state, now = existing(conn, db, task_id), db.now(conn)
        closed, crowded = parked(conn, db), full(conn, db, site_cap)
        query = outlook_query(db, task_id, instance or "", intake, closed, crowded)
        found = dict(conn.execute(query).mappings().one())
        waits = _waits(conn, db, task_id, intake, closed, now) if found["parked"] else []
        return Outlook(
            next_due=_until(found.pop("first_due"), now),
            next_try=min(waits, default=None),
            **found,
            finished=state.finished_at is not None,
            desired=state.desired,
        )

    return db.look(work)


def outlook_query(
    db: Database,
    task_id: int,
    instance: str,
    intake: Intake,
    closed: Collection[str],
    crowded: Collection[str],
) -> Select[Any]:
    """All the numbers by one statement; a test looks at its plan."""
    shard = db.tables.task_shard
    pending, running, paused = (
        and_(shard.c.task_id == task_id, shard.c.status == status)
        for status in ("pending", "running", "paused")
    )
    taken = _taken(db, intake)
    taken_back = _taken(db, intake, running=True)
    open_ = shard.c.site.not_in(closed) if closed else true()
    room = shard.c.site.not_in(crowded) if crowded else true()
    elsewhere = and_(running, shard.c.instance != instance, taken_back, open_)
    due = and_(pending, shard.c.due == 1, taken, open_)
    other = [
        _count(db, and_(pending, not_(taken))),
        _count(db, and_(running, not_(taken_back))),
        _count(db, and_(paused, not_(taken))),
    ]
    return select(
        _count(db, pending).label("pending"),
        _count(db, running).label("running"),
        _count(db, paused).label("paused"),
        _count(db, and_(due, room)).label("due"),
        (_count(db, and_(pending, taken, not_(open_))) if closed else _NONE).label("parked"),
        (_count(db, and_(due, not_(room))) if crowded else _NONE).label("capped"),
        (_NONE if intake.everything else sum(other[1:], other[0])).label("other"),
        _count(db, elsewhere).label("leased_elsewhere"),
        _first_due(db, and_(pending, taken, open_)),
    )


def _waits(
    conn: Connection,
    db: Database,
    task_id: int,
    intake: Intake,
    closed: Mapping[str, ParkedSite],
    now: datetime,
) -> list[float]:
    """The seconds until a shard of each of the parked sites may be had."""
    shard = db.tables.task_shard
    waiting = (shard.c.task_id == task_id, shard.c.status == "pending", _taken(db, intake))
    query = select(shard.c.site, func.max(shard.c.due), func.min(shard.c.next_run_at))
    query = query.where(*waiting, shard.c.site.in_(sorted(closed))).group_by(shard.c.site)
    found = []
    for site, due, first in conn.execute(by_index(query, shard, "claim")):
        left, ready = closed[site].left, 0.0 if due else _until(first, now)
        if left is not None and ready is not None:
            found.append(max(left, ready))
    return found


def _taken(db: Database, intake: Intake, *, running: bool = False) -> ColumnElement[bool]:
    shard = db.tables.task_shard
    rules: list[ColumnElement[bool]] = []
    if intake.lanes and not (running and RESUMED in intake.lanes):
        rules.append(shard.c.lane.in_(sorted(intake.lanes)))
    if intake.priorities:
        rules.append(or_(*(shard.c.priority.between(*one) for one in intake.priorities)))
    if intake.sites:
        rules.append(shard.c.site.in_(sorted(intake.sites)))
    return and_(true(), *rules)


def _count(db: Database, where: ColumnElement[bool]) -> ColumnElement[int]:
    """How many shards, read from the claim's index as far as it goes."""
    shard = db.tables.task_shard
    some = select(literal(1)).select_from(shard).where(where).limit(COUNTED)
    some = by_index(some, shard, "claim")
    return select(func.count()).select_from(some.subquery()).scalar_subquery()


def _first_due(db: Database, where: ColumnElement[bool]) -> ColumnElement[Any]:
    """When the first shard falls due: the first entry of the index that has them in order."""
    shard = db.tables.task_shard
    moment = shard.c.next_run_at
    first = select(moment).where(where, moment.is_not(None)).order_by(moment).limit(1)
    return by_index(first, shard, "due").scalar_subquery().label("first_due")


def _until(moment: datetime | None, now: datetime) -> float | None:
    return None if moment is None else max(0.0, (moment - now).total_seconds())
