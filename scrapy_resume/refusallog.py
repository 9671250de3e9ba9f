"""What is logged of refused rows: the first of each kind, and at the end how many there were."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable
from threading import Lock

from scrapy_resume.store.quarantine import QuarantineRecord

logger = logging.getLogger(__name__)

_MOST = 50  # kinds; an unknown field is one, so their number has no bound
_REST = ("further tables and columns", "")


class RefusalLog:
    """Says once for each table, column and error class that rows are refused.

    Values are not said, nor the text of a trigger, which may hold some. Any thread may call.
    """

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()
        self._lock = Lock()

    def rows(self, records: Iterable[QuarantineRecord]) -> None:
        """These *records* of rows were written; those of items were told before."""
        for one in records:
            if one.kind == "row":
                self.tell(one.item_table, one.column_name, one.error_class, one.error)

    def tell(self, table: str | None, column: str | None, error_class: str, text: str) -> None:
        """A row of *table* was refused."""
        where = f"table {table}" + (f", column {column}" if column else "")
        kind = (where, error_class)
        with self._lock:
            if kind not in self._counts and len(self._counts) >= _MOST:
                kind = _REST
            self._counts[kind] += 1
            first = self._counts[kind] == 1
        if first:
            said = [*kind, text] if error_class != "Trigger" else [*kind]
            why = "" if kind is _REST else f": {': '.join(said[1:])}"
            logger.warning(
                "%s: rows are refused%s; said once", kind[0], why, extra={"action": "rows_refused"}
            )

    def close(self) -> None:
        """Say how many there were, of what came more than once; harmless when repeated."""
        with self._lock:
            counts, self._counts = self._counts, Counter()
        for (where, error_class), count in counts.items():
            if count > 1:
                logger.warning(
                    "%s: %d rows were refused%s", where, count,
                    f": {error_class}" if error_class else "",
                    extra={"action": "rows_refused_count"},
                )  # fmt: skip
