"""Why a shard that waits is not claimed: what holds it back, or that nothing does."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from scrapy_resume.commands.mends import is_held, words
from scrapy_resume.commands.screen import moment
from scrapy_resume.store.claimindex import SUSPECT_ATTEMPTS
from scrapy_resume.store.columns import DIED, LAPSED

if TYPE_CHECKING:
    from scrapy_resume.settings import ResumeSettings


class Obstacles:
    """What a run's shards wait for, besides a worker that is free.

    *settings* are those of the process that asks: its cap on sites and what it takes.
    """

    def __init__(self, facts: dict[str, Any], settings: ResumeSettings) -> None:
        self._now = facts["now"]
        self._paused = facts["status"] == "paused"
        self._planned = facts["status"] != "planning"
        self._sites = {site["site"]: site for site in facts["health"]}
        self._settings = settings
        self._busy: dict[str, int] = facts["site_shards"]

    def of(self, shard: dict[str, Any]) -> str | None:
        """What keeps the pending *shard* from being claimed by anyone; None if nothing does."""
        if not self._planned:
            return "the run is not planned yet"
        if self._paused:
            return "the run is paused"
        held = self._held(shard["site"])
        if held is not None and shard["error_kind"] == "blocked":
            return held  # which is what it waits for
        if not shard["due"]:
            if shard["next_run_at"] is None:
                return "it is tried again when a crawl starts"
            if shard["next_run_at"] > self._now:
                left = span_text(shard["next_run_at"], self._now)
                return f"the next try is due in {left} ({moment(shard['next_run_at'])})"
        return held or self._of_full(shard["site"])

    def remark(self, shard: dict[str, Any]) -> str | None:
        """What else to know of a shard that may be claimed."""
        settings = self._settings
        if not settings.intake.takes(shard["lane"], shard["priority"], shard["site"]):
            return "but not by a process with these settings"
        if shard["attempt_count"] >= SUSPECT_ATTEMPTS and shard["reason"] in (DIED, LAPSED):
            return "but alone, by a process that holds nothing, since it may kill its process"
        return None

    def _held(self, name: str) -> str | None:
        site = self._sites.get(name)
        if site is None or not is_held(site, self._now):
            return None
        says = words(site, self._now)
        if says == site["state"] and site["until"] is not None:
            says += f" until {moment(site['until'])}"
        return f"its site is {says}: {site['reason']}"

    def _of_full(self, name: str) -> str | None:
        cap, running = self._settings.site_shards, self._busy.get(name, 0)
        if cap and running >= cap:
            return f"{running} shards of its site are read, RESUME_SITE_SHARDS is {cap}"
        return None


def span_text(later: str, earlier: str) -> str:
    """The time between two moments of the store, as a person says it."""
    span = _moment(later) - _moment(earlier)
    seconds = round(abs(span.total_seconds()))
    if seconds < 120:
        return f"{seconds} s"
    return f"{seconds // 60} min" if seconds < 7200 else f"{seconds // 3600} h"


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text.removesuffix("Z"))
