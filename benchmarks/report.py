"""Measures as ratios: a table for people, JSON for machines."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from statistics import median
from typing import Any

from benchmarks.contenders import Measure

PACKAGES = ("scrapy", "twisted", "sqlalchemy", "pymysql")
AGAINST = {"plain": "as it comes", "tuned": "equally tuned"}
TITLES = ("shape", "items go to", "plain Scrapy", "pages/s", "pages per CPU s", "memory", "runs")


@dataclass(frozen=True)
class Ratio:
    """How a contender does against plain Scrapy, run by run; above 1 is better."""

    values: tuple[float, ...]

    def __str__(self) -> str:
        low, high = min(self.values), max(self.values)
        return f"{self.median:.2f} ({low:.2f} to {high:.2f})"

    @property
    def median(self) -> float:
        return median(self.values)

    def rounded(self) -> list[float]:
        """The ratio of every run, as precise as it deserves."""
        return [round(value, 3) for value in self.values]


@dataclass(frozen=True)
class Comparison:
    """One line of the result: *contender* against *opponent* on one shape.

    Each measure is set against that of the same round, when the machine was as busy.
    """

    shape: str
    contender: str
    opponent: str
    measures: Sequence[Measure]
    opponents: Sequence[Measure]

    def ratio(self, quantity: str) -> Ratio:
        """The opponent's *quantity* divided by ours: above 1 we need less of it."""
        pairs = zip(self.measures, self.opponents, strict=True)
        return Ratio(tuple(getattr(his, quantity) / getattr(ours, quantity) for ours, his in pairs))

    @property
    def speed(self) -> Ratio:
        return self.ratio("seconds")

    @property
    def memory(self) -> float:
        """Our peak of memory in units of the opponent's."""
        return 1 / self.ratio("rss").median

    def cells(self) -> tuple[str, ...]:
        """The line as text, in the order of :data:`TITLES`."""
        against, memory = AGAINST[self.opponent], f"{self.memory:.2f}"
        numbers = (str(self.speed), str(self.ratio("cpu")), memory, str(len(self.measures)))
        return (self.shape, self.contender, against, *numbers)

    def as_json(self) -> dict[str, Any]:
        """The line as JSON: the ratio of every run."""
        return {
            "shape": self.shape,
            "database": self.contender,
            "against": self.opponent,
            "pages_per_second": self.speed.rounded(),
            "pages_per_cpu_second": self.ratio("cpu").rounded(),
            "memory": round(self.memory, 3),
        }


def markdown(comparisons: Iterable[Comparison]) -> str:
    """The comparisons as a Markdown table, aligned for reading as it is."""
    lines = [TITLES, *(comparison.cells() for comparison in comparisons)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    head, *body = (_line(cells, widths) for cells in lines)
    rule = _line(tuple("-" * width for width in widths), widths)
    return "\n".join([head, rule, *body]) + "\n"


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
    return f"| {' | '.join(padded)} |"


def circumstances() -> dict[str, Any]:
    """On what the ratios were measured."""
    return {
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        **{name: version(name) for name in PACKAGES},
    }
