"""The quiet formatter: no message that the level drops anyway."""

from __future__ import annotations

import pytest
import scrapy
from scrapy.http import Response
from scrapy.utils.test import get_crawler

from scrapy_resume.logformatter import QuietLogFormatter


@pytest.mark.parametrize(
    ("level", "made"), [("DEBUG", True), (10, True), ("INFO", False), ("ERROR", False)]
)
def test_messages_are_made_only_where_they_are_seen(level: str | int, made: bool) -> None:
    formatter = QuietLogFormatter.from_crawler(get_crawler(settings_dict={"LOG_LEVEL": level}))
    request = scrapy.Request("https://example.com")
    response = Response(request.url, request=request)
    assert (formatter.scraped({"key": 1}, response, None) is not None) is made
    assert (formatter.crawled(request, response, None) is not None) is made  # type: ignore[arg-type]
