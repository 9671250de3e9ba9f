"""Who is measured, and one measured crawl of theirs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.meter import REPORT
from benchmarks.pages import ROWS

ROOT = Path(__file__).parents[1]
TUNED = {"CONCURRENT_ITEMS": "4", "LOG_FORMATTER": "benchmarks.plain.SilentLogFormatter"}
"""What the add-on tunes; plain Scrapy is given it too."""
TIMEOUT = 600.0  # seconds until a crawl counts as hung
SUITE = {"ADDONS": '{"scrapy_resume.ResumeAddon": 500}', "RESUME_PROGRESS": "False"}


class BenchmarkFailed(Exception):
    """A crawl did not do the work that it was measured for."""


@dataclass(frozen=True)
class Contender:
    """A way to crawl: whose spiders, with which settings and database."""

    name: str
    spiders: str
    settings: Mapping[str, str] = field(default_factory=dict)
    database: str | None = None


PLAIN = Contender("plain", "benchmarks.plain")
EQUALLY_TUNED = Contender("tuned", "benchmarks.plain", TUNED)


def suite(database: str) -> Contender:
    """The suite as the add-on sets it up, with every item in *database*."""
    return Contender(database, "benchmarks.resumable", SUITE, database)


@dataclass(frozen=True)
class Crawl:
    """The crawl every contender has to do: *pages* list pages of *shape* at *site*.

    *cores* pins it to these processors; *extra* are further settings, *python* options
    of the interpreter.
    """

    site: str
    shape: str
    pages: int
    cores: frozenset[int] = frozenset()
    extra: Mapping[str, str] = field(default_factory=dict)
    python: Sequence[str] = ()

    @property
    def items(self) -> int:
        """How many items it gives."""
        return self.pages * ROWS[self.shape]


@dataclass(frozen=True)
class Measure:
    """One crawl: seconds by the clock and of CPU from the first page to the idle spider.

    *opened* and *first* are the same two, from the start of the process to the open spider
    and to the first page. *rss* is in KiB.
    """

    seconds: float
    cpu: float
    opened: tuple[float, float]
    first: tuple[float, float]
    rss: int


def measure(contender: Contender, crawl: Crawl, database_url: str = "") -> Measure:
    """Crawl in a new process, with a home of its own. Raises BenchmarkFailed."""
    with tempfile.TemporaryDirectory() as home:
        report, _ = run(contender, crawl, Path(home), database_url)
    return report


def run(
    contender: Contender, crawl: Crawl, home: Path, database_url: str = ""
) -> tuple[Measure, str]:
    """Crawl in a new process with this *home*; also returns what it wrote to stderr."""
    path = home / "report.json"
    path.unlink(missing_ok=True)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)]),
        "SCRAPY_SETTINGS_MODULE": "benchmarks.settings",
        "RESUME_HOME": str(home),
        "RESUME_DATABASE_URL": database_url,
        REPORT: str(path),
    }
    started = time.monotonic()
    process = subprocess.Popen(
        _command(contender, crawl), cwd=home, env=environment, stderr=subprocess.PIPE, text=True
    )
    if crawl.cores:
        os.sched_setaffinity(process.pid, crawl.cores)
    try:
        errors = process.communicate(timeout=TIMEOUT)[1]
    except subprocess.TimeoutExpired:
        process.kill()
        errors = process.communicate()[1]
    report: dict[str, Any] = {}
    with suppress(OSError):
        report = json.loads(path.read_text("utf-8"))
    if process.returncode or not _did_it(contender, crawl, report):
        raise BenchmarkFailed(f"{contender.name} did not crawl it all:\n{errors[-3000:]}")
    return _measured(report, started), errors


def _command(contender: Contender, crawl: Crawl) -> list[str]:
    settings = {"SPIDER_MODULES": contender.spiders, **contender.settings, **crawl.extra}
    chosen = [part for name, value in settings.items() for part in ("-s", f"{name}={value}")]
    arguments = ["-a", f"base={crawl.site}", "-a", f"pages={crawl.pages}"]
    python = [sys.executable, *crawl.python, "-m", "scrapy"]
    return [*python, "crawl", crawl.shape, *arguments, *chosen]


def _did_it(contender: Contender, crawl: Crawl, report: dict[str, Any]) -> bool:
    stats = report.get("stats", {})
    stored = stats.get("resume/items/written"), stats.get("resume/verdict")
    return stats.get("item_scraped_count") == crawl.items and (
        contender.database is None or stored == (crawl.items, "complete")
    )


def _measured(report: dict[str, Any], started: float) -> Measure:
    opened, first, last = (report[name] for name in ("opened", "first", "last"))
    return Measure(
        seconds=last["clock"] - first["clock"],
        cpu=last["cpu"] - first["cpu"],
        opened=(opened["clock"] - started, opened["cpu"]),
        first=(first["clock"] - started, first["cpu"]),
        rss=report["rss"],
    )
