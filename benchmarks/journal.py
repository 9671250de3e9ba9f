"""``make bench-journal``: what the journal costs, as a ratio of pages per second.

The same crawl into the same MariaDB with the journal on and off, in turns. Both store every
item and checkpoint every page; with the journal a page is on the local disk too (one fsync
for all that wait for it) before its slot is free. Each ratio is taken within a round, and
every second round goes backwards, since whatever else the machine does meets both alike.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.contenders import SUITE, Contender, Crawl, Measure, measure
from benchmarks.pages import ROWS
from benchmarks.report import Ratio, circumstances
from benchmarks.services import Databases, local_site
from benchmarks.speed import REQUESTS, RESULTS

BAR = 0.95
"""What the suite must keep of its pages per second with the journal on."""


def suite(journal: bool) -> Contender:
    """The suite on MariaDB with the journal on or off."""
    settings = {**SUITE, "RESUME_JOURNAL": str(journal)}
    return Contender("on" if journal else "off", "benchmarks.resumable", settings, "mariadb")


def main() -> int:
    options = _options()
    fsync = _fsync()
    ratios: dict[str, dict[str, Ratio]] = {}
    with local_site(options.pages, max(ROWS.values())) as site, Databases() as servers:
        for shape in options.shape:
            crawl = Crawl(site, shape, max(10, options.pages // REQUESTS[shape]))
            measures = _rounds(crawl, options.runs, servers)
            ratios[shape] = {name: _ratio(measures, name) for name in ("seconds", "cpu", "rss")}
            for name, ratio in ratios[shape].items():
                print(f"{shape}: {name} without the journal / with it: {ratio}", flush=True)
    if options.output is not None:
        _write(options.output, ratios, fsync)
    return _judge(ratios)


def _rounds(crawl: Crawl, rounds: int, servers: Databases) -> dict[str, list[Measure]]:
    contenders, measures = [suite(True), suite(False)], defaultdict(list)
    for number in range(1, rounds + 1):
        for contender in contenders:
            with servers.fresh(contender.database) as url:
                measures[contender.name].append(measure(contender, crawl, url))
        line = f"round {number} of {rounds}: {crawl.shape}, {crawl.pages} pages"
        print(line, file=sys.stderr, flush=True)
        contenders.reverse()
    return measures


def _ratio(measures: dict[str, list[Measure]], quantity: str) -> Ratio:
    """Of *quantity* without the journal to that with it: below 1 the journal costs."""
    pairs = zip(measures["off"], measures["on"], strict=True)
    return Ratio(tuple(getattr(off, quantity) / getattr(on, quantity) for off, on in pairs))


def _fsync() -> float:
    """Milliseconds of an fsync where the journals of this benchmark are."""
    with tempfile.TemporaryFile(buffering=0) as file:
        began = time.perf_counter()
        for _ in range(50):
            file.write(b"x" * 4096)
            os.fsync(file.fileno())
    return (time.perf_counter() - began) / 50 * 1000


def _judge(ratios: dict[str, dict[str, Ratio]]) -> int:
    """1 if the journal costs more than the bar allows anywhere."""
    below = [shape for shape, one in ratios.items() if one["seconds"].median < BAR]
    print(f"Below the bar of {BAR} of the speed without a journal: {', '.join(below) or 'nothing'}")
    return 1 if below else 0


def _write(directory: Path, ratios: dict[str, dict[str, Ratio]], fsync: float) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    lines: dict[str, Any] = {
        shape: {
            "pages_per_second": one["seconds"].rounded(),
            "pages_per_cpu_second": one["cpu"].rounded(),
            "memory": round(1 / one["rss"].median, 3),
        }
        for shape, one in ratios.items()
    }
    measured = {**circumstances(), "fsync_ms": round(fsync, 3)}
    result = {"measured_on": measured, "bar": BAR, "ratios": lines}
    (directory / "journal.json").write_text(json.dumps(result, indent=1) + "\n", "utf-8")


def _options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="journal.py", description=__doc__)
    add = parser.add_argument
    add("--pages", type=int, help="requests of a crawl, about (default 1200)")
    add("--runs", type=int, help="rounds (default 11)")
    add("--shape", choices=ROWS, action="append", help="only this one")
    add("--quick", action="store_true", help="few and short crawls; writes no result")
    add("--output", type=Path, help="directory for the result (default benchmarks/results)")
    options = parser.parse_args(arguments)
    options.pages = options.pages or (300 if options.quick else 1200)
    options.runs = options.runs or (3 if options.quick else 11)
    whole = options.shape is None and not options.quick
    options.output = options.output or (RESULTS if whole else None)
    options.shape = options.shape or list(ROWS)
    return options


if __name__ == "__main__":
    sys.exit(main())
