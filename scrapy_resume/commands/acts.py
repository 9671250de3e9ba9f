"""The operator's verbs that act on one run (or, two of them, on a site): see ``actparser``.

What each of them does to shards and runs, and refuses, is the store's matter.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from scrapy_resume.commands import confirmation
from scrapy_resume.commands.acting import existing, report, signed
from scrapy_resume.commands.database import find_task, looked_at, resume_settings
from scrapy_resume.commands.wakes import wake
from scrapy_resume.store import acts, health

if TYPE_CHECKING:
    from scrapy.settings import Settings

    from scrapy_resume.store.actresults import ActResult
    from scrapy_resume.store.engine import Database
    from scrapy_resume.store.tasks import Task

Act = Callable[[bool], "ActResult"]  # done, or with True only looked at

_ON_RUNS = {
    "pause": acts.pause,
    "unpause": acts.unpause,
    "cancel": acts.cancel,
    "restart": acts.restart,
    "reset": acts.reset,
}
_DANGEROUS = ("restart", "backfill", "reset")


def run(settings: Settings, opts: argparse.Namespace) -> int:
    """Do it once it is confirmed, and say what was done."""
    with looked_at(resume_settings(settings)) as db:
        if getattr(opts, "site", None) is not None:
            return _on_site(settings, existing(db), opts)
        task = find_task(db, opts.task)
        act = _on_run(existing(db), task, opts)
        if _is_dangerous(opts) and not opts.dry_run:
            confirmation.require(opts, task, lambda: act(True).sentences)
        result = act(opts.dry_run)
    which = {"task_id": task.id, "name": task.name, "run_no": task.run_no}
    return report(opts, result, which)


def _on_site(settings: Settings, db: Database, opts: argparse.Namespace) -> int:
    result = on_site(db, opts)
    if not opts.dry_run:
        wake(settings, resume_settings(settings), db, health.runs_at(db, opts.site))
    return report(opts, result, {"site": opts.site})


def on_site(db: Database, opts: argparse.Namespace) -> ActResult:
    """Pause or unpause a site."""
    done: dict[str, Any] = signed(opts) | {"dry_run": opts.dry_run}
    if opts.verb == "pause":
        return health.pause_site(db, opts.site, seconds=opts.seconds, **done)
    return health.unpause_site(db, opts.site, **done)


def _on_run(db: Database, task: Task, opts: argparse.Namespace) -> Act:
    def act(dry_run: bool) -> ActResult:
        done: dict[str, Any] = signed(opts) | {"dry_run": dry_run}
        if opts.verb == "retry":
            shards = None if opts.shards is None else list(opts.shards)
            return acts.retry(db, task.id, shards=shards, pages=opts.pages, **done)
        if opts.verb == "backfill":
            return acts.backfill(db, task.id, opts.pages, **done)
        return _ON_RUNS[opts.verb](db, task.id, **done)

    return act


def _is_dangerous(opts: argparse.Namespace) -> bool:
    whole = opts.verb == "retry" and opts.shards is None and opts.pages is None
    return whole or opts.verb in _DANGEROUS
