"""Telling a CancelledError that code raised from one that was sent to its task, and sending one.

A BaseException out of a callback or a pipeline kills one of the scraper's workers
without a word, and enough of them hang the crawl; so the ledger stops those that
nobody meant for the task.
"""

from __future__ import annotations

import asyncio
from typing import Any


class Interrupted(Exception):
    """Stands for a BaseException that code raised although nobody cancelled its task."""


def is_stray(exc: BaseException, *, running: bool) -> bool:
    """May *exc* be stopped here? *running* says whether the crawl goes on.

    Python 3.10 does not tell whether a task is being cancelled: there a
    CancelledError is stray while the crawl is running.
    """
    if isinstance(exc, (KeyboardInterrupt, SystemExit, GeneratorExit)):
        return False
    if not isinstance(exc, asyncio.CancelledError):
        return True
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return True
    cancelling = getattr(task, "cancelling", None)
    return running if cancelling is None else cancelling() == 0


class Abandoned(Exception):
    """Ends a page's code when the crawl stops and its time is over."""


class PageCode:
    """Code of pages that is running now: a context to run it in, and to end it.

    A callback or a pipeline that waits for ever would keep a stopped process for ever. Without
    asyncio there is no task to cancel: there it does.
    """

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[Any] | None] = []
        self._ended = False

    def end(self) -> None:
        """Cancel what waits, and let nothing begin any more."""
        self._ended = True
        for task in self._tasks:
            if task is not None:
                task.cancel()

    def __enter__(self) -> None:
        if self._ended:
            raise Abandoned("the crawl was stopped")
        self._tasks.append(_current_task())

    def __exit__(self, kind: object, exc: BaseException | None, trace: object) -> None:
        task = _current_task()
        self._tasks.remove(task)
        if self._ended and isinstance(exc, asyncio.CancelledError):
            if task is not None and hasattr(task, "uncancel"):
                task.uncancel()
            raise Abandoned("the crawl was stopped") from exc


def _current_task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None
