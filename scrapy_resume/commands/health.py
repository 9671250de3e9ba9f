"""``scrapy resume health``: how well the sites are, and an operator's word on it."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any

from scrapy_resume import clock
from scrapy_resume.commands.acting import existing, report, signed
from scrapy_resume.commands.database import looked_at, resume_settings
from scrapy_resume.commands.mends import is_held, words
from scrapy_resume.commands.screen import Grid, Part, moment, print_json, show
from scrapy_resume.commands.wakes import wake
from scrapy_resume.exceptions import ConfigurationError
from scrapy_resume.store import health as store

if TYPE_CHECKING:
    from scrapy.settings import Settings

    from scrapy_resume.store.engine import Database

_COLUMNS = ("site", "state", "until", "reason", "set by", "since", "pending", "running", "paused")
_COUNTS = ("pending", "running", "paused")
_LONG = ("reason", "set by")


def run(settings: Settings, opts: argparse.Namespace) -> int:
    """Show the sites, or set one."""
    ours = resume_settings(settings)
    with looked_at(ours) as db:
        if opts.act == "set":
            made, done = existing(db), {**signed(opts), "dry_run": opts.dry_run}
            result = store.set_site(made, opts.site, opts.state, seconds=opts.seconds, **done)
            if not opts.dry_run:
                wake(settings, ours, made, store.runs_at(made, opts.site))
            return report(opts, result, {"site": opts.site})
        found = look(db, opts.site)
    if opts.json:
        print_json({"sites": found})
    else:
        show(_view(found))
    return 0


def look(db: Database | None, name: str | None) -> list[dict[str, Any]]:
    """The sites on record and those with unfinished shards, by name, or the one called *name*.

    Raises ConfigurationError if there is none of that name.
    """
    known = {row.site: asdict(row) for row in store.sites(db)} if db else {}
    shards = store.open_shards(db) if db else {}
    names = sorted({*known, *shards})
    if name is not None and name not in names:
        close = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(close)}?" if close else "a site without shards is well"
        raise ConfigurationError(f"nothing is known of the site {name!r}; {hint}")
    now = clock.utc_text(db.look(db.now) if db else clock.utc_now())
    return [
        _plain(one, known.get(one), shards.get(one), now) for one in names if name in (None, one)
    ]


def _plain(
    site: str, row: dict[str, Any] | None, shards: dict[str, int] | None, now: str
) -> dict[str, Any]:
    """A site as ``--json`` prints it; one without a row is healthy.

    *held* says that no shards of it are handed out now.
    """
    unknown = {
        "site": site, "state": "healthy", "reason": "nothing on record", "until": None,
        "set_by": None, "counters": None, "updated_at": None, "wait_ms": None,
        "probe_instance": None, "probe_until": None,
    }  # fmt: skip
    plain = row or unknown
    for name, value in plain.items():
        if isinstance(value, datetime):
            plain[name] = clock.utc_text(value)
    counts = shards or dict.fromkeys(_COUNTS, 0)
    return {**plain, "held": is_held(plain, now), "says": words(plain, now), "shards": counts}


def _view(found: list[dict[str, Any]]) -> Iterator[Part]:
    if not found:
        yield "no sites yet"
        return
    rows = [
        (
            one["site"], one["says"], moment(one["until"]), one["reason"], one["set_by"],
            moment(one["updated_at"]), *(one["shards"][name] for name in _COUNTS),
        )
        for one in found
    ]  # fmt: skip
    yield Grid("", _COLUMNS, rows, numbers=_COUNTS, long=_LONG)
