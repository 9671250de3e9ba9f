"""What waits for its commit, in order, and how much of it goes at once."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from scrapy_resume.submission import Submission

Group = list[Submission]


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """When a group commit goes; *delay* in seconds."""

    pages: int
    items: int
    delay: float


class CommitQueue:
    """Submissions that wait. *places* counts their pages that still keep a place among those in
    flight, since no journal holds them."""

    def __init__(self, limits: GroupLimits) -> None:
        self.limits = limits
        self.places = 0
        self._waiting: deque[Submission] = deque()
        self._pages = self._items = 0
        self._left: set[int] = set()  # shards with pages that are left in the journal

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, one: Submission) -> None:
        """*one* may be committed from now on."""
        self._waiting.append(one)
        self._count(one, 1)

    def is_full(self, more: int) -> bool:
        """Whether a group is together, with *more* pages that wait elsewhere."""
        return self._pages + more >= self.limits.pages or self._items >= self.limits.items

    def take(self, unkept: deque[Submission]) -> Group:
        """The next group; *unkept* come after all that wait here."""
        group: Group = []
        pages = items = 0
        while (self._waiting or unkept) and pages < self.limits.pages and items < self.limits.items:
            if self._waiting:
                one = self._waiting.popleft()
                self._count(one, -1)
            else:
                one = unkept.popleft()
            pages += one.pages
            items += one.items
            group.append(one)
        return group

    def clear(self) -> Group:
        """Everything that waits; nothing does any more."""
        everything = list(self._waiting)
        self._waiting.clear()
        self.places = self._pages = self._items = 0
        return everything

    def leave(self) -> Group:
        """What is left to the next start, once there is no time to commit all of it.

        Pages that the journal holds, and what was said of their shards after them.
        """
        everything = self.clear()
        self._left |= {one.shard_id for one in everything if one.kept and one.page is not None}
        for one in everything:
            if not self.leaves(one):
                self.add(one)
        return [one for one in everything if self.leaves(one)]

    def leaves(self, one: Submission) -> bool:
        """Whether *one* has to be left, since pages of its shard are."""
        return one.shard_id in self._left and (one.kept or one.page is None)

    def _count(self, one: Submission, sign: int) -> None:
        self._pages += sign * one.pages
        self._items += sign * one.items
        self.places += 0 if one.kept else sign * one.pages
