"""The circuit of a site: closed while it is well, open while it is blocked, tried in between.

Every worker judges by what it sees itself; the row in ``site_health`` is what the fleet
goes by. A blocked site is parked *until* a time, and none of its shards is handed out.
Then one worker of the fleet at a time has the right to try it, for as long as a lease
unless it is renewed, so a dead one does not keep it. If the site passes it is healthy, and
its parked shards are due at once; if not it is parked for twice as long. It is so too if it
is blocked again sooner than it had rested. An operator's pause is above all of this.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from sqlalchemy import update
from sqlalchemy.engine import Connection

from scrapy_resume.store import waits
from scrapy_resume.store.columns import REASON_LENGTH
from scrapy_resume.store.engine import Database
from scrapy_resume.store.operations import Operation, record
from scrapy_resume.store.siterows import SiteRow, enter, find
from scrapy_resume.store.transitions import cleaned


@dataclass(frozen=True, slots=True)
class Parking:
    """For how long a site is parked, in seconds: *wait* at first, twice as long each time, at
    most *longest*; and no shorter than it asked for itself."""

    wait: float
    longest: float
    asked: float = 0.0

    def after(self, last: float | None) -> float:
        """How long now, *last* time being that long (None: there was none)."""
        seconds = self.wait if last is None else max(self.wait, 2 * last)
        return min(max(seconds, self.asked), self.longest)


def judge_site(
    db: Database, site: str, state: str, reason: str, *, parking: Parking, by: str
) -> SiteRow:
    """A worker, called *by*, finds *site* to be ``healthy``, ``suspect`` or ``blocked``.

    Returns the row as it is now. One that is blocked already is not parked anew by what
    others saw meanwhile, and only :func:`probe_result` ends that.
    """

    def work(conn: Connection) -> SiteRow:
        enter(conn, db, site)
        old, now = _locked(conn, db, site)
        if _outranks(old, state, now):
            return old
        again = now - old.updated_at < timedelta(milliseconds=old.wait_ms or 0)
        if state == "blocked":
            return _park(conn, db, old, reason, parking, by, again=again)
        new = replace(old, state=state, reason=reason, until=None, set_by=None, updated_at=now)
        return _write(conn, db, new if again else replace(new, wait_ms=None))

    return db.run(work)


def claim_probe(db: Database, site: str, *, instance: str, lease: float) -> bool:
    """Give *instance* the right to try *site* for *lease* seconds; False if it may not be tried
    now, or another one has the right."""

    def work(conn: Connection) -> bool:
        old, now = find(conn, db, site, lock=True), db.now(conn)
        if old is None or old.state != "blocked" or not old.is_over(now):
            return False
        taken = old.probe_until is not None and old.probe_until > now
        if taken and old.probe_instance != instance:
            return False
        until = now + timedelta(seconds=lease)
        _write(conn, db, replace(old, probe_instance=instance, probe_until=until))
        return True

    return db.run(work)


def probe_result(
    db: Database,
    site: str,
    passed: bool,
    reason: str,
    *,
    instance: str,
    parking: Parking,
    by: str,
) -> SiteRow | None:
    """*instance* has tried *site*: it is healthy if it *passed*, else parked for longer.

    Returns the row as it is now; None, and nothing is changed, if the right was another's.
    """

    def work(conn: Connection) -> SiteRow | None:
        old = find(conn, db, site, lock=True)
        if old is None or old.state != "blocked" or old.probe_instance != instance:
            return None
        if not passed:
            return _park(conn, db, old, reason, parking, by, again=True)
        now = db.now(conn)
        new = replace(
            old, state="healthy", reason=reason, until=None, set_by=None, updated_at=now,
            probe_instance=None, probe_until=None,
        )  # fmt: skip
        return _write(conn, db, new, _told("site_healthy", by, old, new))

    row = db.run(work)
    if row is not None and passed:
        waits.raise_parked(db, site)
    return row


def renew_probes(
    conn: Connection, db: Database, sites: Collection[str], instance: str, until: datetime
) -> None:
    """Extend the rights of *instance* to try *sites*, in the caller's transaction."""
    if sites:
        health = db.tables.site_health
        ours = health.c.site.in_(sorted(sites)), health.c.probe_instance == instance
        conn.execute(update(health).where(*ours).values(probe_until=until))


def drop_probe(db: Database, site: str, *, instance: str) -> None:
    """Give back the right of *instance* to try *site*, without a result."""
    health = db.tables.site_health
    ours = health.c.site == site, health.c.probe_instance == instance
    nobody = {"probe_instance": None, "probe_until": None}
    db.run(lambda conn: conn.execute(update(health).where(*ours).values(nobody)))


def _locked(conn: Connection, db: Database, site: str) -> tuple[SiteRow, datetime]:
    row = find(conn, db, site, lock=True)
    assert row is not None, "it was entered in this transaction"
    return row, db.now(conn)


def _outranks(old: SiteRow, state: str, now: datetime) -> bool:
    """Does what is on record stand, whatever a worker sees?"""
    if old.state == "paused":
        return not old.is_over(now) or state == "healthy"
    if old.state == "blocked":
        return True
    # No sign of trouble is what everybody sees of a healthy site.
    return old.state == state


def _park(
    conn: Connection, db: Database, old: SiteRow, reason: str, parking: Parking, by: str, *,
    again: bool,
) -> SiteRow:  # fmt: skip
    now = db.now(conn)
    last = None if old.wait_ms is None or not again else old.wait_ms / 1000
    seconds = parking.after(last)
    new = replace(
        old, state="blocked", reason=reason, until=now + timedelta(seconds=seconds), set_by=None,
        updated_at=now, wait_ms=round(seconds * 1000), probe_instance=None, probe_until=None,
    )  # fmt: skip
    return _write(conn, db, new, _told("site_blocked", by, old, new))


def _told(kind: str, by: str, old: SiteRow, new: SiteRow) -> Operation:
    before, after = (f"{one.site}: {one}" for one in (old, new))
    return Operation(kind, by, cleaned(new.reason, REASON_LENGTH), before=before, after=after)


def _write(conn: Connection, db: Database, row: SiteRow, act: Operation | None = None) -> SiteRow:
    health = db.tables.site_health
    row = replace(row, reason=cleaned(row.reason, REASON_LENGTH))
    values = {name: getattr(row, name) for name in SiteRow.__dataclass_fields__ if name != "site"}
    conn.execute(update(health).where(health.c.site == row.site).values(values))
    if act is not None:
        record(conn, db, [act], at=row.updated_at)
    return row
