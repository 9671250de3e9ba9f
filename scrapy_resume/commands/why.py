"""``scrapy resume why``: what of a run is unfinished, in sentences."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from scrapy_resume.commands.account import Account
from scrapy_resume.commands.database import find_task, looked_at, resume_settings
from scrapy_resume.commands.obstacles import Obstacles
from scrapy_resume.commands.screen import print_json, show
from scrapy_resume.store import quarantine, status
from scrapy_resume.troubles import safe_text

if TYPE_CHECKING:
    from scrapy.settings import Settings

    from scrapy_resume.settings import ResumeSettings
    from scrapy_resume.store.engine import Database

_FIRST = 10  # quarantined records that are listed
_RECORD = (
    *("kind", "shard_no", "page", "url", "item_key"),
    *("error_class", "error", "item_table", "column_name", "value", "attempts"),
)


def run(settings: Settings, opts: argparse.Namespace) -> int:
    """Explain the newest run of a task, or the run with that id."""
    ours = resume_settings(settings)
    with looked_at(ours) as db:
        task = find_task(db, opts.task)
        assert db is not None
        facts = gather(db, task.id, ours, values=opts.values)
    if opts.json:
        print_json(facts)
    else:
        show(Account(facts, ours).sentences())
    return 0


def gather(
    db: Database, task_id: int, settings: ResumeSettings, *, values: bool = False
) -> dict[str, Any]:
    """The facts, as ``--json`` prints them: plain values, no cursors, no secrets in URLs.

    What a refused row was to hold may be anybody's name: it is left out unless *values*.
    """
    facts = status.why(db, task_id)
    obstacles = Obstacles(facts, settings)
    for shard in facts["shards"]:
        shard["shard_key"] = safe_text(shard["shard_key"])
        waits = shard["status"] == "pending"
        shard["obstacle"] = obstacles.of(shard) if waits else None
        shard["claimable"] = waits and shard["obstacle"] is None
    rows = quarantine.find(db, task_id, limit=_FIRST)
    shown = [name for name in _RECORD if values or name != "value"]
    facts["quarantine"] = [{name: row[name] for name in shown} for row in rows]
    facts["advice"] = Account(facts, settings).advice()
    return facts
