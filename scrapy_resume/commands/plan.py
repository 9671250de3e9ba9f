"""``scrapy resume plan``: opens and plans the run, and leaves its shards for the crawls.

The crawl is a real one up to the end of planning, since ``plan()`` may download. It ends
at the hook that is called right before the first page.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from scrapy import signals
from scrapy.exceptions import CloseSpider

from scrapy_resume.commands import status
from scrapy_resume.commands.crawl import crawl, stat
from scrapy_resume.commands.database import looked_at
from scrapy_resume.commands.screen import print_json, show
from scrapy_resume.commands.verbs import fail
from scrapy_resume.exceptions import ConfigurationError
from scrapy_resume.mixins import ResumeSpiderMixin
from scrapy_resume.session import Session

if TYPE_CHECKING:
    from scrapy import Spider
    from scrapy.crawler import Crawler
    from scrapy.settings import Settings

_PLANNED = "resume_planned"  # the finish reason


def run(settings: Settings, opts: argparse.Namespace) -> int:
    """Plan, then show the run's shards as they are stored."""
    if settings.getpriority("LOG_LEVEL") == 0:
        settings.set("LOG_LEVEL", "WARNING", priority="command")
    crawler = crawl(settings, opts, prepare=_without_pages, watch=_refuse_plain)
    ended = stat(crawler, "finish_reason")
    if ended != _PLANNED:
        return fail(stat(crawler, "resume/error") or f"{opts.spider} was not planned: {ended}")
    session = Session.of(crawler, "plan")
    assert session.loop is not None and session.loop.task is not None
    with looked_at(session.settings) as db:
        found = status.find(db, session.loop.task.id)
    if opts.json:
        print_json(found)
    else:
        show(status.view(found, shards=True, lease=session.settings.lease))
    return 0


def _without_pages(spidercls: type[Spider]) -> type[Spider]:
    if not issubclass(spidercls, ResumeSpiderMixin):
        raise ConfigurationError(
            f"spider {spidercls.name!r} cannot be planned, since it has no ResumeSpiderMixin"
        )

    async def warm_up(self: Any) -> None:
        raise CloseSpider(_PLANNED)

    body = {"warm_up": warm_up, "__module__": spidercls.__module__}
    return type(spidercls.__name__, (spidercls,), body)


def _refuse_plain(crawler: Crawler) -> None:
    """End a crawl that would read pages instead of planning them."""

    def opened() -> None:
        if not Session.of(crawler, "plan").resumes:
            message = "the suite is off: put scrapy_resume.ResumeAddon into ADDONS"
            crawler.stats.set_value("resume/error", message)
            raise CloseSpider("resume_refused")

    crawler.signals.connect(opened, signals.spider_opened, weak=False)
