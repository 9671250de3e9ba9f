"""``make bench-claims``: how fast a fleet plans, restores and claims a run of 100,000 shards.

Every figure is taken on a fresh database: a private MariaDB server with its defaults of
durability, or an SQLite file. Planner and claimers are processes of their own, which
begin together once all of them are connected; the clock runs from the first claim to
the end of the last one.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.services import DATABASES, Databases
from scrapy_resume.page import Shard
from scrapy_resume.store import leases, migrate, tasks
from scrapy_resume.store.engine import Database

RESULTS = Path(__file__).parent / "results"
PAGE = Path(__file__).parents[1] / "docs" / "explanation" / "speed.md"
_TABLE = re.compile(r"(?<=<!-- claims -->\n\n).*?(?=\n<!-- end of claims -->)", re.DOTALL)
CLAIMERS = 8
STEP = 5000  # shards that one step of restoring reads

FIGURES = {
    "plan": ("planning it, shards/s", None),
    "memory": ("memory that planning adds, MB", None),
    "restore": ("reading all that waits, s", "at most 1"),
    "outlook": ("an idle worker's look, ms", None),
    "claim": ("claims in batches of 100, shards/s", "at least 10,000"),
    "claim_cpu": ("the same, shards per CPU second", None),
    "claim_sites": ("the same over 20 sites, shards/s", None),
    "claim_few": ("claims of 8, shards/s", None),
}
"""What is measured, and the bar, which counts on MariaDB."""

Measures = dict[str, dict[str, list[float]]]


def main() -> int:
    options = _options()
    measures: Measures = defaultdict(lambda: defaultdict(list))
    with Databases() as servers:
        for number in range(1, options.runs + 1):
            for kind in options.database:
                with _fresh(servers, kind) as url:
                    for name, value in _measure(url, options.shards, servers):
                        measures[kind][name].append(value)
                print(f"run {number} of {options.runs}: {kind}", file=sys.stderr, flush=True)
    table = _markdown(measures)
    print(table, flush=True)
    if options.output is not None:
        _write(options.output, options.shards, measures, table)
    return _judge(measures)


def _measure(url: str, shards: int, servers: Databases) -> Iterator[tuple[str, float]]:
    db = Database.connect(url)
    migrate.ensure_schema(db)
    planned = _ask("plan", url, str(shards), "1")
    yield "plan", shards / planned["seconds"]
    yield "memory", planned["memory"]
    yield "restore", _timed(lambda: _restore(db, planned["task"]))
    yield "outlook", 1000 * _timed(lambda: leases.outlook(db, planned["task"], instance="me"))
    used = servers.cpu()
    speed, cpu = _claim(url, planned["task"], shards, 100)
    yield "claim", speed
    yield "claim_cpu", shards / (cpu + servers.cpu() - used)
    for name, sites, limit in (("claim_sites", 20, 100), ("claim_few", 1, 8)):
        some = _ask("plan", url, str(shards // 5), str(sites))
        yield name, _claim(url, some["task"], shards // 5, limit)[0]
    db.close()


def _restore(db: Database, task: int) -> None:
    after = 0
    while found := leases.waiting(db, task, after=after, limit=STEP):
        after = found[-1].id


def _timed(work: Any) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def _claim(url: str, task: int, shards: int, limit: int) -> tuple[float, float]:
    """Shards per second that eight processes claim together, and their seconds of CPU."""
    with ExitStack() as stack:
        claimers = [
            stack.enter_context(_start("claim", url, str(task), str(limit), f"w{number}"))
            for number in range(CLAIMERS)
        ]
        for claimer in claimers:
            assert claimer.stdout is not None and claimer.stdout.readline() == "ready\n"
        for claimer in claimers:
            assert claimer.stdin is not None
            claimer.stdin.write("go\n")
            claimer.stdin.flush()
        results = [json.loads(claimer.communicate()[0]) for claimer in claimers]
    claimed = sum(one["claimed"] for one in results)
    assert claimed == shards, f"{claimed} of {shards} shards were claimed"
    begun = min(one["begun"] for one in results if one["claimed"])
    seconds = max(one["ended"] for one in results if one["claimed"]) - begun
    return claimed / seconds, sum(one["cpu"] for one in results)


def _plan_run(url: str, shards: int, sites: int) -> dict[str, Any]:
    """Plan a new run as a crawl does; for a process of its own."""
    db = Database.connect(url)
    name = f"benchmark {time.time()}"
    task = tasks.open_run(db, name=name, spider="s", args="{}", run="auto", actor="benchmark").id
    token = tasks.claim_planning(db, task, worker="w", instance="w", lease=600)
    assert token is not None
    plan = (Shard(f"s{n}", 1, 100, site=f"site{n % sites}") for n in range(shards))
    before = _peak()
    seconds = _timed(lambda: tasks.store_plan(db, task, token, plan, default_site="site"))
    return {"task": task, "seconds": seconds, "memory": _peak() - before}


def _peak() -> float:
    """The most memory this process has had, in MB (of Linux)."""
    status = Path("/proc/self/status").read_text("utf-8")
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def _claim_all(url: str, task: int, limit: int, name: str) -> dict[str, Any]:
    """Claim until nothing is left; for a process of its own."""
    db = Database.connect(url)
    leases.outlook(db, task)
    print("ready", flush=True)
    sys.stdin.readline()
    claimed, begun, ended, used = 0, time.monotonic(), 0.0, time.process_time()
    while True:
        found = leases.claim(db, task, worker=name, instance=name, limit=limit, lease=600)
        if found:
            claimed, ended = claimed + len(found), time.monotonic()
        elif not leases.outlook(db, task).due:  # else the rest is locked by others
            cpu = time.process_time() - used
            return {"claimed": claimed, "begun": begun, "ended": ended, "cpu": cpu}


def _start(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _ask(*arguments: str) -> dict[str, Any]:
    with _start(*arguments) as process:
        answer: dict[str, Any] = json.loads(process.communicate()[0])
    return answer


@contextmanager
def _fresh(servers: Databases, kind: str) -> Iterator[str]:
    with servers.fresh(kind) as url, tempfile.TemporaryDirectory() as directory:
        yield url or f"sqlite:///{directory}/resume.db"


def _markdown(measures: Measures) -> str:
    lines = [("", *measures, "bar on MariaDB")]
    for name, (title, bar) in FIGURES.items():
        lines.append((title, *(_figure(found[name]) for found in measures.values()), bar or ""))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    head, *body = (_line(cells, widths) for cells in lines)
    return "\n".join([head, _line(tuple("-" * width for width in widths), widths), *body]) + "\n"


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
    return f"| {' | '.join(padded)} |"


def _figure(values: Sequence[float]) -> str:
    digits = 0 if median(values) >= 100 else 2
    low, middle, high = (
        f"{value:,.{digits}f}" for value in (min(values), median(values), max(values))
    )
    return f"{middle} ({low} to {high})"


def _write(directory: Path, shards: int, measures: Measures, table: str) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    circumstances = {"cores": os.cpu_count(), "load": os.getloadavg()[0], "shards": shards}
    result = {"measured_on": circumstances, "claimers": CLAIMERS, "figures": measures}
    (directory / "claims.json").write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    (directory / "claims.md").write_text(table, "utf-8")
    if directory == RESULTS:
        PAGE.write_text(_TABLE.sub(lambda _: table, PAGE.read_text("utf-8")), "utf-8")


def _judge(measures: Measures) -> int:
    """1 if a bar is missed on MariaDB, with a line that says which."""
    found = measures.get("mariadb")
    if found is None:
        return 0
    missed = [
        FIGURES[name][0] for name, kept in (
            ("claim", median(found["claim"]) >= 10_000), ("restore", median(found["restore"]) <= 1)
        ) if not kept
    ]  # fmt: skip
    print(f"Bars missed on MariaDB: {', '.join(missed) or 'none'}.")
    return 1 if missed else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="claims.py", description=__doc__)
    add = parser.add_argument
    add("--shards", type=int, help="shards of the run (default 100,000)")
    add("--runs", type=int, help="how often (default 5)")
    add("--database", choices=DATABASES, action="append", help="only this one")
    add("--quick", action="store_true", help="once, a tenth of the shards; writes no result")
    add("--output", type=Path, help="directory for the result (default benchmarks/results)")
    options = parser.parse_args()
    options.shards = options.shards or (10_000 if options.quick else 100_000)
    options.runs = options.runs or (1 if options.quick else 5)
    options.database = options.database or DATABASES
    whole = options.database == DATABASES and not options.quick and options.shards >= 100_000
    options.output = options.output or (RESULTS if whole else None)
    return options


def _child(what: str, url: str, first: str, second: str, *rest: str) -> dict[str, Any]:
    numbers = int(first), int(second)
    return _plan_run(url, *numbers) if what == "plan" else _claim_all(url, *numbers, *rest)


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1] in ("plan", "claim"):
        print(json.dumps(_child(*sys.argv[1:])), flush=True)
    else:
        sys.exit(main())
