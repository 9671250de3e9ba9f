"""RefusedItem: an item that no row can be made of, by its own fault."""

from __future__ import annotations

from scrapy.exceptions import DropItem


class RefusedItem(DropItem, ValueError):
    """Raised by the pipeline for an item that goes to quarantine.

    Scrapy logs other exceptions of a pipeline with a traceback for each item; so this is
    a DropItem, which it mentions at DEBUG. The pipeline says once what is wrong.
    *error_class* and *reason* are those of its record, *column* and *value* what is at fault.
    """

    def __init__(
        self,
        error_class: str,
        reason: str,
        *,
        table: str,
        column: str | None = None,
        value: str | None = None,
    ) -> None:
        field = "" if column is None or error_class == "NoKey" else f"field {column!r}: "
        super().__init__(f"{field}{reason}", log_level="DEBUG")
        self.error_class, self.reason = error_class, reason
        self.table, self.column, self.value = table, column, value
