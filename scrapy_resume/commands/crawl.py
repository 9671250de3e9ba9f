"""One crawl from a verb: with the process class that ``scrapy crawl`` would use."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from scrapy.crawler import AsyncCrawlerProcess, CrawlerProcess
from scrapy.exceptions import UsageError
from scrapy.utils.project import inside_project

from scrapy_resume.exceptions import ConfigurationError, ResumeError

if TYPE_CHECKING:
    import argparse

    from scrapy import Spider
    from scrapy.crawler import Crawler
    from scrapy.settings import Settings

logger = logging.getLogger(__name__)

_ASYNCIO_REACTOR = "twisted.internet.asyncioreactor.AsyncioSelectorReactor"


def crawl(
    settings: Settings,
    opts: argparse.Namespace,
    prepare: Callable[[type[Spider]], type[Spider]] = lambda spidercls: spidercls,
    watch: Callable[[Crawler], None] = lambda crawler: None,
) -> Crawler:
    """Crawl with ``opts.spider`` and its arguments to the end; returns the crawler.

    *prepare* may replace the spider's class, *watch* may connect signals. Raises
    UsageError outside of a project, ResumeError if the crawl could not begin for a
    reason that one sentence says; any other error is logged.
    """
    if not inside_project():
        raise UsageError(
            f"{opts.verb} needs a spider and so a Scrapy project: there is no scrapy.cfg here"
            " or above",
            print_help=False,
        )
    process = _process(settings)
    crawler = process.create_crawler(prepare(_load(process, opts.spider)))
    watch(crawler)
    errors: list[BaseException] = []
    _collect(process.crawl(crawler, **opts.spargs), errors)
    process.start()
    for error in errors:
        if isinstance(error, ResumeError):
            raise error
        logger.error("The crawl could not begin", exc_info=error, extra={"action": "not_begun"})
    return crawler


def stat(crawler: Crawler, name: str) -> Any:
    """The crawl's stat *name*, None also if it never had stats."""
    try:
        return crawler.stats.get_value(name)
    except RuntimeError:
        return None


def _process(settings: Settings) -> AsyncCrawlerProcess | CrawlerProcess:
    reactor = settings.getbool("TWISTED_REACTOR_ENABLED")
    asyncio = settings["TWISTED_REACTOR"] == _ASYNCIO_REACTOR
    if not reactor or (asyncio and not settings.getbool("FORCE_CRAWLER_PROCESS")):
        return AsyncCrawlerProcess(settings)
    return CrawlerProcess(settings)


def _load(process: AsyncCrawlerProcess | CrawlerProcess, name: str) -> type[Spider]:
    try:
        return process.spider_loader.load(name)
    except KeyError:
        close = difflib.get_close_matches(name, process.spider_loader.list(), n=1)
        hint = f"did you mean {close[0]}?" if close else "`scrapy list` lists them"
        raise ConfigurationError(f"there is no spider {name!r} in this project; {hint}") from None


def _collect(outcome: Any, errors: list[BaseException]) -> None:
    """Have what *outcome* (a Task or a Deferred) fails with kept instead of logged."""
    if hasattr(outcome, "addErrback"):
        outcome.addErrback(lambda failure: errors.append(failure.value))
        return

    def done(task: Any) -> None:
        if not task.cancelled() and task.exception() is not None:
            errors.append(task.exception())

    outcome.add_done_callback(done)
