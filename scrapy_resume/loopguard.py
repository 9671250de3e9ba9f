"""What a shard remembers of its list to tell an end from a loop or a hole.

It keeps the rows the site says it has, and the digests of the first, the previous and
the latest power-of-two page (Brent's way of finding a cycle: any loop meets the
power-of-two page after at most about three times its length). They travel with the
checkpoint, so that the guard holds across restarts. Pure.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, replace


def digest(parts: Iterable[str]) -> str:
    """A short digest of *parts* (their order does not matter); "" when there are none."""
    ordered = sorted(parts)
    if not ordered:
        return ""
    return hashlib.blake2b("\x00".join(ordered).encode(), digest_size=12).hexdigest()


@dataclass(frozen=True, slots=True)
class LoopGuard:
    """Digests seen so far; *count* is how many. An empty digest is never compared.

    *stated_total* is the number of rows the site says the list has, if it says so;
    *rows* is how many were read so far.
    """

    count: int = 0
    first: str = ""
    previous: str = ""
    power: str = ""
    stated_total: int | None = None
    rows: int = 0

    @classmethod
    def load(cls, text: str | None) -> LoopGuard:
        """Read what :meth:`dump` wrote; None is a fresh guard."""
        return cls(*json.loads(text)) if text else cls()

    def dump(self) -> str:
        """The guard as JSON text."""
        return json.dumps(
            [self.count, self.first, self.previous, self.power, self.stated_total, self.rows]
        )

    def seen(self, value: str) -> bool:
        """Is *value* the first, the previous or the power-of-two page again?"""
        return bool(value) and value in (self.first, self.previous, self.power)

    def repeats_neighbour(self, value: str) -> bool:
        """Is *value* the first or the previous page again?"""
        return bool(value) and value in (self.first, self.previous)

    def push(self, value: str) -> LoopGuard:
        """The guard after one more page."""
        count = self.count + 1
        return replace(
            self,
            count=count,
            first=self.first if self.count else value,
            previous=value,
            power=value if count & (count - 1) == 0 else self.power,
        )
