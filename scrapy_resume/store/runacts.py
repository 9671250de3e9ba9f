"""Acts on a run as a whole: pause, unpause, cancel."""

from __future__ import annotations

from sqlalchemy.engine import Connection

from scrapy_resume.exceptions import ActRefused
from scrapy_resume.store.acting import Act, named
from scrapy_resume.store.actresults import ActResult
from scrapy_resume.store.engine import Database
from scrapy_resume.store.finishing import end_unfinished, finish
from scrapy_resume.store.runs import Task
from scrapy_resume.store.wishes import count_shards, settle


def pause(
    db: Database, task_id: int, *, actor: str, reason: str, dry_run: bool = False
) -> ActResult:
    """Have a run stop: nothing of it is claimed any more, and its owners give their shards
    back once the pages in flight are stored. Raises ActRefused."""
    act = Act(db, "pause", actor, reason, dry_run)

    def work(conn: Connection) -> None:
        run = _unfinished(act, conn, task_id)
        if run.desired == "pause":
            raise ActRefused(f"{named(run)} is paused already ({run.reason})")
        if run.desired == "cancel":
            raise ActRefused(f"{named(run)} is being cancelled ({run.reason})")
        _wish(act, conn, run, "pause")
        if run.planned_at is None:
            act.sentences.append("Its plan is read to the end; then nothing of it is claimed.")

    return act.carry_out(work)


def unpause(
    db: Database, task_id: int, *, actor: str, reason: str, dry_run: bool = False
) -> ActResult:
    """Have a paused run go on; all that waits in it may be claimed at once. Raises ActRefused."""
    act = Act(db, "unpause", actor, reason, dry_run)

    def work(conn: Connection) -> None:
        run = _unfinished(act, conn, task_id)
        if run.desired != "pause":
            raise ActRefused(f"{named(run)} is not paused")
        _wish(act, conn, run, "run")

    return act.carry_out(work)


def cancel(
    db: Database, task_id: int, *, actor: str, reason: str, dry_run: bool = False
) -> ActResult:
    """End a run: its shards fail with that reason, those in work once their pages in flight
    are stored. What was read stays. Raises ActRefused."""
    act = Act(db, "cancel", actor, reason, dry_run)

    def work(conn: Connection) -> None:
        run = _unfinished(act, conn, task_id)
        if run.desired == "cancel":
            raise ActRefused(f"{named(run)} is being cancelled already ({run.reason})")
        run = _wish(act, conn, run, "cancel")
        if run.planned_at is None:  # its planner's fence fails from now on
            act.change(conn, run, planner=None, planner_instance=None, plan_lease_until=None)
            end_unfinished(conn, db, run, "cancel", act.text, act.now)
            over = True
        else:
            over = finish(conn, db, task_id).finished_at is not None
        if over:
            act.sentences.append(f"R{named(run)[1:]} is over.")

    return act.carry_out(work)


_SAID = {
    "pause": ("1 waiting shard is paused.", "{} waiting shards are paused."),
    "run": ("1 paused shard may be claimed.", "{} paused shards may be claimed."),
    "cancel": ("1 shard fails.", "{} shards fail."),
}
_RUNNING = {
    "pause": (
        "1 running shard is paused by its owner once its pages in flight are stored.",
        "{} running shards are paused by their owners once their pages in flight are stored.",
    ),
    "run": ("1 running shard goes on.", "{} running shards go on."),
    "cancel": (
        "1 running shard fails once its owner has stored its pages in flight.",
        "{} running shards fail once their owners have stored their pages in flight.",
    ),
}


def _wish(act: Act, conn: Connection, run: Task, wish: str) -> Task:
    act.sentences.append(f"R{named(run)[1:]} is {act.text}.")
    before = f"{run.status}, wish {run.desired}"
    run = act.change(conn, run, desired=wish, reason=act.text)
    changed = settle(conn, act.db, run) if run.planned_at else 0
    running = count_shards(conn, act.db, run.id, "running")
    act.count("shards", changed, *_SAID[wish])
    act.count("running", running, *_RUNNING[wish])
    act.record(conn, run.id, before, f"wish {wish}, {changed} shards changed, {running} running")
    return run


def _unfinished(act: Act, conn: Connection, task_id: int) -> Task:
    run = act.lock(conn, task_id)
    if run.finished_at is not None:
        raise ActRefused(f"{named(run)} is over ({run.verdict}): {run.reason}")
    return run
