"""``scrapy resume why``: what of a run is unfinished, in sentences."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from scrapy_resume import clock
from scrapy_resume.commands.account import Account
from scrapy_resume.commands.database import find_task, looked_at, resume_settings
from scrapy_resume.commands.mends import Mends, missing
from scrapy_resume.commands.obstacles import Obstacles
from scrapy_resume.commands.screen import print_json, show
from scrapy_resume.store import operations, quarantine, status
from scrapy_resume.troubles import safe_text

if TYPE_CHECKING:
    from scrapy.settings import Settings

    from scrapy_resume.settings import ResumeSettings
    from scrapy_resume.store.engine import Database

_FIRST = 10  # quarantined records that are listed
_LATEST = 5  # acts that are told
_BY_THEMSELVES = ("reclaim", "supersede", "salvage")  # what workers and reapers do
_RECORD = (
    *("id", "kind", "shard_no", "page", "url", "item_key"),
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
    obstacles, mends = Obstacles(facts, settings), Mends(facts)
    for shard in facts["shards"]:
        shard["shard_key"] = safe_text(shard["shard_key"])
        waits = shard["status"] == "pending"
        shard["obstacle"] = obstacles.of(shard) if waits else None
        shard["claimable"] = waits and shard["obstacle"] is None
        shard["missing"], shard["mend"] = missing(shard), mends.of(shard)
    rows = quarantine.find(db, task_id, resolved=False, limit=_FIRST)
    shown = [name for name in _RECORD if values or name != "value"]
    facts["quarantine"] = [{name: row[name] for name in shown} for row in rows]
    facts["acts"] = _acts(db, task_id)
    facts["advice"] = Account(facts, settings).advice()
    return facts


def _acts(db: Database, task_id: int) -> list[dict[str, str]]:
    """The latest acts of operators, newest first, each once however many rows it left."""
    rows = [
        {
            "at": clock.utc_text(at),
            "kind": act.kind,
            "actor": act.actor,
            "reason": act.reason,
        }
        for at, act in operations.find(db, task_id)
        if act.kind not in _BY_THEMSELVES
    ]
    return [row for at, row in enumerate(rows) if row not in rows[:at]][:_LATEST]
