"""Ids that run out: an upsert uses one up even where the row is there already.

Once an AUTO_INCREMENT column has reached its end, the next row is given the last id
again, and an upsert that MySQL matches by this id overwrites an unrelated row.
"""

from __future__ import annotations

from scrapy_resume.store.items.columntypes import column_type
from scrapy_resume.store.items.tablefacts import ColumnFacts, TableFacts

_WHOLE = 2**63 - 1  # the last id of 64 bits
_ROOMY = 2**31 - 1  # that of 32 bits; such ids last for a while
_TIGHT = 0.5  # of the ids used up


def small_id(facts: TableFacts) -> ColumnFacts | None:
    """The column that counts up and has less than 64 bits, if there is one; on MySQL only."""
    if facts.next_id is None:
        return None
    counted = (column for column in facts.columns.values() if column.counted)
    return next((column for column in counted if 0 < last_id(column) < _WHOLE), None)


def last_id(column: ColumnFacts) -> int:
    """The highest value that *column* can hold; 0 if that is no whole number."""
    declared = column_type(column.type, "mysql")
    return int(declared.high or 0) if declared.kind == "integer" else 0


def is_tight(facts: TableFacts) -> bool:
    """Whether ids may run out during a crawl, so that upserts must not waste them."""
    column = small_id(facts)
    if column is None:
        return False
    last = last_id(column)
    return last < _ROOMY or (facts.next_id or 0) / last >= _TIGHT
