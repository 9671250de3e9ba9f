"""The store calls of the gate: how sites are, and the right to try one.

Plain functions of the database for the control thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy_resume.store import circuits, leases
from scrapy_resume.store.circuits import Parking
from scrapy_resume.store.engine import Database
from scrapy_resume.store.leases import ClaimedShard
from scrapy_resume.store.siterows import SiteRow
from scrapy_resume.store.sites import ParkedSite, look_parked
from scrapy_resume.worker import WorkerSlot

if TYPE_CHECKING:
    from scrapy_resume.settings import ResumeSettings


class SiteWork:
    """One crawl's view of the sites on record."""

    def __init__(self, database: Database, settings: ResumeSettings, slot: WorkerSlot) -> None:
        self._db, self._settings, self._slot = database, settings, slot

    def parked(self) -> dict[str, ParkedSite]:
        """The sites of which no shards are handed out now."""
        return look_parked(self._db)

    def claim_probe(self, task_id: int, site: str, alone: bool) -> tuple[bool, ClaimedShard | None]:
        """Take the right to try *site*, and a shard to do it with; *alone* says that we hold none.

        Was the right to be had, and the shard; without one the right is given back.
        """
        db, slot, settings = self._db, self._slot, self._settings
        if not circuits.claim_probe(db, site, instance=slot.instance, lease=settings.lease):
            return False, None
        leases.raise_due(db)
        claimed = leases.claim(
            db, task_id, worker=slot.worker, instance=slot.instance, limit=1,
            lease=settings.lease, intake=settings.intake.at(site), site_cap=settings.site_shards,
            alone=alone, tries=site,
        )  # fmt: skip
        if not claimed:
            self.drop_probe(site)
            return True, None
        return True, claimed[0]

    def drop_probe(self, site: str) -> None:
        """Give the right to try *site* back."""
        circuits.drop_probe(self._db, site, instance=self._slot.instance)

    def judge_site(self, site: str, state: str, reason: str, rest: float) -> SiteRow:
        """Say how *site* is, which asked for *rest* seconds of rest."""
        return circuits.judge_site(
            self._db, site, state, reason, parking=self._parking(rest), by=self._slot.signature
        )

    def probe_result(self, site: str, passed: bool, reason: str, rest: float) -> SiteRow | None:
        """Say how *site* is, now that it was tried."""
        return circuits.probe_result(
            self._db, site, passed, reason, instance=self._slot.instance,
            parking=self._parking(rest), by=self._slot.signature,
        )  # fmt: skip

    def _parking(self, rest: float) -> Parking:
        settings = self._settings
        return Parking(settings.health_wait, settings.health_wait_max, rest)
