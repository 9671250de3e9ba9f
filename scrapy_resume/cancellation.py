"""Telling a CancelledError that code raised from one that was sent to its task.

A BaseException out of a callback or a pipeline kills one of the scraper's workers
without a word, and enough of them hang the crawl; so the ledger stops those that
nobody meant for the task.
"""

from __future__ import annotations

import asyncio


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
