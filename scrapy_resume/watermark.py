"""The position of a shard, and how one more page moves it.

``cur_page`` is the watermark: every page from the shard's first page up to it is
committed. Pages committed beyond a hole are kept as *ahead* ranges, held pages as
*failed* ranges. All three are text in the database (``6-12,14``) so that a person
can read them. Pure: a position is a value, a new page makes a new one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

_RANGE = re.compile(r"(\d+)(?:-(\d+))?\Z")


@dataclass(frozen=True, slots=True)
class PageRanges:
    """A sorted set of page numbers, kept as closed, disjoint, non-adjacent ranges."""

    ranges: tuple[tuple[int, int], ...] = ()

    @classmethod
    def parse(cls, text: str | None) -> PageRanges:
        """Read ``"6-12,14"``; an empty text is the empty set. Raises ValueError."""
        pairs = []
        for part in (text or "").split(","):
            if not part.strip():
                continue
            match = _RANGE.match(part.strip())
            if match is None:
                raise ValueError(f"{text!r} is not a list of page ranges such as '6-12,14'")
            low = int(match[1])
            pairs.append((low, int(match[2] or low)))
        return cls.of(pairs)

    @classmethod
    def of(cls, pairs: Iterable[tuple[int, int]]) -> PageRanges:
        """Merge any closed ranges into a set."""
        merged: list[tuple[int, int]] = []
        for low, high in sorted(pairs):
            if low > high:
                raise ValueError(f"the page range {low}-{high} runs backwards")
            if merged and low <= merged[-1][1] + 1:
                merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
            else:
                merged.append((low, high))
        return cls(tuple(merged))

    def __contains__(self, page: int) -> bool:
        return any(low <= page <= high for low, high in self.ranges)

    def __bool__(self) -> bool:
        return bool(self.ranges)

    def __len__(self) -> int:
        return sum(high - low + 1 for low, high in self.ranges)

    def __iter__(self) -> Iterator[int]:
        for low, high in self.ranges:
            yield from range(low, high + 1)

    def __str__(self) -> str:
        return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in self.ranges)

    @property
    def highest(self) -> int | None:
        """The largest page of the set, or None."""
        return self.ranges[-1][1] if self.ranges else None

    def add(self, page: int) -> PageRanges:
        """The set with *page* in it."""
        return PageRanges.of([*self.ranges, (page, page)])

    def remove(self, page: int) -> PageRanges:
        """The set without *page*."""
        pairs: list[tuple[int, int]] = []
        for low, high in self.ranges:
            if low <= page <= high:
                pairs += [(low, page - 1)] if low < page else []
                pairs += [(page + 1, high)] if page < high else []
            else:
                pairs.append((low, high))
        return PageRanges(tuple(pairs))

    def common(self, other: PageRanges) -> PageRanges:
        """The pages that are in both sets."""
        pairs = (
            (max(low, start), min(high, end))
            for low, high in self.ranges
            for start, end in other.ranges
        )
        return PageRanges.of((low, high) for low, high in pairs if low <= high)

    def without(self, other: PageRanges) -> PageRanges:
        """The pages that are in this set alone."""
        left = list(self.ranges)
        for start, end in other.ranges:
            parts = [((low, min(high, start - 1)), (max(low, end + 1), high)) for low, high in left]
            left = [(low, high) for pair in parts for low, high in pair if low <= high]
        return PageRanges.of(left)


@dataclass(frozen=True, slots=True)
class Position:
    """Where a shard stands: the part of its row that page commits change.

    *version* counts page commits. *cursor* is the JSON text that asks for page
    ``cur_page + 1`` (None: the page number alone does). *digests* is opaque text
    of the loop guard.
    """

    version: int
    cur_page: int
    cursor: str | None = None
    ahead: PageRanges = PageRanges()
    failed: PageRanges = PageRanges()
    page_count: int = 0
    written_count: int = 0
    dropped_count: int = 0
    quarantined_count: int = 0
    digests: str | None = None

    def has(self, page: int) -> bool:
        """Is *page* committed already?"""
        return page <= self.cur_page or page in self.ahead

    @property
    def highest(self) -> int:
        """The highest committed page (``cur_page`` if none is ahead)."""
        return self.cur_page if self.ahead.highest is None else self.ahead.highest

    def with_page(
        self,
        page: int,
        *,
        written: int = 0,
        dropped: int = 0,
        quarantined: int = 0,
        cursor: str | None = None,
        digests: str | None = None,
    ) -> Position:
        """The position once *page* is committed too; itself if it already was.

        The watermark moves over *page* and over everything ahead that now touches
        it, and never over a hole. *cursor* and *digests* of None keep the old ones.
        """
        if self.has(page):
            return self
        ahead = self.ahead.add(page)
        cur_page = self.cur_page
        if ahead.ranges[0][0] == cur_page + 1:
            cur_page = ahead.ranges[0][1]
            ahead = PageRanges(ahead.ranges[1:])
        return replace(
            self,
            cur_page=cur_page,
            ahead=ahead,
            failed=self.failed.remove(page),
            cursor=self.cursor if cursor is None else cursor,
            digests=self.digests if digests is None else digests,
            page_count=self.page_count + 1,
            written_count=self.written_count + written,
            dropped_count=self.dropped_count + dropped,
            quarantined_count=self.quarantined_count + quarantined,
        )

    def ending_at(self, page: int) -> Position:
        """The position of a list that turned out to end with *page*: later pages are none."""
        past = [number for number in self.ahead if number > page]
        ahead = self.ahead
        for number in past:
            ahead = ahead.remove(number)
        beyond = max(0, self.cur_page - page)
        return replace(
            self,
            cur_page=self.cur_page - beyond,
            ahead=ahead,
            failed=PageRanges.of(
                (low, min(high, page)) for low, high in self.failed.ranges if low <= page
            ),
            page_count=self.page_count - len(past) - beyond,
        )

    def with_failed(self, page: int) -> Position:
        """The position with *page* on record as held; itself if it is committed."""
        return self if self.has(page) else replace(self, failed=self.failed.add(page))

    def committed(self, first_page: int) -> PageRanges:
        """The pages that are committed, of a shard that begins with *first_page*."""
        begun = [(first_page, self.cur_page)] if self.cur_page >= first_page else []
        return PageRanges.of([*begun, *self.ahead.ranges])

    def put_back(self, pages: PageRanges, first_page: int) -> Position:
        """The position once *pages* are to be read again: the watermark goes back before the
        first of them, and what was read behind it is ahead of it then."""
        read = self.committed(first_page)
        left = read.without(pages)
        whole = bool(left) and left.ranges[0][0] == first_page
        return replace(
            self,
            cur_page=left.ranges[0][1] if whole else first_page - 1,
            ahead=PageRanges(left.ranges[1:] if whole else left.ranges),
            page_count=self.page_count - (len(read) - len(left)),
        )

    def missing(self, last_page: int) -> Iterator[int]:
        """The pages up to *last_page* that are not committed, in order."""
        return (page for page in range(self.cur_page + 1, last_page + 1) if page not in self.ahead)
