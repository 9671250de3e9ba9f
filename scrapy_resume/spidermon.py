"""Monitors for Spidermon, which tell at the end of a crawl what went wrong with its run.

An extra: ``pip install "scrapy-resume[spidermon]"``. They judge the stats, so they see one
process; only the verdict is that of the whole run. It is said when the spider has closed,
so the suite belongs in ``SPIDERMON_ENGINE_STOP_MONITORS``.
"""

from __future__ import annotations

from typing import Any, ClassVar

try:
    from spidermon import MonitorSuite, monitors
    from spidermon.contrib.scrapy.monitors import BaseScrapyMonitor
except ImportError as error:
    raise ImportError(
        'scrapy_resume.spidermon needs Spidermon: pip install "scrapy-resume[spidermon]"'
    ) from error

_GOOD = ("complete", "complete_with_rejects", "nothing_to_do")


class _ResumeMonitor(BaseScrapyMonitor):  # type: ignore[misc]
    """One question to the suite's stats."""

    def count(self, *names: str) -> int:
        """The sum of the stats ``resume/<name>``; 0 for those that are absent."""
        return sum(int(self.stats.get(f"resume/{name}", 0)) for name in names)

    def require(self, true: bool, words: str) -> None:
        """Fail with *words* unless it is *true*."""
        if not true:
            self.fail(words)


@monitors.name("Run")
class VerdictMonitor(_ResumeMonitor):
    """Fails unless the run was read to its end, with the sentence that says why not."""

    def test_verdict(self) -> None:
        """The verdict is good, and nothing stopped the crawl."""
        if not hasattr(self.data.spider, "parse_list_page"):
            self.skipTest("the spider does not resume")
        error: Any = self.stats.get("resume/error")
        self.require(error is None, f"the crawl was refused or stopped: {error}")
        verdict: Any = self.stats.get("resume/verdict")
        reason: Any = self.stats.get("resume/verdict_reason")
        words = f"the run is {verdict}: {reason}"
        if verdict is None:
            words = "it is not known how the run stands; the database did not answer at the end"
        self.require(verdict in _GOOD, words)


@monitors.name("Sites")
class BlockedMonitor(_ResumeMonitor):
    """Fails if a site was blocked, or a shard given back for it."""

    def test_blocked(self) -> None:
        """No site was judged blocked."""
        sites, shards = self.count("health/blocked"), self.count("shards/blocked")
        words = f"sites were judged blocked {sites} times, and {shards} shards given back for it"
        self.require(sites + shards == 0, words)


@monitors.name("Shards")
class FailedMonitor(_ResumeMonitor):
    """Fails if a shard is failed for good."""

    def test_failed(self) -> None:
        """No shard was given up."""
        shards = self.count("shards/failed")
        self.require(shards == 0, f"{shards} shards are failed for good")


@monitors.name("Records")
class QuarantineMonitor(_ResumeMonitor):
    """Fails if more than *most* records were set aside; give a subclass another number."""

    most: ClassVar[int] = 0

    def test_quarantined(self) -> None:
        """Not too much was set aside."""
        records = self.count("items/quarantined")
        words = f"{records} records are in quarantine; {self.most} are tolerated"
        self.require(records <= self.most, words)


@monitors.name("Progress")
class StalledMonitor(_ResumeMonitor):
    """Fails if no page of the run was stored for ``RESUME_STALLED_AFTER``."""

    def test_stalled(self) -> None:
        """Pages were stored all the time."""
        stalls = self.count("stalled")
        self.require(stalls == 0, f"the run stalled {stalls} times")


class ResumeMonitorSuite(MonitorSuite):  # type: ignore[misc]
    """All of them. Subclass it for what is to be done when one fails."""

    monitors: ClassVar[list[type]] = [
        VerdictMonitor,
        BlockedMonitor,
        FailedMonitor,
        QuarantineMonitor,
        StalledMonitor,
    ]
