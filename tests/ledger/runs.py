"""The crawls of the path table, as subprocesses: one for each mode and Scrapy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from functools import cache
from typing import IO, Any

from tests.ledger.oldest import ROOT, oldest_python

MODES = ("asyncio", "epoll", "reactorless")
# Each mode and each Scrapy; nothing in the ledger knows of both, so the rest is a stress test.
RUNS = (*((mode, "newest") for mode in MODES), ("asyncio", "oldest"))
RARE_RUNS = (("epoll", "oldest"), ("reactorless", "oldest"))
ENDS_WITHIN = 180  # seconds

Outcomes = dict[str, dict[str, Any]]


class Run:
    """A process that walks paths; *names* of none are all."""

    def __init__(self, mode: str, scrapy: str, *names: str, mutant: str = "none") -> None:
        python = sys.executable if scrapy == "newest" else oldest_python()
        self._errors: IO[str] = tempfile.TemporaryFile("w+")  # noqa: SIM115 (read at the end)
        self._process = subprocess.Popen(
            [python, "-m", "tests.ledger.crawls", mode, *names],
            cwd=ROOT,
            env={**os.environ, "LEDGER_MUTANT": mutant, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    def outcomes(self) -> Outcomes:
        """What became of each path, once the process has ended."""
        try:
            output, _ = self._process.communicate(timeout=ENDS_WITHIN)
        except subprocess.TimeoutExpired:
            self._process.kill()
            output, _ = self._process.communicate()
        lines = map(json.loads, output.splitlines())
        return {line["name"]: line for line in lines}

    def errors(self) -> str:
        """The end of what the process wrote to its standard error."""
        self._errors.seek(0)
        return self._errors.read()[-4000:]


@cache
def started(mode: str, scrapy: str) -> Run:
    """The run of the whole table."""
    return Run(mode, scrapy)


@cache
def finished(mode: str, scrapy: str) -> tuple[Outcomes, str]:
    """The outcomes of the whole table, and what was written to standard error.

    The next run starts meanwhile, for the second core.
    """
    run = started(mode, scrapy)
    runs = RARE_RUNS if (mode, scrapy) in RARE_RUNS else RUNS
    following = runs[runs.index((mode, scrapy)) + 1 :]
    if following:
        started(*following[0])
    return run.outcomes(), run.errors()
