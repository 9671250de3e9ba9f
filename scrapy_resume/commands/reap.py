"""``scrapy resume reap``: the reaper's duty once, where no crawl runs that would do it.

After an outage of the database every lease has ended, also those of living workers,
which need a moment to renew them. One look cannot tell; so what has ended is watched
for one more lease, and only what was not renewed by then is taken back.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from scrapy_resume import journalreplay
from scrapy_resume.commands.acting import actor
from scrapy_resume.commands.database import looked_at, resume_settings
from scrapy_resume.commands.screen import print_json, show
from scrapy_resume.reaper import Contact, gap_for, reap_once, recover
from scrapy_resume.store import acts, attendance, leases, tasks, workers
from scrapy_resume.worker import WorkerSlot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from scrapy.settings import Settings

    from scrapy_resume.settings import ResumeSettings
    from scrapy_resume.store.engine import Database

_PRUNED = 10000  # rows of long ended workers


def run(settings: Settings, opts: argparse.Namespace) -> int:
    """Reap once, and say what came of it."""
    ours = resume_settings(settings)

    def say(sentence: str) -> None:
        if not opts.json:
            show([sentence])

    with looked_at(ours) as db:
        done = Round() if db is None else reap(db, ours, say)
    if opts.json:
        print_json(asdict(done))
    else:
        show(_lines(done))
    return 0


@dataclass(frozen=True)
class Round:
    """What one round did: shards taken back and fallen due, runs ended, workers forgotten."""

    recovered: int = 0
    reclaimed: int = 0
    due: int = 0
    ended: list[dict[str, Any]] = field(default_factory=list)
    pruned: int = 0


def reap(db: Database, settings: ResumeSettings, say: Callable[[str], None]) -> Round:
    """One whole round; takes one lease's time if any lease has ended."""
    recovered = _recover(db, settings)
    reclaimed = _reclaim(db, settings, say)
    due = leases.raise_due(db)
    ended = [
        {"task_id": one.id, "name": one.name, "run_no": one.run_no, "verdict": one.verdict}
        for one in (*acts.carry_out(db), *tasks.finish_ended(db))
        if one.finished_at is not None
    ]
    return Round(recovered, reclaimed, due, ended, workers.prune(db, _PRUNED))


def _recover(db: Database, settings: ResumeSettings) -> int:
    """Take back what processes that died on this machine held; they need no watching."""
    if not settings.home.exists():
        return 0
    slot = WorkerSlot.take(settings.home)
    clean = False
    try:
        mine: list[int] = []
        if slot.earlier:  # else nobody died here, and a copy of this home may be in use
            journalreplay.replay(
                db, slot.directory, actor=slot.signature,
                holders=slot.earlier, lease=settings.lease,
            )  # fmt: skip
            mine = leases.reclaim_worker(db, worker=slot.worker, instance=slot.instance)
            attendance.ended(db, worker=slot.worker)
        clean = True
        return len(mine) + recover(db, slot, lease=settings.lease)
    finally:
        slot.free(clean=clean)


def _reclaim(db: Database, settings: ResumeSettings, say: Callable[[str], None]) -> int:
    holders = leases.expired_holders(db)
    if not holders:
        return 0
    say(
        f"Leases of {len(holders)} worker(s) have ended; watching for {settings.lease:g} s whether"
        " they are renewed."
    )
    contact = Contact(gap_for(settings.lease))
    while contact.heard() < settings.lease:
        time.sleep(min(settings.heartbeat, settings.lease / 10))
        leases.expired_holders(db)
    still = holders & leases.expired_holders(db)
    who = f"scrapy resume reap by {actor()}"
    return reap_once(db, still, actor=who, lease=settings.lease) if still else 0


def _lines(done: Round) -> Iterator[str]:
    if done.recovered:
        yield f"Took back {done.recovered} shard(s) of processes that died on this machine."
    if done.reclaimed:
        yield f"Took back {done.reclaimed} shard(s) whose leases had ended."
    if done.due:
        yield f"{done.due} shard(s) fell due."
    for run in done.ended:
        which = f"Run {run['run_no']} of {run['name']} (id {run['task_id']})"
        yield f"{which} is over: {run['verdict']}."
    if not (done.recovered or done.reclaimed or done.due or done.ended):
        yield "Nothing had to be taken back."
