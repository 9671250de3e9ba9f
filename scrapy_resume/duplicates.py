"""Which requests are duplicates: judged against the own page and committed pages only.

A filter that remembers more hides, after a failed page or a crash, exactly the
requests that were lost. So a request is never compared with another page that is
still in flight, and pages count only once they are committed.
"""

from __future__ import annotations

from collections import OrderedDict

from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.dupefilters import BaseDupeFilter
from scrapy.utils.misc import load_object

from scrapy_resume.openpage import OpenPage
from scrapy_resume.visits import Visit


class Duplicates:
    """The request fingerprints of committed pages, at most *limit*, oldest out first."""

    def __init__(self, crawler: Crawler, limit: int) -> None:
        self._fingerprint = crawler.request_fingerprinter.fingerprint
        self._filtering = load_object(crawler.settings["DUPEFILTER_CLASS"]) is not BaseDupeFilter
        self._limit = limit
        self._committed: OrderedDict[bytes, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._committed)

    def drops(self, page: OpenPage, request: Request, replaced: Visit | None) -> bool:
        """Is *request* of *page* a duplicate? Remembers it for the page if not.

        *replaced* is what it retries or was redirected from; a retry is no duplicate of it.
        """
        if request.dont_filter or not self._filtering:
            return False
        if not page.list_fingerprint and page.list_request is not None:
            page.list_fingerprint = self._fingerprint(page.list_request)
        print_ = self._fingerprint(request)
        if print_ in page.seen or print_ == page.list_fingerprint:
            return replaced is None or self._fingerprint(replaced.request) != print_
        page.seen.add(print_)
        return page.page.attempt == 1 and not page.repair and self._is_committed(print_)

    def _is_committed(self, fingerprint: bytes) -> bool:
        if fingerprint not in self._committed:
            return False
        self._committed.move_to_end(fingerprint)
        return True

    def remember(self, page: OpenPage) -> None:
        """Count what *page* fetched as committed."""
        for fingerprint in filter(None, (page.list_fingerprint, *page.seen)):
            self._committed[fingerprint] = None
            self._committed.move_to_end(fingerprint)
        while len(self._committed) > self._limit:
            self._committed.popitem(last=False)
