"""Every change of a status that there is, and what each one needs.

A row's status changes in no other way than by a :class:`Move` of the tables below. Who
changes one takes the columns to write from :func:`shard_values` or :func:`task_values`,
which refuse a move to a state it does not lead to, and one without a reason; and asks
for :func:`sources` in its WHERE, or has looked at the row under its lock. ``recorded``
moves leave a row in ``operation`` too. A test watches the tables while workers and
operators do as they please, and finds no change that is not listed here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Table

from scrapy_resume.store.columns import REASON_LENGTH

OPEN = ("pending", "running", "paused")
FINAL = ("done", "failed")


@dataclass(frozen=True, slots=True)
class Move:
    """A way from one of *before* to one of *after*, by *who*; *recorded* in ``operation``."""

    before: tuple[str, ...]
    after: tuple[str, ...]
    who: str
    recorded: bool = False


SHARD: dict[str, Move] = {
    "claim": Move(("pending",), ("running",), "a worker"),
    "finish": Move(("running",), FINAL, "the owner"),
    # Given back; failed once the attempts are used up or the run is cancelled.
    "release": Move(("running",), ("pending", "paused", "failed"), "the owner"),
    "reclaim": Move(("running",), ("pending", "paused", "failed"), "the reaper", True),
    "supersede": Move(OPEN, ("failed",), "who opens a newer run", True),
    "pause": Move(("pending",), ("paused",), "an operator", True),
    "unpause": Move(("paused",), ("pending",), "an operator", True),
    "cancel": Move(("pending", "paused"), ("failed",), "an operator", True),
    "retry": Move(("failed",), ("pending", "paused"), "an operator", True),
    # Its pages, or some of them, are read again. A running one has a dead owner.
    "reread": Move(OPEN + FINAL, ("pending", "paused"), "an operator", True),
}

TASK: dict[str, Move] = {
    "plan": Move(("planning",), ("running",), "the planner"),
    "pause": Move(("running",), ("paused",), "who sees that no shard runs"),
    "unpause": Move(("paused",), ("running",), "an operator", True),
    "finish": Move(("running", "paused"), FINAL, "who sees that every shard is final"),
    "supersede": Move(("planning", "running", "paused"), ("failed",), "a newer run's opener", True),
    "cancel": Move(("planning",), ("failed",), "an operator", True),
    "reopen": Move(FINAL, ("running",), "an operator", True),
    "reset": Move(("running", "paused", *FINAL), ("planning",), "an operator", True),
}


def shard_values(move: str, to: str, reason: str) -> dict[str, Any]:
    """The columns of ``task_shard`` that *move* writes; a claim adds the owner to them."""
    values = _values(SHARD, move, to, reason) | {"due": int(to == "pending")}
    if to == "running":
        return values
    nobody = {"worker": None, "instance": None, "lease_until": None}
    return values | nobody | {"next_run_at": None}


def task_values(move: str, to: str, reason: str) -> dict[str, Any]:
    """The columns of ``task`` that *move* writes."""
    return _values(TASK, move, to, reason)


def sources(table: Table, moves: dict[str, Move], move: str) -> ColumnElement[bool]:
    """Is a row of *table* in a state that *move* may leave?"""
    return table.c.status.in_(moves[move].before)


def cleaned(text: str, limit: int) -> str:
    """*text* short enough, and without the half characters that no database takes."""
    return text[:limit].encode("utf-8", "replace").decode()


def _values(moves: dict[str, Move], move: str, to: str, reason: str) -> dict[str, Any]:
    if to not in moves[move].after:
        raise ValueError(f"{move} does not lead to {to!r}")
    if not reason.strip():
        raise ValueError(f"{move} to {to!r} has no reason")
    return {"status": to, "reason": cleaned(reason, REASON_LENGTH)}
