"""What a check reports."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Violation:
    """A promise that the database does not keep: *invariant* is "I1" to "I7"."""

    invariant: str
    text: str
    task: int | None = None
    shard: int | None = None
    page: int | None = None

    def __str__(self) -> str:
        names = (("task", self.task), ("shard", self.shard), ("page", self.page))
        where = ", ".join(f"{name} {number}" for name, number in names if number is not None)
        return f"{self.invariant}: {self.text}" + (f" ({where})" if where else "")
