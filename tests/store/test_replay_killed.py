"""Processes that are killed in the middle of a replay, and two that want the same journal."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from scrapy_resume import faults, journalreplay
from scrapy_resume.exceptions import JournalFailed
from scrapy_resume.journal import Journal, file
from scrapy_resume.store.engine import Database
from scrapy_resume.store.records import Release
from tests.store.journals import Slot
from tests.store.worlds import World, page

POINTS = {
    "sqlite": ["replay.before:1", "replay.settled:1", "commit.after:2", "salvage.before:1"],
    "mariadb": ["replay.before:3", "commit.items:2", "commit.before:1", "replay.settled:4"],
}


def in_child(work: Callable[[], object]) -> int:
    """What ended a child process that does *work*: a signal as a negative number, else its code."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.parametrize(
    ("database_url", "point"),
    [(kind, point) for kind, points in POINTS.items() for point in points],
    indirect=["database_url"],
)
def test_a_replay_that_is_killed_is_made_again(
    world: World, database_url: str, tmp_path: Path, point: str
) -> None:
    slot = Slot(world, tmp_path / "slot-0")
    ours, lost, released = world.claim(world.plan(3))
    slot.hold(ours, lost, released)
    slot.write(*(page(one, number) for number in range(1, 16) for one in (ours, lost, released)),
               Release(released.id, released.fencing_token, "stopped"))  # fmt: skip
    world.sql(f"UPDATE resume_task_shard SET fencing_token = 7 WHERE id = {lost.id}")
    before = world.shard(lost.id)

    def replay() -> None:
        faults.arm(f"{point}:kill")
        slot.replay(Database.connect(database_url))

    assert in_child(replay) == -signal.SIGKILL
    slot.replay()
    assert slot.replay() == journalreplay.Replayed()
    rows = [world.shard(one.id) for one in (ours, released)]
    assert [(row.cur_page, row.page_count, row.written_count) for row in rows] == [(15, 15, 30)] * 2
    assert [row.status for row in rows] == ["running", "pending"]
    assert world.shard(lost.id) == before
    assert len(world.items()) == 3 * 15 * 2
    assert len(slot.notes()) == 1
    assert slot.left() == 0


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_two_processes_cannot_replay_the_same_journal(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slot's lock keeps them apart; whoever goes around it finds the file locked too."""
    monkeypatch.setattr(file, "_PATIENCE", 0.1)
    slot = Slot(world, tmp_path / "slot-0")
    (one,) = world.claim(world.plan(1))
    slot.write(*(page(one, number) for number in range(1, 41)))
    steps = journalreplay.steps(world.db, slot.directory, actor="a test")
    next(steps)

    def intrude() -> None:
        with pytest.raises(JournalFailed, match="locked"):
            Journal.open(slot.path, meta={})

    assert in_child(intrude) == 0
    assert sum(done.pages for done in steps) == 20
    assert world.shard(one.id).cur_page == 40
