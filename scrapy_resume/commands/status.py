"""``scrapy resume status``: the runs, their shards and who works on them."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from scrapy_resume.commands.database import find_task, looked_at, resume_settings
from scrapy_resume.commands.mends import words
from scrapy_resume.commands.screen import Grid, Part, as_rich, moment, print_json, show
from scrapy_resume.exceptions import StoreUnavailable
from scrapy_resume.store import status as store

if TYPE_CHECKING:
    from scrapy.settings import Settings

    from scrapy_resume.settings import ResumeSettings
    from scrapy_resume.store.engine import Database

INTERVAL = 2.0  # seconds between two looks of --watch
_MOST = 50  # shards that people are shown; those that need a look come first
_ORDER = ("failed", "paused", "running", "pending", "done")
_SHARD_COLUMNS = ("shard", "pages", "cur_page", "ahead", "failed", "status", "reason", "worker")
_LONG = ("ahead", "failed", "reason")


def run(settings: Settings, opts: argparse.Namespace) -> int:
    """Show it once, or again and again until Ctrl-C."""
    ours = resume_settings(settings)
    if opts.watch:
        _watch(ours, opts.task)
    elif opts.json:
        print_json(_look(ours, opts.task))
    else:
        show(view(_look(ours, opts.task), shards=opts.task is not None, lease=ours.lease))
    return 0


def find(db: Database | None, which: str | int | None) -> dict[str, Any]:
    """The runs of the task with that id or name (None: of all), as ``--json`` prints them.

    Raises ConfigurationError if there is none.
    """
    if which is None:
        return {"tasks": []} if db is None else store.status(db, None)
    task = find_task(db, str(which))
    assert db is not None
    found = store.status(db, str(which))["tasks"]
    numbered = str(task.id) == str(which)
    return {"tasks": [one for one in found if one["task_id"] == task.id or not numbered]}


def view(found: dict[str, Any], *, shards: bool, lease: float) -> Iterator[Part]:
    """The same for people; *shards* adds the shards of the newest run.

    A worker not heard of for *lease* seconds counts as silent.
    """
    tasks = found["tasks"]
    if not tasks:
        yield "no tasks yet"
        return
    yield _runs(tasks, lease)
    if shards:
        yield f"Run {tasks[0]['run_no']}: {tasks[0]['reason']}."
        yield from _sites(tasks[0])
        yield from _shards(tasks[0])
    workers = [(task, one) for task in tasks for one in task["workers"]]
    if workers:
        yield _workers(workers, lease)


def silence(task: dict[str, Any], lease: float) -> str | None:
    """``no heartbeat since``, if nobody who works on a run was heard of for *lease* seconds."""
    workers = task["workers"]
    if not workers or any(one["heartbeat_age"] <= lease for one in workers):
        return None
    return f"no heartbeat since {moment(max(one['heartbeat_at'] for one in workers))}"


def name_of(worker: str | None) -> str:
    """As much of a worker's id as a person needs."""
    return (worker or "")[:8]


def pages_of(shard: dict[str, Any]) -> str:
    """The pages of a shard, ``first-last``; an open end is empty."""
    last = shard["last_page"]
    return f"{shard['first_page']}-{'' if last is None else last}"


def _look(settings: ResumeSettings, which: str | None) -> dict[str, Any]:
    with looked_at(settings) as db:
        return find(db, which)


def _watch(settings: ResumeSettings, which: str | None) -> None:
    try:
        if sys.stdout.isatty():
            _watch_live(settings, which)
        for parts in _looks(settings, which):
            show(parts)
            sys.stdout.flush()
    except KeyboardInterrupt:
        return


def _watch_live(settings: ResumeSettings, which: str | None) -> None:
    from rich.live import Live

    with Live(auto_refresh=False) as live:
        for parts in _looks(settings, which):
            live.update(as_rich(parts), refresh=True)


def _looks(settings: ResumeSettings, which: str | None) -> Iterator[list[Part]]:
    """One look after the other; a database that is away for a while is no reason to end."""
    while True:
        try:
            found = _look(settings, which)
            yield list(view(found, shards=which is not None, lease=settings.lease))
        except StoreUnavailable as error:
            yield [str(error)]
        time.sleep(INTERVAL)


def _runs(tasks: list[dict[str, Any]], lease: float) -> Grid:
    counts = ("pages", "items", "dropped", "quarantined")
    rows = []
    for task in tasks:
        shards = task["shards"]
        state = task["verdict"] or silence(task, lease) or task["status"]
        head = (task["task_id"], task["name"], task["run_no"], state)
        done = f"{shards['done']}/{sum(shards.values())}"
        rows.append([*head, done, *(task[name] for name in counts)])
    columns = ("id", "name", "run", "status", "done", *counts)
    return Grid("", columns, rows, numbers=("id", "run", "done", *counts), long=("name", "status"))


def _sites(task: dict[str, Any]) -> Iterator[Part]:
    """The sites of an unfinished run that are not well."""
    ill = [one for one in task["health"] if one["state"] != "healthy" and not task["verdict"]]
    for site in sorted(ill, key=lambda one: one["site"]):
        until = f" until {moment(site['until'])}" if site["until"] else ""
        yield f"Site {site['site']} is {words(site, task['now'])}{until}: {site['reason']}."


def _shards(task: dict[str, Any]) -> Iterator[Part]:
    marks = sorted(task["watermarks"], key=lambda mark: _ORDER.index(mark["status"]))
    if not marks:
        return
    rows = [
        [
            mark["shard_no"],
            pages_of(mark),
            mark["cur_page"],
            mark["ahead"],
            mark["failed_pages"],
            mark["status"],
            mark["reason"],
            name_of(mark["worker"]),
        ]
        for mark in marks[:_MOST]
    ]
    title = f"Shards of {task['name']}, run {task['run_no']}"
    yield Grid(title, _SHARD_COLUMNS, rows, numbers=("shard", "cur_page"), long=_LONG)
    if len(marks) > _MOST:
        yield f"and {len(marks) - _MOST} more shards; --json has them all"


def _workers(workers: list[tuple[dict[str, Any], dict[str, Any]]], lease: float) -> Grid:
    """Who works on what; a run's silent workers hold their shards no longer than the leases."""
    rows = []
    for task, one in workers:
        held = [mark for mark in task["watermarks"] if mark["worker"] == one["worker"]]
        until = max((mark["lease_until"] for mark in held if mark["lease_until"]), default=None)
        age, since = one["heartbeat_age"], moment(one["heartbeat_at"])
        heard = f"{age:.0f} s ago" if age <= lease else f"no heartbeat since {since}"
        who = (name_of(one["worker"]), one["host"], one["pid"], one["version"])
        shards = f"{len(held)}/{one['capacity']}"
        rows.append([*who, task["task_id"], shards, moment(until), heard])
    columns = ("worker", "host", "pid", "version", "id", "shards", "lease until", "heard of")
    return Grid("Workers", columns, rows, numbers=("pid", "id", "shards"), long=("heard of",))
