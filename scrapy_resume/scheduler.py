"""ShardScheduler: the user's own scheduler, with every request counted to its page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy.core.scheduler import BaseScheduler
from scrapy.utils.misc import build_from_crawler, load_object

from scrapy_resume.session import Session

if TYPE_CHECKING:
    from scrapy import Request, Spider
    from scrapy.crawler import Crawler
    from twisted.internet.defer import Deferred

DEFAULT_INNER = "scrapy.core.scheduler.Scheduler"


class ShardScheduler(BaseScheduler):
    """Wraps the inner scheduler (``RESUME_INNER_SCHEDULER``, default Scrapy's own).

    It tells the ledger of every request that enters and leaves the queue. Which list
    pages to ask for is decided by the claim loop, which yields them as start requests.
    """

    def __init__(self, inner: BaseScheduler, session: Session) -> None:
        self.inner = inner
        self._session = session

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> ShardScheduler:
        """Build the inner scheduler and share the crawl's session."""
        session = Session.of(crawler, "ShardScheduler")
        if session.mistake is not None:  # nothing will be crawled: open no queue, no filter
            return cls(_NoRequests(), session)
        inner_cls = load_object(
            session.settings.inner_scheduler
            or crawler.settings.get("RESUME_INNER_SCHEDULER")
            or DEFAULT_INNER
        )
        if cls in inner_cls.__mro__:
            inner_cls = load_object(DEFAULT_INNER)
        return cls(build_from_crawler(inner_cls, crawler), session)

    def open(self, spider: Spider) -> Deferred[None] | None:
        """Open the inner scheduler."""
        return self.inner.open(spider)

    def close(self, reason: str) -> Deferred[None] | None:
        """Close the inner scheduler."""
        return self.inner.close(reason)

    def has_pending_requests(self) -> bool:
        """Whether the inner scheduler has requests."""
        return self.inner.has_pending_requests()

    def __len__(self) -> int:
        return len(self.inner)  # type: ignore[arg-type]

    def enqueue_request(self, request: Request) -> bool:
        """Queue *request* and count it to its page; never raises for a page's request."""
        ledger = self._session.ledger
        if ledger is None:
            return self.inner.enqueue_request(request)
        return ledger.enqueue(request, self.inner.enqueue_request)

    def next_request(self) -> Request | None:
        """The inner scheduler's next request, now being worked on for its page."""
        request = self.inner.next_request()
        ledger = self._session.ledger
        if ledger is not None:
            while not ledger.dequeued(request):  # its page was given up meanwhile
                request = self.inner.next_request()
        return request


class _NoRequests(BaseScheduler):
    """The inner scheduler of a crawl that is refused."""

    def has_pending_requests(self) -> bool:
        return False

    def enqueue_request(self, request: Request) -> bool:
        return False

    def next_request(self) -> Request | None:
        return None
