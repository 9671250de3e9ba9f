"""Ledgers with one safeguard taken out, to show that the table needs each of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scrapy import Request
from scrapy.core.engine import ExecutionEngine

from scrapy_resume.ledger import Ledger


class _Without(Ledger):
    hook = ""

    def _hooks(
        self, engine: ExecutionEngine
    ) -> list[tuple[Any, str, tuple[str, ...], Callable[..., Any]]]:
        return [hook for hook in super()._hooks(engine) if hook[1] != self.hook]


class NoCrawl(_Without):
    """H3: nothing tells of ignored requests, and no retry finishes what it replaces."""

    hook = "crawl"


class NoFetch(_Without):
    """H4: nobody knows which request became which."""

    hook = "fetch"


class NoEnqueueScrape(_Without):
    """H5: nobody sees the engine be done with a request."""

    hook = "enqueue_scrape"


class NoCallSpider(_Without):
    """H6: nobody sees the callbacks."""

    hook = "call_spider_async"


class NoStartItem(_Without):
    """H7: items have no page."""

    hook = "start_itemproc_async"


class NoProcessItem(_Without):
    """H7, second half: nobody sees what the pipelines made of an item."""

    hook = "process_item_async"


class NoContext(Ledger):
    """CURRENT: a request crawled by code has no page."""

    def _current(self, request: Request) -> None:
        return None


class NoCatch(Ledger):
    """An exception in the scheduler goes on through the engine."""

    raising = False

    def _crawl(self, crawl: Callable[[Request], None], request: Request) -> None:
        self.raising = True
        try:
            super()._crawl(crawl, request)
        finally:
            self.raising = False

    def _stops(self, exc: BaseException) -> bool:
        return not self.raising and super()._stops(exc)


class NoTags(Ledger):
    """H9 and the tags of H6: what Twisted's cooperators need."""

    def install(self, engine: ExecutionEngine) -> None:
        super().install(engine)
        self.needs_tags = False


class NoSpiderError(Ledger):
    """The signal spider_error is not listened to."""

    def _spider_error(self, failure: Any, response: Any) -> None:
        pass


class NoExhausted(Ledger):
    """An output that was not read to its end goes unnoticed."""

    def _scraped(self, result: Any, visit: Any) -> Any:
        visit.exhausted = visit.exhausted or visit.called
        return super()._scraped(result, visit)


MUTANTS: dict[str, type[Ledger]] = {"none": Ledger}
MUTANTS |= {
    cls.__name__: cls
    for cls in (
        NoCrawl, NoFetch, NoEnqueueScrape, NoCallSpider, NoStartItem, NoProcessItem, NoContext,
        NoCatch, NoTags, NoSpiderError, NoExhausted,
    )
}  # fmt: skip
