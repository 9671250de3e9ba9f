"""What the tests of the operator's verbs ask: what was said, what changed, what is on record."""

from __future__ import annotations

import getpass
import socket
from typing import Any

from tests.commands.conftest import Outcome
from tests.store.worlds import World

ACTOR = f"{getpass.getuser()}@{socket.gethostname()}"
_TABLES = ("task", "task_shard", "quarantine", "manifest", "operation", "site_health", "item")


def refused(outcome: Outcome) -> str:
    """What a refusal said, once it is known to be one line on stderr and nothing else."""
    assert (outcome.code, outcome.out) == (1, ""), outcome
    (line,) = outcome.err.splitlines()
    assert line.startswith("scrapy resume: ")
    return line.removeprefix("scrapy resume: ")


def everything(world: World) -> dict[str, list[tuple[Any, ...]]]:
    """Every row that an act could change."""
    return {
        name: [tuple(row) for row in world.sql(f"SELECT * FROM resume_{name} ORDER BY 1, 2")]
        for name in _TABLES
    }


def records(world: World) -> list[tuple[str, str, str]]:
    """What is on record: kind, actor and reason of each act."""
    rows = world.sql("SELECT kind, actor, reason FROM resume_operation ORDER BY id")
    return [tuple(row) for row in rows]
