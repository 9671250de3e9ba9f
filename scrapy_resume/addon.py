"""ResumeAddon: one line in ``ADDONS`` instead of five component settings.

It never overrides an entry that the user made. What it sets::

    SCHEDULER = "scrapy_resume.scheduler.ShardScheduler"   # the former one is wrapped
    EXTENSIONS["scrapy_resume.extensions.CheckpointExtension"] = 0
    SPIDER_MIDDLEWARES["scrapy_resume.spidermiddlewares.PageMiddleware"] = 0
    DOWNLOADER_MIDDLEWARES["scrapy_resume.downloadermiddlewares.SiteHealthMiddleware"] = 560
    ITEM_PIPELINES["scrapy_resume.pipelines.UpsertPipeline"] = 1000
    CONCURRENT_ITEMS = 4   # Scrapy starts this many tasks for every response
    LOG_FORMATTER = "scrapy_resume.logformatter.QuietLogFormatter"
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from scrapy.exceptions import NotConfigured
from scrapy.utils.misc import load_object

if TYPE_CHECKING:
    from scrapy.settings import BaseSettings

SCHEDULER = "scrapy_resume.scheduler.ShardScheduler"
COMPONENTS = {
    "EXTENSIONS": ("scrapy_resume.extensions.CheckpointExtension", 0),
    "SPIDER_MIDDLEWARES": ("scrapy_resume.spidermiddlewares.PageMiddleware", 0),
    "DOWNLOADER_MIDDLEWARES": ("scrapy_resume.downloadermiddlewares.SiteHealthMiddleware", 560),
    "ITEM_PIPELINES": ("scrapy_resume.pipelines.UpsertPipeline", 1000),
}
CONCURRENT_ITEMS = 4
LOG_FORMATTER = "scrapy_resume.logformatter.QuietLogFormatter"
_ADDON = 15


class ResumeAddon:
    """Turns the suite on. With ``RESUME_ENABLED = False`` it changes nothing."""

    def update_settings(self, settings: BaseSettings) -> None:
        """Add the suite's components where the user did not place them.

        Raises NotConfigured if the suite is off.
        """
        if not _enabled(settings):
            raise NotConfigured("RESUME_ENABLED is False")
        self._wrap_scheduler(settings)
        for setting, (path, order) in COMPONENTS.items():
            settings.setdefault_in_component_priority_dict(setting, load_object(path), order)
        settings.set("CONCURRENT_ITEMS", CONCURRENT_ITEMS, "addon")
        settings.set("LOG_FORMATTER", LOG_FORMATTER, "addon")

    def _wrap_scheduler(self, settings: BaseSettings) -> None:
        inner = settings["SCHEDULER"]
        if inner == SCHEDULER or getattr(inner, "__name__", "") == "ShardScheduler":
            return
        priority = max(settings.getpriority("SCHEDULER") or 0, _ADDON)
        name = "RESUME_INNER_SCHEDULER"
        if not (settings.get(name) or os.environ.get(name)):
            settings.set("RESUME_INNER_SCHEDULER", inner, priority)
        settings.set("SCHEDULER", SCHEDULER, priority)


def _enabled(settings: BaseSettings) -> bool:
    from scrapy_resume.settings import switched_on  # only a crawl pays for the import

    return switched_on(settings)
