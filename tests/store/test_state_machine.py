"""Workers and operators in any order: no change without a reason, and I4 to I7 hold."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from scrapy_resume.store import acts, migrate, transitions, wishes
from scrapy_resume.store.engine import Database
from tests.store.lives import Lives, watch


def live(url: str, *, examples: int, steps: int) -> type[Lives]:
    """Walk through so many lives of a task; returns the class, which counts."""
    db = Database.connect(url)
    migrate.ensure_schema(db)
    watch(db)
    machine = type("OnThisDatabase", (Lives,), {"database": db, "acts": type(Lives.acts)(),
                                                "moves": type(Lives.moves)()})  # fmt: skip
    try:
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=examples, stateful_step_count=steps, deadline=None,
                suppress_health_check=list(HealthCheck), database=None, phases=[Phase.generate],
            ),
        )  # fmt: skip
    finally:
        db.close()
    return machine


def test_workers_and_operators_in_any_order(database_url: str) -> None:
    machine = live(database_url, examples=8, steps=40)
    assert machine.acts["plan"] and machine.moves


@pytest.mark.stress
def test_stress_ten_thousand_acts(database_url: str) -> None:
    machine = live(database_url, examples=300, steps=100)
    assert machine.acts.total() >= 10_000
    done = {kind for kind in machine.acts if not kind.endswith("refused")}
    assert done >= {*acts.__all__} - {"ActResult", "carry_out"}
    assert machine.acts["pages"] >= 200
    assert done >= {f"try that {how}" for how in ("passes", "fails", "dies", "gives up")}
    every = {(a, b) for move in transitions.SHARD.values() for a in move.before for b in move.after}
    assert {edge for edge in every if edge[0] != edge[1]} <= set(machine.moves)


VANDALS = {
    "a state that is not listed": "status = 'done', due = 0, reason = 'x' WHERE due = 1",
    "no reason of its own": "status = 'paused', due = 0 WHERE status = 'pending'",
    "a token that falls": "fencing_token = 0 WHERE status = 'done'",
    "a watermark that falls": "cur_page = cur_page - 1 WHERE status = 'done'",
}


@pytest.mark.parametrize("what", list(VANDALS))
def test_the_walk_would_notice(sqlite_url: str, what: str) -> None:
    walk = begun(sqlite_url)
    walk.world.sql(f"UPDATE resume_task_shard SET {VANDALS[what]}")
    with pytest.raises(AssertionError):
        look(walk)


def test_the_walk_would_notice_a_pause_of_what_is_done(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    walk = begun(sqlite_url)
    moves = transitions.SHARD | {"pause": transitions.Move(("pending", "done"), ("paused",), "?")}
    monkeypatch.setattr(wishes, "SHARD", moves)
    walk.acts_on_the_run("pause", False)
    with pytest.raises(AssertionError):
        look(walk)


def begun(url: str) -> Lives:
    """A walk whose first shards are read."""
    db = Database.connect(url)
    migrate.ensure_schema(db)
    watch(db)
    walk: Lives = type("Begun", (Lives,), {"database": db})()
    walk.begin()
    walk.works("w1", "release", False)
    look(walk)
    return walk


def look(walk: Lives) -> None:
    """What is looked at after each act."""
    walk.every_change_is_listed_and_has_a_reason()
    walk.the_tables_are_as_promised()


def test_a_move_leads_nowhere_else_and_needs_a_reason() -> None:
    with pytest.raises(ValueError, match="claim does not lead to 'done'"):
        transitions.shard_values("claim", "done", "why not")
    with pytest.raises(ValueError, match="has no reason"):
        transitions.shard_values("claim", "running", " ")
    with pytest.raises(ValueError, match="reset does not lead to 'running'"):
        transitions.task_values("reset", "running", "why not")
