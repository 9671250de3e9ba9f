"""The commands that would mend what is wrong with a run, by what is wrong."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator
from typing import Any

from scrapy_resume.watermark import PageRanges

_RESUME = "scrapy resume"


class Mends:
    """Tells what an operator may do about one run's facts, as ``why`` has them."""

    def __init__(self, facts: dict[str, Any]) -> None:
        self._facts = facts
        self._id: int = facts["task_id"]
        self._paused = facts["status"] == "paused"
        now = facts["now"]  # what a crawl would try by itself needs nothing
        held = (one for one in facts["health"] if is_held(one, now) and not _is_over(one, now))
        self._sites = {one["site"]: one for one in held}

    def of(self, shard: dict[str, Any]) -> str | None:
        """The command for one shard; None while its owner is at it."""
        if shard["status"] == "failed":
            return self._retry([shard])
        if self._paused or shard["status"] == "paused":
            return f"{_RESUME} unpause {self._id}"
        if shard["status"] == "running":
            return self.crawl if shard["lease_until"] < self._facts["now"] else None
        if shard["site"] in self._sites:
            return self._of_site(shard["site"])
        return self._retry([shard]) if _backs_off(shard) else self.crawl

    @property
    def crawl(self) -> str:
        """The command that works on the run."""
        arguments = json.loads(self._facts["args"])
        given = [f"-a {shlex.quote(f'{name}={value}')}" for name, value in arguments.items()]
        return " ".join([f"{_RESUME} run", shlex.quote(self._facts["spider"]), *given])

    def sentences(self) -> Iterator[str]:
        """Everything that may be done, each thing once."""
        shards = self._facts["shards"]
        if failed := [one for one in shards if one["status"] == "failed"]:
            yield f"`{self._retry(failed)}` has what failed tried again."
        if not self._facts["finished_at"]:
            yield from self._unfinished(shards)
        if self._facts["unresolved"]:
            yield self._aside()

    def _aside(self) -> str:
        aside, which = f"{_RESUME} quarantine", f"--task {self._id}"
        listed = f"`{aside} list {self._id}` has all of it"
        if any(one["page"] is not None for one in self._facts["quarantine"]):
            does = "has the pages of what is in quarantine read again"
            return f"`{aside} requeue {which}` {does}; {listed}."
        return (
            f"`{aside} resolve {which} --resolution TEXT` closes what is in quarantine; {listed}."
        )

    def _unfinished(self, shards: Iterable[dict[str, Any]]) -> Iterator[str]:
        if self._paused or any(one["status"] == "paused" for one in shards):
            yield f"`{_RESUME} unpause {self._id}` ends the pause."
        waiting = [one for one in shards if one["status"] == "pending"]
        for site in sorted({one["site"] for one in waiting} & set(self._sites)):
            ends = "ends the pause of" if self._sites[site]["state"] == "paused" else "tries"
            yield f"`{self._of_site(site)}` {ends} {site} at once."
        if late := [o for o in waiting if _backs_off(o) and o["site"] not in self._sites]:
            yield f"`{self._retry(late)}` waits no longer for the next try."

    def _retry(self, shards: Iterable[dict[str, Any]]) -> str:
        numbers = PageRanges.of((one["shard_no"], one["shard_no"]) for one in shards)
        return f"{_RESUME} retry {self._id} --shards {numbers}"

    def _of_site(self, site: str) -> str:
        if self._sites[site]["state"] == "paused":
            return f"{_RESUME} unpause --site {shlex.quote(site)}"
        return f"{_RESUME} health set {shlex.quote(site)} healthy"


def is_held(site: dict[str, Any], now: str) -> bool:
    """Are no shards of the site handed out now? A blocked one has to be tried before."""
    return site["state"] == "blocked" or (site["state"] == "paused" and not _is_over(site, now))


def words(site: dict[str, Any], now: str) -> str:
    """How the site is, and what follows if its time is over."""
    state: str = site["state"]
    if state not in ("blocked", "paused") or not _is_over(site, now):
        return state
    if state == "paused":
        return "paused (over)"
    tried = site["probe_until"] is not None and site["probe_until"] > now
    return "blocked (tried now)" if tried else "blocked (to be tried)"


def _is_over(site: dict[str, Any], now: str) -> bool:
    return site["until"] is not None and site["until"] <= now


def missing(shard: dict[str, Any]) -> str:
    """The pages of a shard that are not stored, as ranges; ``8-`` has no end that is known."""
    holes, low = [], shard["cur_page"] + 1
    for first, last in PageRanges.parse(shard["ahead"]).ranges:
        holes += [(low, first - 1)] if low < first else []
        low = last + 1
    if shard["last_page"] is not None:
        holes += [(low, shard["last_page"])] if low <= shard["last_page"] else []
        return str(PageRanges.of(holes))
    return ",".join([*filter(None, [str(PageRanges.of(holes))]), f"{low}-"])


def _backs_off(shard: dict[str, Any]) -> bool:
    """Does it wait for a time?"""
    return not shard["due"] and shard["next_run_at"] is not None
