"""Meter: an extension that measures a crawl from inside and leaves a report.

It measures from the first response to the idle spider: start-up is left out, and what
a contender still has to store when the last page is read is in.
"""

from __future__ import annotations

import json
import os
import resource
import time
from pathlib import Path
from typing import Any

from scrapy import signals
from scrapy.crawler import Crawler

REPORT = "BENCHMARK_REPORT"
"""Environment variable: the file that gets the report, as JSON."""


class Meter:
    """Writes what one crawl took, and what it did."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._opened = self._first = self._last = Reading()
        connect = crawler.signals.connect
        connect(self._spider_opened, signals.spider_opened)
        connect(self._response_received, signals.response_received)
        connect(self._spider_idle, signals.spider_idle)
        connect(self._engine_stopped, signals.engine_stopped)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Meter:
        return cls(crawler)

    def _spider_opened(self) -> None:
        self._opened = Reading.now()

    def _response_received(self) -> None:
        self._first = Reading.now()
        self._crawler.signals.disconnect(self._response_received, signals.response_received)

    def _spider_idle(self) -> None:
        self._last = Reading.now()

    def _engine_stopped(self) -> None:
        report = {
            "opened": vars(self._opened),
            "first": vars(self._first),
            "last": vars(self._last),
            "rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
            "stats": self._crawler.stats.get_stats(),
        }
        Path(os.environ[REPORT]).write_text(json.dumps(report, default=str), "utf-8")


class Reading:
    """One moment: *clock* in monotonic seconds, which all processes share, and CPU seconds."""

    def __init__(self, clock: float = 0.0, cpu: float = 0.0) -> None:
        self.clock, self.cpu = clock, cpu

    @classmethod
    def now(cls) -> Reading:
        used: Any = resource.getrusage(resource.RUSAGE_SELF)
        return cls(time.monotonic(), used.ru_utime + used.ru_stime)
