"""What a process takes: lanes, priorities and sites, as its settings declare.

Pure, like the rules of pages: settings read it, the store and the queue ask it.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import NamedTuple

FRESH, RESUMED = 0, 1
LANES = {"fresh": FRESH, "resumed": RESUMED}
"""The lanes by name. Fresh work comes first, so catching up never overtakes the day's work."""

_RANGE = re.compile(r"\s*(-?\d{1,9})\s*(?:-\s*(-?\d{1,9}))?\s*")


class Waiting(NamedTuple):
    """A shard that may be claimed now, and what an intake asks about it."""

    id: int
    site: str
    lane: int
    priority: int


@dataclass(frozen=True, slots=True)
class Intake:
    """What a process takes; an empty part takes everything.

    *lanes* are numbers of :data:`LANES`, *priorities* ranges with both ends in them.
    """

    lanes: frozenset[int] = frozenset()
    priorities: tuple[tuple[int, int], ...] = ()
    sites: frozenset[str] = frozenset()

    @classmethod
    def parse(cls, lanes: str = "", priorities: str = "", sites: Collection[str] = ()) -> Intake:
        """From text as settings hold it: ``"fresh,resumed"``, ``"0-2,5"`` and names of sites.

        Raises ValueError, whose text says what is allowed.
        """
        return cls(_lanes(lanes), _ranges(priorities), frozenset(sites))

    @property
    def everything(self) -> bool:
        """Is nothing left to others?"""
        return not (self.lanes or self.priorities or self.sites)

    def at(self, site: str) -> Intake:
        """The same, of one site."""
        return replace(self, sites=frozenset({site}))

    def takes(self, lane: int, priority: int, site: str) -> bool:
        """May a shard of this lane, priority and site be taken?"""
        if self.lanes and lane not in self.lanes:
            return False
        if self.sites and site not in self.sites:
            return False
        return not self.priorities or any(low <= priority <= high for low, high in self.priorities)


def _lanes(text: str) -> frozenset[int]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in LANES]
    if unknown:
        raise ValueError(f"{unknown[0]!r} is no lane; there are: {', '.join(LANES)}")
    lanes = frozenset(LANES[name] for name in names)
    return frozenset() if len(lanes) == len(LANES) else lanes


def _ranges(text: str) -> tuple[tuple[int, int], ...]:
    """Sorted ranges that neither overlap nor touch."""
    found = sorted(_range(part) for part in text.split(",") if part.strip())
    merged: list[tuple[int, int]] = []
    for low, high in found:
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return tuple(merged)


def _range(part: str) -> tuple[int, int]:
    match = _RANGE.fullmatch(part)
    low, high = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
    if low > high:
        raise ValueError(f"{part.strip()!r} is no range of priorities such as 3 or 0-2")
    return low, high
