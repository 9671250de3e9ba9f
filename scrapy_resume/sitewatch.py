"""One crawl's view of the sites it reads: a window for each, and whom it tells.

What is seen comes from the downloader middleware (answers) and from the page flow (list
pages). Whoever has to act when a site's state changes is a listener: the page flow, which
puts the pages of a blocked site back, and the gate, which tells the rest of the fleet.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from scrapy_resume import clock
from scrapy_resume.health import HealthLimits, Judgement, Signal, SiteState, SiteWindow
from scrapy_resume.looks import Looks
from scrapy_resume.moves import Moves

if TYPE_CHECKING:
    from scrapy import Request

    from scrapy_resume.page import Shard

logger = logging.getLogger(__name__)


class SiteListener(Protocol):
    """Who is told that a site's state changed; called in the event loop, must not raise."""

    def __call__(self, site: str, judgement: Judgement, retry_after: float) -> None:
        """*site* is now as *judgement* says; it asked for *retry_after* more seconds of rest."""


@dataclass(frozen=True, slots=True)
class Good:
    """The latest list page that held items, and how it was asked for."""

    shard: Shard
    number: int
    request: Request


@dataclass(slots=True)
class SiteFacts:
    """What this process knows of one site."""

    window: SiteWindow
    looks: Looks = field(default_factory=Looks)
    moves: Moves = field(default_factory=Moves)
    good: Good | None = None
    barren: set[tuple[str, int]] = field(default_factory=set)  # pages that a check found empty
    rest_until: float = 0.0


class SiteWatch:
    """The windows of one crawl. With *on* false every site is well."""

    def __init__(
        self,
        limits: HealthLimits,
        *,
        on: bool = True,
        longest_rest: float = 1800.0,
        inc_stat: Callable[..., None],
    ) -> None:
        self.limits, self.on = limits, on
        self.listeners: list[SiteListener] = []
        self.answered: Callable[[str], None] = lambda site: None  # told each good answer
        self._longest_rest, self._inc = longest_rest, inc_stat
        self._sites: dict[str, SiteFacts] = {}

    def facts(self, site: str) -> SiteFacts:
        """What is known of *site*."""
        facts = self._sites.get(site)
        if facts is None:
            facts = self._sites[site] = SiteFacts(SiteWindow(self.limits))
        return facts

    def judgement(self, site: str) -> Judgement:
        """How *site* is, as far as this process has seen."""
        return self.facts(site).window.judgement

    def is_blocked(self, site: str) -> bool:
        """Is the site to be left alone by this process?"""
        return self.on and self.judgement(site).state is SiteState.BLOCKED

    def note(self, site: str, signal: Signal, detail: str = "", about: str = "") -> None:
        """Take in what was seen of *site*; a change of its state is told to the listeners.

        *detail* is a few words for people, *about* the address that was asked for.
        """
        if not self.on:
            return
        window = self.facts(site).window
        before = window.judgement.state
        judgement = window.note(signal, clock.monotonic(), detail, about)
        if judgement.state is not before:
            self._tell(site, judgement)
        if signal is Signal.OK:
            self.answered(site)

    def begin(self, site: str, anew: bool = False) -> None:
        """A shard of *site* was claimed, so it may be tried: a blocked one is seen afresh, and
        with *anew* any."""
        facts = self.facts(site)
        if anew or facts.window.judgement.state is SiteState.BLOCKED:
            facts.window = SiteWindow(self.limits)

    def learn(self, site: str, judgement: Judgement) -> None:
        """The fleet says that the site is blocked. Nobody is told: it is no news of ours."""
        self.facts(site).window.judgement = judgement

    def rest(self, site: str, seconds: float) -> None:
        """The site asked to be left alone for *seconds* from now."""
        if self.on and seconds > 0:
            facts = self.facts(site)
            until = clock.monotonic() + min(seconds, self._longest_rest)
            facts.rest_until = max(facts.rest_until, until)

    def resting(self, site: str) -> float:
        """For how many seconds the site is still to be left alone."""
        facts = self._sites.get(site)
        return 0.0 if facts is None else max(0.0, facts.rest_until - clock.monotonic())

    def _tell(self, site: str, judgement: Judgement) -> None:
        blocked = judgement.state is SiteState.BLOCKED
        if blocked:
            self._inc("health/blocked")
        logger.log(
            logging.WARNING if blocked else logging.DEBUG, "Site %s is %s: %s", site,
            judgement.state.value, judgement.reason, extra={"action": "site_judged"},
        )  # fmt: skip
        for listener in list(self.listeners):
            listener(site, judgement, self.resting(site))
