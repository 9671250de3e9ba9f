"""Ids that run out: an upsert uses one up even where the row is there already.

Once an AUTO_INCREMENT column has reached its end, the next row is given the last id
again, and an upsert that MySQL matches by this id overwrites an unrelated row.
"""

from __future__ import annotations

from scrapy_resume.store.catalog import ColumnFacts, TableFacts

_BITS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "integer": 32}
_ROOMY = 32  # bits; such ids last for a while
_TIGHT = 0.5  # of the ids used up


def small_id(facts: TableFacts) -> ColumnFacts | None:
    """The column that counts up and has less than 64 bits, if there is one; on MySQL only."""
    if facts.next_id is None:
        return None
    counted = (column for column in facts.columns.values() if column.counted)
    return next((column for column in counted if column.kind in _BITS), None)


def last_id(column: ColumnFacts) -> int:
    """The highest value that the whole-number *column* can hold."""
    bits = _BITS[column.kind]
    unsigned = "unsigned" in column.type.lower()
    return int(2**bits if unsigned else 2 ** (bits - 1)) - 1


def is_tight(facts: TableFacts) -> bool:
    """Whether ids may run out during a crawl, so that upserts must not waste them."""
    column = small_id(facts)
    if column is None:
        return False
    used = (facts.next_id or 0) / last_id(column)
    return _BITS[column.kind] < _ROOMY or used >= _TIGHT
