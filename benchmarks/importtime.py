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
        starts = [_starts(crawl, home, options.fresh) for _ in range(options.runs)]
        listed = Crawl(site, "list", pages=2, python=("-X", "importtime"))
        heaviest = _heaviest(run(PLAIN, listed, home)[1], run(SUITE, listed, home)[1])
    added = _added(starts, "first", clock=True)
    print(f"The suite adds to the start, median and range of {options.runs} (bar {BAR} s):")
    print(f"  to the first page   {added}, CPU {_added(starts, 'first', clock=False)}")
    opened = _added(starts, "opened", clock=True), _added(starts, "opened", clock=False)
    print(f"  to the open spider  {opened[0]}, CPU {opened[1]}")
    print("Heaviest of what only the suite imports, in milliseconds:")
    for name, milliseconds in heaviest.most_common(options.modules):
        print(f"  {milliseconds:7.1f}  {name}")
    return 0 if added.median <= BAR else 1


class Added(tuple[float, ...]):
    """Seconds that each start took longer than the plain one of its turn."""

    @property
    def median(self) -> float:
        return median(self)

    def __str__(self) -> str:
        return f"{self.median:.2f} s ({min(self):.2f} to {max(self):.2f})"


def _starts(crawl: Crawl, home: Path, fresh: bool) -> tuple[Measure, Measure]:
    """One start of the suite and a plain one."""
    if not fresh:
        return run(SUITE, crawl, home)[0], run(PLAIN, crawl, home)[0]
    with tempfile.TemporaryDirectory() as empty:
        return run(SUITE, crawl, Path(empty))[0], run(PLAIN, crawl, home)[0]


def _added(starts: list[tuple[Measure, Measure]], moment: str, *, clock: bool) -> Added:
    which = 0 if clock else 1
    return Added(getattr(ours, moment)[which] - getattr(his, moment)[which] for ours, his in starts)


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
