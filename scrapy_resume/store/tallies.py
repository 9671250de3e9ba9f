"""How many rows of pages were stored, repeated and refused: a key counts once per page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from scrapy_resume.store.items import Written
from scrapy_resume.store.items.table import Row
from scrapy_resume.store.records import PageRecord


@dataclass(frozen=True, slots=True)
class Tally:
    """*written* keys and *repeated* rows of all pages.

    *amends* holds, for shards whose pages came out otherwise than by their rows alone, how
    many keys are not stored and how many rows were refused.
    """

    written: int
    repeated: int
    amends: dict[int, tuple[int, int]] = field(default_factory=dict)


def tally(pages: Sequence[PageRecord], rows: Sequence[Row], written: Written) -> Tally:
    """Count *rows*, which are those of *pages* in their order."""
    planned = sum(len({(row.table, row.key) for row in page.rows}) for page in pages)
    if not written.rejected and not written.respelt:
        return Tally(planned, len(rows) - planned)
    bad = {one.index for one in written.rejected}
    at, stored, amends = 0, 0, dict[int, tuple[int, int]]()
    for page in pages:
        places = range(at, at + len(page.rows))
        at += len(page.rows)
        good = [place for place in places if place not in bad]
        keys = {(rows[n].table, written.respelt.get(n, rows[n].key)) for n in good}
        stored += len(keys)
        missing = len({(row.table, row.key) for row in page.rows}) - len(keys)
        before = amends.get(page.shard_id, (0, 0))
        refused = len(places) - len(good)
        amends[page.shard_id] = (before[0] + missing, before[1] + refused)
    return Tally(stored, len(rows) - len(bad) - stored, amends)
