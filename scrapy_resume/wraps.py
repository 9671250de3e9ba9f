"""Wraps around what Scrapy does not document: its shape is looked at before.

The ledger has wraps of its own. Those here are for a pipeline, which may be alone.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from typing import Any

import scrapy

from scrapy_resume.exceptions import UnsupportedScrapy

logger = logging.getLogger(__name__)

_ANY = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def check(owner: Any, name: str, parameters: tuple[str, ...]) -> None:
    """Has *owner* a method *name* that takes *parameters*? Raises UnsupportedScrapy."""
    method = getattr(owner, name, None)
    if not callable(method):
        problem = "is missing"
    else:
        known = inspect.signature(method).parameters
        needed = [p.name for p in known.values() if p.default is p.empty and p.kind not in _ANY]
        if list(known)[: len(parameters)] == list(parameters) and set(needed) <= set(parameters):
            return
        problem = f"takes ({', '.join(known)}) instead of ({', '.join(parameters)})"
    raise UnsupportedScrapy(
        f"scrapy_resume cannot work with Scrapy {scrapy.__version__}:"
        f" {type(owner).__name__}.{name}() {problem}"
    )


def watch(engine: Any, closing: Callable[[], None], crowded: Callable[[], bool]) -> None:
    """Have *engine* call *closing* when it begins to close, of which Scrapy sends no signal.

    While *crowded()* it starts no more downloads; Scrapy by itself would go on until five
    megabytes of responses wait for their items. Raises UnsupportedScrapy.
    """
    check(engine, "close_spider_async", ("reason",))
    check(engine, "needs_backout", ())
    close, needs_backout = engine.close_spider_async, engine.needs_backout

    async def close_spider_async(*, reason: str = "cancelled") -> None:
        try:
            closing()
        except Exception:
            logger.exception(
                "The crawl closes although its pipeline could not prepare for it",
                extra={"action": "closing"},
            )
        await close(reason=reason)

    engine.close_spider_async = close_spider_async
    engine.needs_backout = lambda: crowded() or needs_backout()
