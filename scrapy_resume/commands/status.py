"""``scrapy resume status``: the runs, their shards and who works on them."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from scrapy_resume.commands.database import find_task, looked_at, resume_settings
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
        show(view(_look(ours, opts.task), shards=opts.task is not None))
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


def view(found: dict[str, Any], *, shards: bool) -> Iterator[Part]:
    """The same for people; *shards* adds the shards of the newest run."""
    tasks = found["tasks"]
    if not tasks:
        yield "no tasks yet"
        return
    yield _runs(tasks)
    if shards:
        yield f"Run {tasks[0]['run_no']}: {tasks[0]['reason']}."
        yield from _shards(tasks[0])
    workers = {one["instance"]: one for task in tasks for one in task["workers"]}
    if workers:
        yield _workers(list(workers.values()))


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
            yield list(view(_look(settings, which), shards=which is not None))
        except StoreUnavailable as error:
            yield [str(error)]
        time.sleep(INTERVAL)


def _runs(tasks: list[dict[str, Any]]) -> Grid:
    counts = ("pages", "items", "dropped", "quarantined")
    rows = []
    for task in tasks:
        shards = task["shards"]
        head = (task["task_id"], task["name"], task["run_no"], task["verdict"] or task["status"])
        done = f"{shards['done']}/{sum(shards.values())}"
        rows.append([*head, done, *(task[name] for name in counts)])
    columns = ("id", "name", "run", "status", "done", *counts)
    return Grid("", columns, rows, numbers=("id", "run", "done", *counts), long=("name",))


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


def _workers(workers: list[dict[str, Any]]) -> Grid:
    rows = [
        [name_of(one["worker"]), one["host"], one["pid"], one["load"], moment(one["heartbeat_at"])]
        for one in workers
    ]
    columns = ("worker", "host", "pid", "shards", "last heard of")
    return Grid("Workers", columns, rows, numbers=("pid", "shards"))
