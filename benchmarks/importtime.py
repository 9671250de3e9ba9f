"""What the suite adds to the start of ``scrapy crawl``, and which modules cost it.

A start is over with the first page of the list. The suite has found its tables ready,
as when a crawl is resumed; ``--fresh`` has them made first.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.contenders import PLAIN, Crawl, Measure, run, suite
from benchmarks.services import local_site

BAR = 0.3
"""Seconds that the suite may add to the start."""
SUITE = suite("sqlite")
_LINE = re.compile(r"import time:\s+(\d+) \|\s+(\d+) \| (\s*)(\S+)")


def main() -> int:
    options = _options()
    with local_site(pages=12, rows=20) as site, tempfile.TemporaryDirectory() as temporary:
        crawl, home = Crawl(site, "list", pages=2), Path(temporary)
        run(SUITE, crawl, home)
        added = [_added(crawl, home, options.fresh) for _ in range(options.runs)]
        listed = Crawl(site, "list", pages=2, python=("-X", "importtime"))
        heaviest = _heaviest(run(PLAIN, listed, home)[1], run(SUITE, listed, home)[1])
    seconds = median(clock for clock, _ in added)
    print(f"The suite adds {seconds:.2f} s to the start (bar {BAR} s), median of {len(added)}:")
    print("  clock", *(f"{clock:.2f}" for clock, _ in added))
    print("  CPU  ", *(f"{cpu:.2f}" for _, cpu in added))
    print("Heaviest of what only the suite imports, in milliseconds:")
    for name, milliseconds in heaviest.most_common(options.modules):
        print(f"  {milliseconds:7.1f}  {name}")
    return 0 if seconds <= BAR else 1


def _added(crawl: Crawl, home: Path, fresh: bool) -> tuple[float, float]:
    """Seconds of clock and of CPU that one start took longer than a plain one."""
    if fresh:
        with tempfile.TemporaryDirectory() as empty:
            ours = run(SUITE, crawl, Path(empty))[0]
    else:
        ours = run(SUITE, crawl, home)[0]
    plain: Measure = run(PLAIN, crawl, home)[0]
    return ours.start_seconds - plain.start_seconds, ours.start_cpu - plain.start_cpu


def _heaviest(plain: str, ours: str) -> Counter[str]:
    """By package or module of ours: milliseconds of the imports that plain has not."""
    known = _imports(plain)
    added: Counter[str] = Counter()
    for name, microseconds in _imports(ours).items():
        if name not in known:
            added[_group(name)] += microseconds / 1000
    return added


def _imports(log: str) -> Mapping[str, int]:
    """By module: microseconds of its own, without what it imports."""
    return {match[4]: int(match[1]) for match in _LINE.finditer(log)}


def _group(name: str) -> str:
    parts = name.split(".")
    return ".".join(parts[: 2 if parts[0] in ("scrapy_resume", "sqlalchemy") else 1])


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="importtime.py", description=__doc__)
    add = parser.add_argument
    add("--runs", type=int, default=9, help="starts of each (default 9)")
    add("--modules", type=int, default=20, help="how many modules to list (default 20)")
    add("--fresh", action="store_true", help="with an empty database each time")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
