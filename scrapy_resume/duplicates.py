"""Which requests are duplicates: judged against the own page and committed pages only.

A filter that remembers more hides, after a failed page or a crash, exactly the
requests that were lost. So a request is never compared with another page that is
still in flight, and pages count only once they are committed. Pages that other workers
of the run committed count too if they tell us (``RESUME_SHARED_FINGERPRINTS``).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence

from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.dupefilters import BaseDupeFilter
from scrapy.utils.misc import load_object

from scrapy_resume.openpage import OpenPage
from scrapy_resume.visits import Visit


class Duplicates:
    """The request fingerprints of committed pages, at most *limit*, oldest out first.

    *share*, if set, is told those of our own pages; what other workers share is learnt.
    """

    share: Callable[[Sequence[bytes]], None] | None = None

    def __init__(self, crawler: Crawler, limit: int) -> None:
        self._fingerprint = crawler.request_fingerprinter.fingerprint
        self._filtering = load_object(crawler.settings["DUPEFILTER_CLASS"]) is not BaseDupeFilter
        self._limit = limit
        self._stats = crawler.stats
        self._committed: OrderedDict[bytes, bool] = OrderedDict()  # is it another worker's?

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
        learnt = self._committed.get(fingerprint)
        if learnt is None:
            return False
        self._committed.move_to_end(fingerprint)
        if learnt and self._stats is not None:
            self._stats.inc_value("resume/duplicates/shared")
        return True

    def remember(self, fingerprints: Sequence[bytes]) -> None:
        """Count what a page fetched as committed."""
        for fingerprint in fingerprints:
            self._committed[fingerprint] = False
            self._committed.move_to_end(fingerprint)
        self._forget_oldest()
        if self.share is not None and fingerprints:
            self.share(fingerprints)

    def learn(self, fingerprints: Sequence[bytes]) -> None:
        """Count as committed what other workers of the run say they committed."""
        for fingerprint in fingerprints:
            self._committed.setdefault(fingerprint, True)
        self._forget_oldest()

    def forget(self) -> None:
        """Pages were put back by an operator: what was read of them counts as new."""
        self._committed.clear()

    def _forget_oldest(self) -> None:
        while len(self._committed) > self._limit:
            self._committed.popitem(last=False)
