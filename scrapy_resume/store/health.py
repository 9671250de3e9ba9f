"""Which sites are well, as the fleet shares it, and what operators decide about them.

A site without a row is healthy. The shards of a site that is ``blocked`` or ``paused``
are not handed out until ``until``, or until an operator says otherwise.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, exists, func, select, update
from sqlalchemy.engine import Connection

from scrapy_resume.exceptions import ActRefused
from scrapy_resume.store import waits
from scrapy_resume.store.actresults import ActResult
from scrapy_resume.store.columns import NAME_LENGTH, REASON_LENGTH
from scrapy_resume.store.engine import Database
from scrapy_resume.store.operations import Operation, record
from scrapy_resume.store.siterows import NOTHING, SiteRow, enter, find, sites
from scrapy_resume.store.transitions import cleaned

__all__ = [
    "SiteRow", "open_shards", "pause_site", "runs_at", "set_site", "sites", "unpause_site",
]  # fmt: skip

STATES = ("healthy", "blocked", "paused")  # those that an operator may set
_OPEN = ("pending", "running", "paused")


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


def runs_at(db: Database, site: str) -> list[int]:
    """The unfinished runs that have shards of *site*, by their ids."""
    shard, task = db.tables.task_shard, db.tables.task
    ours = exists().where(shard.c.task_id == task.c.id, shard.c.site == site)
    query = select(task.c.id).where(task.c.open_name.is_not(None), ours).order_by(task.c.id)
    return db.look(lambda conn: list(conn.execute(query).scalars()))


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
            "a site is blocked for a time (--for 30m), after which it is tried with one request;"
            " paused for a time or until it is unpaused; and healthy without a time"
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
            self.kind, new.set_by or "", new.reason,
            before=f"{self.site}: {old}", after=f"{self.site}: {new}",
        )  # fmt: skip
        record(conn, self.db, [act], at=new.updated_at)
        return old, new

    def _judge(self, conn: Connection, *, lock: bool = False) -> tuple[SiteRow, SiteRow]:
        """The site as it is and as it will be. Raises ActRefused."""
        now = self.db.now(conn)
        old = find(conn, self.db, self.site, lock=lock)
        if old is None:
            _require_known(conn, self.db, self.site)
            old = SiteRow(self.site, "healthy", NOTHING, None, None, None, now)
        until = None if self.seconds is None else now + timedelta(seconds=self.seconds)
        new = replace(
            old, state=self.state, reason=cleaned(self.reason, REASON_LENGTH), until=until,
            set_by=cleaned(self.actor, NAME_LENGTH), counters=None, updated_at=now, wait_ms=None,
            probe_instance=None, probe_until=None,
        )  # fmt: skip
        self._refuse(conn, old, now)
        return old, new

    def _refuse(self, conn: Connection, old: SiteRow, now: datetime) -> None:
        """Refuse what would change nothing, or end what is not there."""
        if self.kind == "unpause_site":
            if old.state != "paused":
                raise ActRefused(f"site {self.site} is not paused, it is {old}: {old.reason}")
            return
        if old.state != self.state or old.is_over(now):
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
        if find(conn, self.db, self.site) is None:
            _require_known(conn, self.db, self.site)
            enter(conn, self.db, self.site)

    def _sentences(self, old: SiteRow, new: SiteRow, due: int) -> Iterator[str]:
        yield f"Site {self.site} is {new} (it was {old}): {new.reason}."
        if new.state != "healthy":
            yield "Its shards are not handed out, and no attempt is spent."
        elif due:
            yield f"{due} shard(s) that were parked for it are due at once."


def _require_known(conn: Connection, db: Database, site: str) -> None:
    """Refuse a site that no shard names, which is most likely a misspelt one."""
    shard = db.tables.task_shard
    known: ColumnElement[bool] = exists().where(shard.c.site == site)
    if conn.execute(select(known)).scalar():
        return
    names = list(conn.execute(select(shard.c.site).distinct()).scalars())
    close = difflib.get_close_matches(site, names, n=3, cutoff=0.5)
    hint = "`scrapy resume health show` lists them"
    if close:
        hint = f"did you mean {' or '.join(close)}?"
    raise ActRefused(f"no shard has the site {site!r}; {hint}")
