"""Which sites are well, as the fleet shares it, and what operators decide about them.

A site without a row is healthy. The shards of a site that is ``blocked`` or ``paused``
are not handed out until ``until``, or until an operator says otherwise.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, exists, func, insert, select, update
from sqlalchemy.dialects.mysql import insert as mysql_insert
from sqlalchemy.engine import Connection

from scrapy_resume.exceptions import ActRefused
from scrapy_resume.store import waits
from scrapy_resume.store.actresults import ActResult
from scrapy_resume.store.columns import NAME_LENGTH, REASON_LENGTH
from scrapy_resume.store.engine import Database
from scrapy_resume.store.operations import Operation, record

STATES = ("healthy", "blocked", "paused")  # those that an operator may set
_OPEN = ("pending", "running", "paused")


@dataclass(frozen=True, slots=True)
class SiteRow:
    """A site as its row says; *set_by* is empty for what workers judged."""

    site: str
    state: str
    reason: str
    until: datetime | None
    set_by: str | None
    counters: str | None
    updated_at: datetime

    def __str__(self) -> str:
        until = "" if self.until is None else f" until {self.until:%Y-%m-%d %H:%M:%S} UTC"
        return f"{self.state}{until}"


def sites(db: Database, names: Collection[str] | None = None) -> list[SiteRow]:
    """The sites on record with one of *names* (None: all), by name."""
    health = db.tables.site_health
    query = _rows(db).order_by(health.c.site)
    if names is not None:
        query = query.where(health.c.site.in_(sorted(names)))
    return db.look(lambda conn: [SiteRow(**row) for row in conn.execute(query).mappings()])


def open_shards(db: Database) -> dict[str, dict[str, int]]:
    """How many shards of unfinished runs each site has, by status; from the claim index."""
    shard, task = db.tables.task_shard, db.tables.task
    query = (
        select(shard.c.site, shard.c.status, func.count())
        .join(task, task.c.id == shard.c.task_id)
        .where(task.c.open_name.is_not(None), shard.c.status.in_(_OPEN))
        .group_by(shard.c.site, shard.c.status)
    )
    found: dict[str, dict[str, int]] = {}
    for site, status, count in db.look(lambda conn: conn.execute(query).all()):
        found.setdefault(site, dict.fromkeys(_OPEN, 0))[status] = count
    return found


def pause_site(
    db: Database,
    site: str,
    *,
    actor: str,
    reason: str,
    seconds: float | None = None,
    dry_run: bool = False,
) -> ActResult:
    """Hand out no shard of *site* for so many *seconds*, or until it is unpaused."""
    return _Setting(db, site, "pause_site", "paused", actor, reason, seconds).act(dry_run)


def unpause_site(
    db: Database, site: str, *, actor: str, reason: str, dry_run: bool = False
) -> ActResult:
    """End the pause of *site*; workers judge anew how well it is."""
    return _Setting(db, site, "unpause_site", "healthy", actor, reason, None).act(dry_run)


def set_site(
    db: Database,
    site: str,
    state: str,
    *,
    actor: str,
    reason: str,
    seconds: float | None = None,
    dry_run: bool = False,
) -> ActResult:
    """Say what *site* is, whatever workers or operators said before.

    A site that is set healthy has its parked shards due at once.
    """
    if state not in STATES:
        raise ActRefused(f"a site cannot be set {state!r}; it may be {', '.join(STATES)}")
    if (state == "blocked" and seconds is None) or (state == "healthy" and seconds is not None):
        raise ActRefused(
            "a site is blocked for a time, after which it is tried with one request; paused for a"
            " time or until it is unpaused; and healthy without a time"
        )
    return _Setting(db, site, "set_site", state, actor, reason, seconds).act(dry_run)


@dataclass(frozen=True, slots=True)
class _Setting:
    """One act of an operator on one site."""

    db: Database
    site: str
    kind: str
    state: str
    actor: str
    reason: str
    seconds: float | None

    def act(self, dry_run: bool) -> ActResult:
        """Do it, or with *dry_run* only say what it would do. Raises ActRefused."""
        old, new = self.db.look(self._judge) if dry_run else self.db.run(self._set)
        parked = waits.count_parked if dry_run else waits.raise_parked
        due = parked(self.db, self.site) if new.state == "healthy" else 0
        counts = {"sites": 1, **({"shards": due} if due else {})}
        sentences = tuple(self._sentences(old, new, due))
        return ActResult(self.kind, (), dry_run, counts, sentences)

    def _set(self, conn: Connection) -> tuple[SiteRow, SiteRow]:
        """Lock the site, judge and write, with the record of it."""
        health = self.db.tables.site_health
        self._enter(conn)
        old, new = self._judge(conn, lock=True)
        values = {name: value for name, value in asdict(new).items() if name != "site"}
        conn.execute(update(health).where(health.c.site == self.site).values(values))
        act = Operation(
            self.kind, self.actor, self.reason,
            before=f"{self.site}: {old}", after=f"{self.site}: {new}",
        )  # fmt: skip
        record(conn, self.db, [act], at=new.updated_at)
        return old, new

    def _judge(self, conn: Connection, *, lock: bool = False) -> tuple[SiteRow, SiteRow]:
        """The site as it is and as it will be. Raises ActRefused."""
        now = self.db.now(conn)
        old = _one(conn, self.db, self.site, lock=lock)
        if old is None:
            _require_known(conn, self.db, self.site)
            old = SiteRow(self.site, "healthy", "nothing on record", None, None, None, now)
        until = None if self.seconds is None else now + timedelta(seconds=self.seconds)
        new = replace(
            old, state=self.state, reason=self.reason[:REASON_LENGTH], until=until,
            set_by=self.actor[:NAME_LENGTH], counters=None, updated_at=now,
        )  # fmt: skip
        self._refuse(conn, old, now)
        return old, new

    def _refuse(self, conn: Connection, old: SiteRow, now: datetime) -> None:
        """Refuse what would change nothing, or end what is not there."""
        if self.kind == "unpause_site":
            if old.state != "paused":
                raise ActRefused(f"site {self.site} is not paused, it is {old}: {old.reason}")
            return
        over = old.until is not None and old.until <= now
        if old.state != self.state or over:
            return
        if self.kind == "pause_site":
            raise ActRefused(
                f"site {self.site} is {old} already: {old.reason}; `scrapy resume health set`"
                " changes until when"
            )
        same = self.seconds is None and old.until is None
        if same and not (self.state == "healthy" and waits.parked_count(conn, self.db, self.site)):
            raise ActRefused(f"site {self.site} is {old} already: {old.reason}")

    def _enter(self, conn: Connection) -> None:
        """Give the site a row if it is one that a shard names."""
        health, now = self.db.tables.site_health, self.db.now(conn)
        if _one(conn, self.db, self.site) is not None:
            return
        _require_known(conn, self.db, self.site)
        row = {"site": self.site, "state": "healthy", "reason": "nothing on record"}
        if self.db.dialect == "sqlite":  # BEGIN IMMEDIATE has locked everything
            conn.execute(insert(health).values(row | {"updated_at": now}))
        else:
            statement = mysql_insert(health).on_duplicate_key_update(site=health.c.site)
            conn.execute(statement, [row | {"updated_at": now}])

    def _sentences(self, old: SiteRow, new: SiteRow, due: int) -> Iterator[str]:
        yield f"Site {self.site} is {new} (it was {old}): {new.reason}."
        if new.state != "healthy":
            yield "Its shards are not handed out, and no attempt is spent."
        elif due:
            yield f"{due} shard(s) that were parked for it are due at once."


def _rows(db: Database) -> Any:
    return select(*(db.tables.site_health.c[name] for name in SiteRow.__dataclass_fields__))


def _one(conn: Connection, db: Database, site: str, *, lock: bool = False) -> SiteRow | None:
    query = _rows(db).where(db.tables.site_health.c.site == site)
    row = conn.execute(query.with_for_update() if lock else query).mappings().first()
    return SiteRow(**row) if row else None


def _require_known(conn: Connection, db: Database, site: str) -> None:
    """Refuse a site that no shard names, which is most likely a misspelt one."""
    shard = db.tables.task_shard
    known: ColumnElement[bool] = exists().where(shard.c.site == site)
    if conn.execute(select(known)).scalar():
        return
    names = list(conn.execute(select(shard.c.site).distinct()).scalars())
    close = difflib.get_close_matches(site, names, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(close)}?" if close else "`scrapy resume health show` lists"
    raise ActRefused(f"no shard has the site {site!r}; {hint}")
