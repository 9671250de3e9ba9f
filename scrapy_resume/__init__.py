"""Scrapy crawls that survive anything: ``kill -9``, a lost machine, a restarted database.

The names of the public interface are loaded when they are first used, so that importing
the package (which every ``scrapy`` command does) costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scrapy_resume.addon import ResumeAddon
    from scrapy_resume.exceptions import NotAPage, SiteBlocked
    from scrapy_resume.mixins import ResumeSpiderMixin
    from scrapy_resume.page import Page, Shard
    from scrapy_resume.store.items import ItemTable

__version__ = "0.1.0"
__all__ = [
    "ItemTable",
    "NotAPage",
    "Page",
    "ResumeAddon",
    "ResumeSpiderMixin",
    "Shard",
    "SiteBlocked",
]

_HOME = {
    "ItemTable": "scrapy_resume.store.items",
    "NotAPage": "scrapy_resume.exceptions",
    "Page": "scrapy_resume.page",
    "ResumeAddon": "scrapy_resume.addon",
    "ResumeSpiderMixin": "scrapy_resume.mixins",
    "Shard": "scrapy_resume.page",
    "SiteBlocked": "scrapy_resume.exceptions",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOME[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
