"""``make bench``: pages per second and per CPU second, as ratios to plain Scrapy.

The opponents are plain Scrapy *as it comes* (its default settings) and plain Scrapy
*equally tuned*; both throw their items away, while the suite stores every item and
checkpoints every page in the same transaction. All contenders crawl the same site, take
turns in every round, and each ratio is taken within a round.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.contenders import EQUALLY_TUNED, PLAIN, Contender, Crawl, Measure, measure, suite
from benchmarks.pages import ROWS
from benchmarks.report import Comparison, circumstances, markdown
from benchmarks.services import DATABASES, Databases, local_site

RESULTS = Path(__file__).parent / "results"
PAGE = Path(__file__).parents[1] / "docs" / "explanation" / "speed.md"
_TABLE = re.compile(r"(?<=<!-- result -->\n\n).*?(?=\n<!-- end of result -->)", re.DOTALL)
BAR = 1.0
"""What the suite must reach of the speed of plain Scrapy as it comes."""
REQUESTS = {"list": 1, "details": 1 + ROWS["details"]}
"""How many requests a page of a shape takes."""

Measures = dict[str, list[Measure]]


def main() -> int:
    options = _options()
    comparisons: list[Comparison] = []
    site_cores, crawl_cores = _cores(options.pin)
    with local_site(options.pages, max(ROWS.values()), site_cores) as site, Databases() as servers:
        for shape in options.shape:
            pages = max(10, options.pages // REQUESTS[shape])
            crawl = Crawl(site, shape, pages, crawl_cores)
            measures = _rounds(crawl, options.database, options.runs, servers)
            comparisons += _compare(shape, options.database, measures)
    table = markdown(comparisons)
    print(table, flush=True)
    if options.output is not None:
        _write(options.output, comparisons, table)
    return _judge(comparisons)


def _rounds(crawl: Crawl, databases: Sequence[str], rounds: int, servers: Databases) -> Measures:
    """Let the contenders take turns; every second round goes backwards."""
    contenders = [PLAIN, *map(suite, databases), EQUALLY_TUNED]
    measures: Measures = defaultdict(list)
    for number in range(1, rounds + 1):
        for contender in contenders:
            with servers.fresh(contender.database) as url:
                measures[contender.name].append(measure(contender, crawl, url))
            _say(crawl, contender, number, rounds)
        contenders.reverse()
    return measures


def _say(crawl: Crawl, contender: Contender, number: int, rounds: int) -> None:
    line = f"round {number} of {rounds}: {crawl.shape}, {crawl.pages} pages, {contender.name}"
    print(line, file=sys.stderr, flush=True)


def _compare(shape: str, databases: Sequence[str], measures: Measures) -> Iterator[Comparison]:
    for database in databases:
        for opponent in (PLAIN, EQUALLY_TUNED):
            ours, his = measures[database], measures[opponent.name]
            yield Comparison(shape, database, opponent.name, ours, his)


def _judge(comparisons: Sequence[Comparison]) -> int:
    """1 if the suite is anywhere below the bar, with a line that says where."""
    judged = [c for c in comparisons if c.opponent == PLAIN.name]
    below = [f"{c.shape} into {c.contender}" for c in judged if c.speed.median < BAR]
    print(f"Below the bar of {BAR} of plain Scrapy as it comes: {', '.join(below) or 'nothing'}.")
    return 1 if below else 0


def _write(directory: Path, comparisons: Sequence[Comparison], table: str) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    lines = [comparison.as_json() for comparison in comparisons]
    result = {"measured_on": circumstances(), "bar": BAR, "ratios": lines}
    (directory / "speed.json").write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    (directory / "speed.md").write_text(table, "utf-8")
    if directory == RESULTS:
        PAGE.write_text(_TABLE.sub(lambda _: table, PAGE.read_text("utf-8")), "utf-8")


def _cores(pin: bool) -> tuple[frozenset[int], frozenset[int]]:
    """Processors for the site and for the crawls; empty: any."""
    return (frozenset({1}), frozenset({0})) if pin else (frozenset(), frozenset())


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="speed.py", description=__doc__)
    add = parser.add_argument
    add("--pages", type=int, help="requests of a crawl, about (default 1200)")
    add("--runs", type=int, help="crawls of each contender (default 7)")
    add("--database", choices=DATABASES, action="append", help="only this one")
    add("--shape", choices=ROWS, action="append", help="only this one")
    add("--pin", action="store_true", help="the site and the crawls on processors of their own")
    add("--quick", action="store_true", help="few and short crawls; writes no result")
    add("--output", type=Path, help="directory for the result (default benchmarks/results)")
    options = parser.parse_args()
    options.pages = options.pages or (300 if options.quick else 1200)
    options.runs = options.runs or (3 if options.quick else 7)
    options.database, options.shape = options.database or DATABASES, options.shape or tuple(ROWS)
    whole = options.database == DATABASES and options.shape == tuple(ROWS) and not options.quick
    options.output = options.output or (RESULTS if whole else None)
    return options


if __name__ == "__main__":
    sys.exit(main())
