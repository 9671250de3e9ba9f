"""The gate: which sites may be read, as the whole fleet has it, and who tries a blocked one.

What this process judges goes to the database at once, and with every heartbeat comes back
what the others judged and operators said: shards of a site that is blocked are parked,
those of a paused one given back. When a blocked site's time is over one worker of the fleet
at a time has the right to try it. It claims one shard of it and asks for one page: what the
spider's ``probe()`` says, else the shard's next list page. If that page holds what it
should, the site is healthy for everybody; if not it is parked for longer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from scrapy.utils.defer import deferred_from_coro

from scrapy_resume import clock
from scrapy_resume.exceptions import StoreUnavailable
from scrapy_resume.health import Judgement, SiteState
from scrapy_resume.heldshard import Probe
from scrapy_resume.sitework import SiteWork
from scrapy_resume.store.leases import ClaimedShard
from scrapy_resume.walks import walk_for

if TYPE_CHECKING:
    from scrapy_resume.claimloop import ClaimLoop
    from scrapy_resume.store.siterows import SiteRow
    from scrapy_resume.store.sites import ParkedSite

logger = logging.getLogger(__name__)

_VAIN = 5  # times that the pause before a try without a shard is doubled

Say = Callable[[], "SiteRow | None"]


class SiteGate:
    """One claim loop's gate. *trying* are the sites that it has the right to try."""

    def __init__(self, loop: ClaimLoop) -> None:
        self.trying: set[str] = set()
        self._loop, self._flow, self._watch = loop, loop.flow, loop.session.watch
        self._work = SiteWork(loop.session.database, loop.settings, loop.slot)
        self._known = False
        self._due: dict[str, float] = {}  # when a parked site may be tried, by our clock
        self._vain: dict[str, tuple[int, float]] = {}  # tries without a shard, and when the next is
        self._failed: dict[str, Say] = {}  # the latest result of a try that failed
        self._unsaid: dict[str, Say] = {}  # what the database is yet to be told of a site
        self._saying: set[str] = set()
        self._suspects: dict[str, int] = {}  # heartbeats that a site has been suspect for
        self._watch.listeners.append(self._judged)

    @property
    def wanted(self) -> bool:
        """Whether there is something to ask the database."""
        return not self._known or bool(self._ready())

    async def tend(self) -> None:
        """Try the sites whose time is over, if it is our turn. Called by the claim loop."""
        if not self._known:
            self._known = True
            self.learn(await self._loop.ask(self._work.parked))
        for site in self._ready():
            self._due.pop(site, None)  # the next heartbeat tells whether it may still be tried
            await self._try(site)

    def _ready(self) -> list[str]:
        """The sites whose time is over, and that we may try as far as we know."""
        now = clock.monotonic()
        return [site for site, due in self._due.items() if due <= now and self._may_try(site)]

    def learn(self, parked: Mapping[str, ParkedSite] | None) -> None:
        """These sites are parked, says the database: act upon what is new in it."""
        if parked is None:
            return
        now, ours = clock.monotonic(), self._loop.slot.instance
        self._due = {
            name: max(now + one.left, self._vain.get(name, (0, now))[1])
            for name, one in parked.items()
            if one.state == "blocked" and one.left is not None and one.prober in (None, ours)
        }
        self._vain = {name: vain for name, vain in self._vain.items() if name in parked}
        for site in {shard.site for shard in self._flow.shards.values()} & parked.keys():
            tried = site in self.trying and parked[site].prober == ours
            if not tried and site not in self._unsaid:
                self._leave(parked[site])
        for site, beats in list(self._suspects.items()):
            self._suspects[site] = beats + 1
            if beats == 1:
                self._say(site, self._judgement(site, self._watch.judgement(site)))
        for site in self._unsaid.keys() - self._saying:
            self._send(site)

    def _may_try(self, site: str) -> bool:
        loop, held = self._loop, self._flow.shards.values()
        sites = loop.settings.intake.sites
        return (
            (not sites or site in sites)
            and self._flow.wished == "run"
            and not self._flow.stopping
            and site not in self.trying
            and site not in self._unsaid
            and len(held) < 2 * loop.settings.shards
            and not any(shard.site == site or shard.walk.suspect for shard in held)
        )

    async def _try(self, site: str) -> None:
        loop = self._loop
        assert loop.task is not None
        alone = not self._flow.shards
        right, claimed = await loop.ask(self._work.claim_probe, loop.task.id, site, alone)
        if claimed is None:
            if right:
                self._nothing_to_try(site)
            return
        self._vain.pop(site, None)
        loop.put_back(claimed.read_again_at)
        loop.session.inc_stat("shards/claimed")
        if not self._watch.on:
            self._tried(site, True, "it was not tried, since RESUME_HEALTH is False")
            self._flow.hold(walk_for(claimed, loop.policy))
            return
        self.trying.add(site)
        logger.info(
            "Site %s is tried with one page of shard %d", site, claimed.shard_no,
            extra={"action": "site_tried"},
        )  # fmt: skip
        loop.session.inc_stat("health/probes")
        self._hold(claimed)

    def _nothing_to_try(self, site: str) -> None:
        """No shard of it is due in our run, perhaps there is none: ask less and less often."""
        times = self._vain.get(site, (0, 0.0))[0]
        pause = self._loop.settings.heartbeat * 2**times
        self._vain[site] = min(times + 1, _VAIN), clock.monotonic() + pause

    def _hold(self, claimed: ClaimedShard) -> None:
        """One page in flight, and none is asked for twice."""
        policy = self._loop.policy
        walk = walk_for(claimed, replace(policy, in_flight=1, retries=0))
        probe = Probe(policy, lambda passed, why: self._tried(claimed.site, passed, why))
        self._flow.hold(walk, probe)
        shard = self._flow.shards.get(claimed.id)
        if shard is None:
            probe.end(None)  # the crawl is ending, or there was nothing to read
        elif self._loop.spider.has_probe:
            self._flow.doubts.checks.begin(shard)

    def _tried(self, site: str, passed: bool | None, why: str) -> None:
        """How a probe went; None if it ended without showing anything."""
        self.trying.discard(site)
        work = self._work
        if passed is None:
            self._loop.control.post(work.drop_probe, site)
            return
        if not passed:
            self._loop.session.inc_stat("health/probes_failed")
        rest = self._watch.resting(site)

        def say() -> SiteRow | None:
            return work.probe_result(site, passed, why, rest)

        if not passed:
            self._failed[site] = say
        self._say(site, say)

    def _judged(self, site: str, judgement: Judgement, retry_after: float) -> None:
        """A listener of the watch: this process has judged."""
        suspect_for = self._suspects.pop(site, 0)
        if judgement.state is SiteState.SUSPECT:
            self._suspects[site] = 0
        elif judgement.state is SiteState.BLOCKED:
            unsaid = self._unsaid.get(site)
            if unsaid is None or unsaid is not self._failed.get(site):  # else the probe says it
                self._say(site, self._judgement(site, judgement))
        elif suspect_for > 1:
            self._say(site, self._judgement(site, judgement))

    def _leave(self, parked: ParkedSite) -> None:
        """Others say so: give our shards of the site back."""
        doubts, site = self._flow.doubts, parked.site
        if parked.state == "paused":
            held = [one for one in self._flow.shards.values() if one.site == site]
            ours = [shard for shard in held if not shard.walk.leaving]
            if ours:
                logger.info(
                    "The site %s is paused (%s): %d shard(s) held here are given back", site,
                    parked.reason, len(ours), extra={"action": "site_paused"},
                )  # fmt: skip
            for shard in ours:
                doubts.give_up(shard, shard.walk.leave())
        elif self._watch.on and not self._watch.is_blocked(site):
            judgement = Judgement(SiteState.BLOCKED, parked.reason)
            self._watch.learn(site, judgement)
            doubts.judged(site, judgement, parked.left or 0.0)

    def _judgement(self, site: str, judgement: Judgement) -> Say:
        state, why, rest = judgement.state.value, judgement.reason, self._watch.resting(site)
        return lambda: self._work.judge_site(site, state, why, rest)

    def _say(self, site: str, say: Say) -> None:
        """Tell the database, now or as soon as it is back."""
        self._unsaid[site] = say
        if site not in self._saying:
            self._send(site)

    def _send(self, site: str) -> None:
        self._saying.add(site)
        deferred_from_coro(self._sent(site, self._unsaid[site])).addErrback(self._not_sent, site)

    async def _sent(self, site: str, say: Say) -> None:
        try:
            row = await self._loop.control.run(say)
        finally:
            self._saying.discard(site)
        if self._unsaid.get(site) is say:
            del self._unsaid[site]
        elif site in self._unsaid:  # there is more to say since
            self._send(site)
        if row is None or row.state not in ("healthy", "blocked"):
            return
        logger.info("Site %s is now %s: %s", site, row, row.reason, extra={"action": "site_told"})
        if row.state == "healthy":
            self._loop.tell_others()

    def _not_sent(self, failure: Any, site: str) -> None:
        if isinstance(failure.value, StoreUnavailable):
            return  # it is said again with the next heartbeat that comes through
        self._unsaid.pop(site, None)
        logger.error(
            "How site %s is could not be told", site, exc_info=failure.value,
            extra={"action": "site_untold"},
        )  # fmt: skip
