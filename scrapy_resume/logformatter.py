"""QuietLogFormatter: makes no message that the log level drops anyway.

Scrapy builds a log record for every item and every response before its handler looks
at ``LOG_LEVEL``; on pages with many items that is a noticeable part of the time.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from scrapy.logformatter import LogFormatter

if TYPE_CHECKING:
    from scrapy.crawler import Crawler
    from scrapy.logformatter import LogFormatterResult
    from typing_extensions import Self


class QuietLogFormatter(LogFormatter):
    """Scrapy's own formatter, silent about items and responses unless DEBUG is logged."""

    def __init__(self, silent: bool) -> None:
        self.silent = silent

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Look at ``LOG_LEVEL``."""
        level = logging.getLevelName(crawler.settings["LOG_LEVEL"])
        return cls(isinstance(level, int) and level > logging.DEBUG)

    def scraped(self, *args: Any, **kwargs: Any) -> LogFormatterResult | None:  # type: ignore[override]
        """The DEBUG message of an item, or None if nobody would see it."""
        return None if self.silent else super().scraped(*args, **kwargs)

    def crawled(self, *args: Any, **kwargs: Any) -> LogFormatterResult | None:  # type: ignore[override]
        """The DEBUG message of a response, or None if nobody would see it."""
        return None if self.silent else super().crawled(*args, **kwargs)
