"""``scrapy resume quarantine``: what was set aside, put back to work or resolved."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

from scrapy_resume import clock
from scrapy_resume.commands.acting import existing, report, signed
from scrapy_resume.commands.database import find_task, looked_at, resume_settings
from scrapy_resume.commands.screen import Grid, Part, moment, print_json, show
from scrapy_resume.exceptions import ActRefused
from scrapy_resume.store import acts
from scrapy_resume.store import quarantine as store
from scrapy_resume.troubles import safe_url

if TYPE_CHECKING:
    from scrapy.settings import Settings

    from scrapy_resume.store.actresults import ActResult
    from scrapy_resume.store.engine import Database

_COLUMNS = ("id", "task", "shard", "page", "kind", "what", "error", "since", "resolution")
_NUMBERS, _LONG = ("id", "task", "shard", "page"), ("what", "error", "resolution")
_MEANINGS = (
    ("id", "record"), ("task_id", "task"), ("shard_no", "shard"), ("page", "page"),
    ("kind", "kind"), ("url", "address"), ("item_key", "item key"), ("error_class", "error"),
    ("error", "it says"), ("column_name", "column"), ("value", "value"),
    ("attempts", "attempts"), ("created_at", "since"), ("resolved_at", "resolved"),
    ("resolution", "resolution"),
)  # fmt: skip
_FIELDS = tuple(name for name, _ in _MEANINGS)


def run(settings: Settings, opts: argparse.Namespace) -> int:
    """List, show, requeue or resolve."""
    with looked_at(resume_settings(settings)) as db:
        if opts.act == "list":
            rows = _listed(db, opts)
            _print(opts, {"quarantine": rows}, _list(rows, opts.limit))
        elif opts.act == "show":
            row = _one(existing(db), opts.id)
            _print(opts, row, _whole(row))
        else:
            ids = _chosen(existing(db), opts)
            return report(opts, _act(existing(db), opts, ids), {"ids": ids})
    return 0


def _listed(db: Database | None, opts: argparse.Namespace) -> list[dict[str, Any]]:
    task = None if opts.task is None else find_task(db, opts.task).id
    resolved = None if opts.all else False
    rows = store.find(db, task, resolved=resolved, limit=opts.limit) if db else []
    return [_plain(row) for row in rows]


def _one(db: Database, record_id: int) -> dict[str, Any]:
    row = store.one(db, record_id)
    if row is None:
        raise ActRefused(
            f"there is no record {record_id} in quarantine; `scrapy resume quarantine list` has"
            " them"
        )
    return _plain(row)


def _chosen(db: Database, opts: argparse.Namespace) -> list[int]:
    """The ids given, or those of a run's records that the act can be done with."""
    if opts.ids is not None:
        return list(opts.ids)
    task = find_task(db, opts.task)
    ids, last = [], 0
    while rows := store.find(db, task.id, resolved=False, after=last):
        last = rows[-1]["id"]
        # For a record of no page nothing can be read again.
        ids += [one["id"] for one in rows if opts.act == "resolve" or one["page"] is not None]
    if not ids:
        what = "to resolve" if opts.act == "resolve" else "that could be read again"
        raise ActRefused(f"run {task.run_no} of {task.name} has nothing in quarantine {what}")
    return ids


def _act(db: Database, opts: argparse.Namespace, ids: list[int]) -> ActResult:
    done: dict[str, Any] = signed(opts) | {"dry_run": opts.dry_run}
    if opts.act == "requeue":
        return acts.requeue(db, ids, **done)
    return acts.resolve(db, ids, opts.resolution, **done)


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """As JSON and people get it: what is of no use outside is left out, times are text."""
    plain = {name: row[name] for name in _FIELDS}
    plain["url"] = row["url"] and safe_url(row["url"])
    for name, value in plain.items():
        if isinstance(value, datetime):
            plain[name] = clock.utc_text(value)
    return plain


def _print(opts: argparse.Namespace, found: dict[str, Any], parts: Iterator[Part]) -> None:
    if opts.json:
        print_json(found)
    else:
        show(parts)


def _list(rows: list[dict[str, Any]], most: int) -> Iterator[Part]:
    if not rows:
        yield "Nothing is in quarantine."
        return
    cells = [
        (
            *(row[name] for name in ("id", "task_id", "shard_no", "page", "kind")),
            row["url"] or row["item_key"],
            f"{row['error_class']}: {row['error']}",
            moment(row["created_at"]),
            row["resolution"],
        )
        for row in rows
    ]
    yield Grid("", _COLUMNS, cells, numbers=_NUMBERS, long=_LONG)
    if len(rows) == most:
        yield f"the first {most}; --limit shows more"


def _whole(row: dict[str, Any]) -> Iterator[Part]:
    for name, meaning in _MEANINGS:
        if row[name] is not None:
            value = moment(row[name]) if name.endswith("_at") else row[name]
            yield f"{meaning}: {value}"
