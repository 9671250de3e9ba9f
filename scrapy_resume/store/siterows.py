"""The rows of ``site_health``, read and locked. A site without one is healthy."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import insert, select
from sqlalchemy.dialects.mysql import insert as mysql_insert
from sqlalchemy.engine import Connection

from scrapy_resume.store.engine import Database

NOTHING = "nothing on record"


@dataclass(frozen=True, slots=True)
class SiteRow:
    """A site as its row says; *set_by* is empty for what workers judged.

    *wait_ms* is how long it was parked last. *probe_instance* may try it, alone, until
    *probe_until*.
    """

    site: str
    state: str
    reason: str
    until: datetime | None
    set_by: str | None
    counters: str | None
    updated_at: datetime
    wait_ms: int | None = None
    probe_instance: str | None = None
    probe_until: datetime | None = None

    def __str__(self) -> str:
        until = "" if self.until is None else f" until {self.until:%Y-%m-%d %H:%M:%S} UTC"
        return f"{self.state}{until}"

    def is_over(self, now: datetime) -> bool:
        """Has the time passed for which it was blocked or paused?"""
        return self.until is not None and self.until <= now


def sites(db: Database, names: Collection[str] | None = None) -> list[SiteRow]:
    """The sites on record with one of *names* (None: all), by name."""
    health = db.tables.site_health
    query = _rows(db).order_by(health.c.site)
    if names is not None:
        query = query.where(health.c.site.in_(sorted(names)))
    return db.look(lambda conn: [SiteRow(**row) for row in conn.execute(query).mappings()])


def find(conn: Connection, db: Database, site: str, *, lock: bool = False) -> SiteRow | None:
    """The row of *site*, if there is one."""
    query = _rows(db).where(db.tables.site_health.c.site == site)
    row = conn.execute(query.with_for_update() if lock else query).mappings().first()
    return SiteRow(**row) if row else None


def enter(conn: Connection, db: Database, site: str) -> None:
    """Give *site* a row if it has none; one that another transaction makes now is waited for."""
    if find(conn, db, site) is not None:
        return
    health, now = db.tables.site_health, db.now(conn)
    row = {"site": site, "state": "healthy", "reason": NOTHING, "updated_at": now}
    if db.dialect == "sqlite":  # BEGIN IMMEDIATE has locked everything
        conn.execute(insert(health).values(row))
    else:
        conn.execute(mysql_insert(health).on_duplicate_key_update(site=health.c.site), [row])


def _rows(db: Database) -> Any:
    return select(*(db.tables.site_health.c[name] for name in SiteRow.__dataclass_fields__))
