"""Which shards a claim may take: the most urgent ones that nobody else is taking.

Candidates are locked with SKIP LOCKED. The index is walked one equality after the
other: a dive finds the most urgent lane and priority, a dive each the sites that have
shards of it, and each site is asked for its share. So the cost does not grow with the
number of sites or shards, and no claim locks what it does not take.

What the queue names is tried before the index, urgency by urgency: an old queue can
choose between shards that are equally urgent, and never puts one before a more urgent
one that it does not know.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from typing import Any, NamedTuple

from sqlalchemy import func, select
from sqlalchemy.engine import Connection, Row

from scrapy_resume.intake import LANES, Intake
from scrapy_resume.store.claimindex import (
    IN_LIST,
    claim_query,
    hint_query,
    priority_query,
    ready_query,
    site_query,
    urgency_query,
)
from scrapy_resume.store.engine import Database
from scrapy_resume.store.sites import Rooms, full, parked

_SITES = 8  # sites asked at once at most
_FEW = 3  # sites that are looked through from the first one on; of more a random stretch is
_LOWEST, _HIGHEST = -(1 << 31), (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Want:
    """What a claim asks for: *limit* shards that *intake* takes, *hints* (ids) first, at most
    *site_cap* running at a site, none of the sites *without*; a suspect only if *alone*. *tries*
    is a parked site that one is to be taken of all the same, and the instance that has the
    right to."""

    limit: int
    intake: Intake
    site_cap: int
    hints: Sequence[int]
    alone: bool
    tries: tuple[str, str] | None = None
    without: Collection[str] = ()


class Candidates(NamedTuple):
    """Locked rows; *suspect* says that the only one may have killed its processes.

    *read_again_at* is when pages of the run were last put back.
    """

    rows: list[Row[Any]]
    suspect: bool
    read_again_at: datetime | None = None


class _Urgency(NamedTuple):
    """A lane and priority that has shards waiting, and the first site that has them."""

    lane: int
    priority: int
    site: str


def lock_candidates(conn: Connection, db: Database, task_id: int, want: Want) -> Candidates:
    """Lock up to ``want.limit`` candidates. The task's row is locked for sharing, so that the
    run cannot be declared over or superseded meanwhile.

    A shard whose process died again and again is found only if there is no other, and then
    it is the only one.
    """
    ready = conn.execute(ready_query(db), {"task": task_id}).first()
    if ready is None:
        return Candidates([], False)
    closed = _closed(conn, db, want)
    search = _Search(conn, db, task_id, want, closed)
    rows = search.find(want.limit, suspects=False)
    suspects = not rows and want.alone
    if suspects:
        rows = search.find(1, suspects=True)
    return Candidates(rows, suspects, ready.read_again_at)


def _closed(conn: Connection, db: Database, want: Want) -> frozenset[str]:
    """The sites that nothing may be taken of."""
    held = parked(conn, db)
    if want.tries is not None:
        site, instance = want.tries
        if site in held and held[site].state == "blocked" and held[site].prober == instance:
            del held[site]
    return full(conn, db, want.site_cap) | held.keys() | frozenset(want.without)


@dataclass
class _Search:
    """One claim's walk through the index; *found* are the rows locked so far, by id."""

    conn: Connection
    db: Database
    task_id: int
    want: Want
    closed: frozenset[str]
    found: dict[int, Row[Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rooms = Rooms(self.conn, self.db, self.want.site_cap)

    def find(self, limit: int, *, suspects: bool) -> list[Row[Any]]:
        """Lock up to *limit* shards, the most urgent ones; returns them in that order."""
        hints = self._hints()
        for urgency in self._urgencies():
            self._try_hints(limit, hints.get(urgency[:2], []), suspects)
            done: set[str] = set()
            while (left := limit - len(self.found)) > 0:
                sites = self._sites(urgency, done, min(left, _SITES))
                if not sites:
                    break
                done.update(sites)
                self._share(limit, urgency, sites, suspects)
            if left <= 0:
                break
        return list(self.found.values())

    def _hints(self) -> dict[tuple[int, int], list[Row[Any]]]:
        """Where what the queue names stands, by urgency and in the queue's order."""
        ids = list(dict.fromkeys(self.want.hints))[:IN_LIST]
        if not ids:
            return {}
        parameters = {"task": self.task_id, "ids": ids}
        rows = {row.id: row for row in self.conn.execute(urgency_query(self.db), parameters)}
        hints: dict[tuple[int, int], list[Row[Any]]] = {}
        for row in (rows[shard_id] for shard_id in ids if shard_id in rows):
            if self._open(row.lane, row.priority, row.site):
                hints.setdefault((row.lane, row.priority), []).append(row)
        return hints

    def _try_hints(self, limit: int, hints: Sequence[Row[Any]], suspects: bool) -> None:
        query = hint_query(self.db, suspects=suspects)
        while hints and (left := limit - len(self.found)) > 0:
            self.rooms.open({row.site for row in hints[:left]})
            ids = [row.id for row in hints[:left]]
            hints = hints[left:]
            rows = self.conn.execute(query, {"task": self.task_id, "ids": ids}).all()
            for row in sorted(rows, key=lambda row: ids.index(row.id)):
                if self.rooms.at(row.site) > 0:
                    self._keep([row])

    def _share(self, limit: int, urgency: _Urgency, sites: list[str], suspects: bool) -> None:
        """Take from *sites* in turns, as much from each as there is, until *limit* are found."""
        # Our own locks do not hide what we have, so each turn goes on behind it.
        last = {site: 0 for site in sites if self.rooms.at(site) > 0}
        while last and (left := limit - len(self.found)) > 0:
            share = max(1, left // len(last))
            for site in list(last)[:left]:
                rows = self._lock(urgency, site, last[site], share, suspects)
                self._keep(rows)
                if len(rows) < share:  # the rest is gone, or locked by others
                    del last[site]
                else:
                    last[site] = rows[-1].id

    def _lock(
        self, urgency: _Urgency, site: str, behind: int, share: int, suspects: bool
    ) -> Sequence[Row[Any]]:
        wanted = min(share, self.rooms.at(site))
        if wanted <= 0:
            return ()
        hinted = sum(row.site == site for row in self.found.values()) if self.want.hints else 0
        parameters = {
            "task": self.task_id, "lane": urgency.lane, "priority": urgency.priority,
            "site": site, "behind": behind, "wanted": wanted + hinted,
        }  # fmt: skip
        rows = self.conn.execute(claim_query(self.db, suspects=suspects), parameters)
        return [row for row in rows if row.id not in self.found][:wanted]

    def _urgencies(self) -> Iterator[_Urgency]:
        """What is waiting, the most urgent first."""
        intake, query = self.want.intake, priority_query(self.db)
        for lane in sorted(intake.lanes or LANES.values()):
            for low, high in intake.priorities or ((_LOWEST, _HIGHEST),):
                while low <= high:
                    parameters = {"task": self.task_id, "lane": lane, "low": low, "high": high}
                    row = self.conn.execute(query, parameters).first()
                    if row is None:
                        break
                    yield _Urgency(lane, *row)
                    low = row.priority + 1

    def _sites(self, urgency: _Urgency, done: Collection[str], count: int) -> list[str]:
        """Up to *count* sites with shards of an urgency, at random so that none starves another."""
        few = min(count, _FEW)
        sites = list(islice(self._open_sites(urgency, urgency.site, done), few + 1))
        if len(sites) > few:
            begin = self._next_site(urgency, self._any_site())
            behind = islice(self._open_sites(urgency, begin, done), count)
            sites = list(dict.fromkeys([*behind, *sites]))[:count]
        self.rooms.open(sites)
        random.shuffle(sites)
        return sites

    def _open_sites(
        self, urgency: _Urgency, site: str | None, done: Collection[str]
    ) -> Iterator[str]:
        """The sites from *site* on that a claim may take from."""
        while site is not None:
            if site not in done and self._open(urgency.lane, urgency.priority, site):
                yield site
            site = self._next_site(urgency, site)

    def _next_site(self, urgency: _Urgency, after: str) -> str | None:
        parameters = {
            "task": self.task_id, "lane": urgency.lane, "priority": urgency.priority,
            "after_site": after,
        }  # fmt: skip
        return self.conn.execute(site_query(self.db), parameters).scalar()

    def _any_site(self) -> str:
        shard = self.db.tables.task_shard
        ours = shard.c.task_id == self.task_id
        last = self.conn.execute(select(func.max(shard.c.shard_no)).where(ours)).scalar() or 1
        some = select(shard.c.site).where(ours, shard.c.shard_no >= random.randint(1, last))
        return self.conn.execute(some.order_by(shard.c.shard_no).limit(1)).scalar() or ""

    def _open(self, lane: int, priority: int, site: str) -> bool:
        return site not in self.closed and self.want.intake.takes(lane, priority, site)

    def _keep(self, rows: Sequence[Row[Any]]) -> None:
        for row in rows:
            self.found[row.id] = row
            self.rooms.take(row.site)
