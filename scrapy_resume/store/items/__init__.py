"""Writing items: rows of many pages, into the default item table and the users' own.

This is what the rest of the package sees of it. Inside: what an item table is (``table``),
what the database says of it (``tablefacts``, ``catalog``), whether it is fit (``inspection``
and the ``findings``), what each column takes (``columnrules``), and how rows are sent (``batch``,
``judging``, ``sending``, ``statements``).
"""

from __future__ import annotations

from scrapy_resume.store.items.inspection import Finding, inspect, require
from scrapy_resume.store.items.table import ItemTable, Rejection, Row, default_row
from scrapy_resume.store.items.writer import ItemWriter, Written

__all__ = [
    "Finding",
    "ItemTable",
    "ItemWriter",
    "Rejection",
    "Row",
    "Written",
    "default_row",
    "inspect",
    "require",
]
