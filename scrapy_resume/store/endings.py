"""How an owner gives a shard up: finished, failed, released, or as the operator wishes."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Select, select, update
from sqlalchemy.engine import Connection, Row

from scrapy_resume import faults
from scrapy_resume.intake import RESUMED
from scrapy_resume.store.engine import Database
from scrapy_resume.store.records import Finish, Release
from scrapy_resume.store.transitions import cleaned, shard_values

_ERROR_LENGTH = 500


def end(
    conn: Connection, db: Database, shard_id: int, ending: Finish | Release, now: datetime
) -> str:
    """Write *ending* into the row that the fence has locked; returns the status it led to."""
    task, shard = db.tables.task, db.tables.task_shard
    row = conn.execute(select(shard).where(shard.c.id == shard_id)).one()
    if isinstance(ending, Finish):
        faults.point("finish.before")
        values = _finished(ending)
    else:
        wish: Select[Any] = select(task.c.desired, task.c.reason).where(task.c.id == row.task_id)
        values = _released(row, ending, conn.execute(wish).one(), now)
    conn.execute(update(shard).where(shard.c.id == shard_id).values(values | {"updated_at": now}))
    status: str = values["status"]
    return status


def _finished(ending: Finish) -> dict[str, Any]:
    values = shard_values("finish", ending.status, ending.reason)
    if ending.status == "done":  # pages held past an end that was found later are none
        values |= {"error_kind": None, "failed_pages": ""}
    return values


def _released(row: Row[Any], ending: Release, wish: Row[Any], now: datetime) -> dict[str, Any]:
    begun = row.cur_page >= row.first_page or row.ahead
    values: dict[str, Any] = {
        "error_kind": ending.error_kind,
        "lane": RESUMED if begun else row.lane,
        "attempt_count": row.attempt_count - (not ending.spend_attempt and row.attempt_count > 0),
    }
    if ending.last_error is not None:
        values["last_error"] = cleaned(ending.last_error, _ERROR_LENGTH)
    if wish.desired == "cancel":
        return values | shard_values("release", "failed", wish.reason)
    if values["attempt_count"] >= row.max_attempts:
        tries = f"gave up after {row.attempt_count} attempts"
        return values | shard_values("release", "failed", f"{tries}: {ending.reason}")
    if wish.desired == "pause":
        return values | shard_values("release", "paused", wish.reason)
    return values | shard_values("release", "pending", ending.reason) | _when(ending, now)


def _when(ending: Release, now: datetime) -> dict[str, Any]:
    if ending.delay is not None:
        return {"due": 0, "next_run_at": now + timedelta(seconds=ending.delay)}
    at_next_start = ending.error_kind == "code"
    return {"due": int(not at_next_start)}
