"""What a transaction adds to the stats, be it of pages or a batch of items of no page."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from scrapy_resume.store.checkpoints import CommitResult


def count_rows(inc_stat: Callable[..., None], result: CommitResult) -> None:
    """Add what became of rows, and the failures before it, to the stats."""
    inc_stat("items/written", result.written)
    inc_stat("items/repeated", result.repeated)
    inc_stat("items/fields_ignored", result.ignored)
    inc_stat("items/coerced", result.coerced)
    inc_stat("items/quarantined", len(result.rejected))
    count_repeats(inc_stat, result.repeats)


def count_repeats(inc_stat: Callable[..., None], repeats: Mapping[str, int]) -> None:
    """Add transactions that failed and were repeated, counted by cause, to the stats."""
    if repeats:
        inc_stat("commit/retries", sum(repeats.values()))
        inc_stat("commit/deadlocks", repeats.get("deadlocks", 0))
        inc_stat("commit/lock_waits", repeats.get("lock_waits", 0))
        inc_stat("commit/reconnects", repeats.get("reconnects", 0))
