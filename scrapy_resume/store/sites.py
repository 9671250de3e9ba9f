"""Which sites a claim may take shards of: none of those parked, and only so many of each.

A cap counts the running shards of a site over all runs and workers. Whoever claims
under a cap first locks the site's row in ``site_health``, and keeps it locked until its
COMMIT: claims at one site happen one after the other, so each counts what the ones
before it took. Claims at other sites go on beside it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Select, bindparam, func, select
from sqlalchemy.dialects.mysql import insert as mysql_insert
from sqlalchemy.engine import Connection, Row

from scrapy_resume.store.accesspath import by_index
from scrapy_resume.store.claimindex import built_once
from scrapy_resume.store.engine import Database

_PARKED = ("blocked", "paused")
_UNBOUNDED = 1 << 30


@dataclass(frozen=True, slots=True)
class ParkedSite:
    """A site whose shards are not handed out, being *state* for *reason*.

    *left* is the time in seconds until it may be tried, or until its pause is over (0: it may
    be tried now; None: until an operator says so). *prober* is the instance that tries it.
    """

    site: str
    state: str
    reason: str
    left: float | None
    prober: str | None


def parked(conn: Connection, db: Database) -> dict[str, ParkedSite]:
    """The sites whose shards are not handed out now, by name.

    A blocked one stays so when its time is over, until it was tried.
    """
    health = db.tables.site_health
    names = ("site", "state", "reason", "until", "probe_instance", "probe_until")

    def build() -> Select[Any]:
        query = select(*(health.c[name] for name in names))
        return query.where(health.c.state.in_(_PARKED))

    rows = conn.execute(built_once(db, "parked sites", build)).all()
    now = db.now(conn) if rows else datetime.min
    found = [_parked(row, now) for row in rows if row.state == "blocked" or not _over(row, now)]
    return {one.site: one for one in found}


def look_parked(db: Database) -> dict[str, ParkedSite]:
    """The same, in a look of its own."""
    return db.look(lambda conn: parked(conn, db))


def _over(row: Row[Any], now: datetime) -> bool:
    return row.until is not None and row.until <= now


def _parked(row: Row[Any], now: datetime) -> ParkedSite:
    left = None if row.until is None else max(0.0, (row.until - now).total_seconds())
    tried = row.probe_until is not None and row.probe_until > now
    prober = row.probe_instance if tried else None
    return ParkedSite(row.site, row.state, row.reason, left, prober)


def full(conn: Connection, db: Database, cap: int) -> frozenset[str]:
    """The sites that have *cap* running shards or more, at this moment; none without a cap."""
    if not cap:
        return frozenset()
    crowded = built_once(
        db, "full sites", lambda: _running(db).having(func.count() >= bindparam("cap"))
    )
    return frozenset(row.site for row in conn.execute(crowded, {"cap": cap}))


def busy(conn: Connection, db: Database) -> dict[str, int]:
    """How many shards of each site are running now, over all runs; without idle sites."""
    return {row.site: row.count_ for row in conn.execute(_running(db))}


class Rooms:
    """How many more shards of each site one claim may take, in its transaction."""

    def __init__(self, conn: Connection, db: Database, cap: int) -> None:
        self._conn, self._db, self._cap = conn, db, cap
        self._room: dict[str, int] = {}

    def at(self, site: str) -> int:
        """How many more of *site*, which was opened before if there is a cap."""
        return self._room.get(site, 0) if self._cap else _UNBOUNDED

    def take(self, site: str, count: int = 1) -> None:
        """Count *count* shards of *site* as taken."""
        if self._cap:
            self._room[site] -= count

    def open(self, sites: Collection[str]) -> None:
        """Learn the room of *sites*; one where another claim is busy now has none for us.

        If all of them are busy it waits, which it may as long as it has locked no other
        site: those who wait all lock in one order.
        """
        new = sorted(set(sites) - set(self._room)) if self._cap else []
        if not new:
            return
        locked = self._lock(new, wait=False)
        if not locked and not any(room >= 0 for room in self._room.values()):
            locked = self._lock(new, wait=True)
        counts = self._count(locked)
        self._room |= {site: self._cap - counts.get(site, 0) for site in locked}
        self._room |= dict.fromkeys(set(new) - set(locked), -1)

    def _lock(self, sites: list[str], *, wait: bool) -> list[str]:
        if self._db.dialect == "sqlite":  # BEGIN IMMEDIATE has locked everything
            return sites
        health = self._db.tables.site_health
        rows = select(health.c.site).where(health.c.site.in_(sites)).order_by(health.c.site)
        missing = sorted(set(sites) - set(self._conn.execute(rows).scalars()))
        if missing:
            self._enter(missing)
        lock = rows.with_for_update(skip_locked=not wait)
        return list(self._conn.execute(lock).scalars())

    def _enter(self, sites: list[str]) -> None:
        """Give *sites* a row each, locked; one that another claim makes now is waited for."""
        health, now = self._db.tables.site_health, self._db.now(self._conn)
        row = {"state": "healthy", "reason": "claimed from", "updated_at": now}
        statement = mysql_insert(health).on_duplicate_key_update(site=health.c.site)
        self._conn.execute(statement, [row | {"site": site} for site in sites])

    def _count(self, sites: list[str]) -> dict[str, int]:
        shard = self._db.tables.task_shard
        rows = self._conn.execute(_running(self._db).where(shard.c.site.in_(sites)))
        return {row.site: row.count_ for row in rows}


def _running(db: Database) -> Select[tuple[str, int]]:
    """The number of running shards of each site: those with a lease, read from its index."""
    shard = db.tables.task_shard
    counts = select(shard.c.site, func.count().label("count_"))
    counts = counts.where(shard.c.lease_until.is_not(None)).group_by(shard.c.site)
    return by_index(counts, shard, "lease")
