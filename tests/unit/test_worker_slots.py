"""Slots: who lives, who died, and who ended in order, told by locks and files."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

from scrapy_resume.worker import WorkerSlot


def test_crawls_of_one_process_have_slots_of_their_own(tmp_path: Path) -> None:
    slots = [WorkerSlot.take(tmp_path) for _ in range(3)]
    assert len({slot.worker for slot in slots}) == 3
    assert slots[0].living_neighbours() == {slot.instance for slot in slots}
    slots[1].free()
    assert WorkerSlot.take(tmp_path).worker == slots[1].worker
    for slot in slots:
        slot.free()


def test_a_slot_that_ended_in_order_is_no_dead_neighbour(tmp_path: Path) -> None:
    ours, other = WorkerSlot.take(tmp_path), WorkerSlot.take(tmp_path)
    other.free()
    assert list(ours.dead_neighbours()) == []
    assert ours.living_neighbours() == {ours.instance}
    ours.free()


def test_a_slot_whose_end_could_not_be_recorded_looks_dead(tmp_path: Path) -> None:
    ours, other = WorkerSlot.take(tmp_path), WorkerSlot.take(tmp_path)
    other.free(clean=False)
    assert [dead.worker for dead in ours.dead_neighbours()] == [other.worker]
    ours.free()


def test_a_killed_process_is_found_dead_once_and_a_frozen_one_never(tmp_path: Path) -> None:
    ours = WorkerSlot.take(tmp_path)
    pid, its = _child(tmp_path)
    os.kill(pid, signal.SIGSTOP)
    assert list(ours.dead_neighbours()) == []
    assert its in ours.living_neighbours()
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert ours.living_neighbours() == {ours.instance}
    assert len(list(ours.dead_neighbours())) == 1
    assert list(ours.dead_neighbours()) == []
    ours.free()


def test_a_dead_neighbour_stays_locked_while_it_is_dealt_with(tmp_path: Path) -> None:
    ours = WorkerSlot.take(tmp_path)
    pid, _ = _child(tmp_path)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    for dead in ours.dead_neighbours():
        newcomer = WorkerSlot.take(tmp_path)
        assert newcomer.worker != dead.worker
        assert list(newcomer.dead_neighbours()) == []
        newcomer.free()
    ours.free()


@pytest.mark.parametrize("content", [b"", b"\0" * 32, b"\xff\xfe\xfd", b"Z" * 32, b"e3" * 8])
def test_a_damaged_identity_is_made_anew(tmp_path: Path, content: bytes) -> None:
    slot = WorkerSlot.take(tmp_path)
    slot.free(clean=False)
    (tmp_path / "slot-0" / "worker").write_bytes(content)
    again = WorkerSlot.take(tmp_path)
    assert re.fullmatch("[0-9a-f]{32}", again.worker)
    assert again.worker != slot.worker
    again.free()


def test_a_dead_neighbour_of_another_database_is_left_to_that(tmp_path: Path) -> None:
    ours, other = WorkerSlot.take(tmp_path), WorkerSlot.take(tmp_path)
    other.free(clean=False)
    assert list(ours.dead_neighbours(lambda worker: False)) == []
    again = WorkerSlot.take(tmp_path)
    assert again.earlier == {other.instance}
    ours.free()
    again.free()


def test_instances_are_remembered_until_one_of_them_has_told_the_database(tmp_path: Path) -> None:
    """The first is the one on record; the others perhaps never got so far."""
    instances = []
    for _ in range(30):
        slot = WorkerSlot.take(tmp_path)
        assert instances[:1] == [one for one in instances[:1] if one in slot.earlier]
        assert set(instances[-20:]) <= slot.earlier and len(slot.earlier) <= 22
        instances.append(slot.instance)
        slot.free(clean=False)
    slot = WorkerSlot.take(tmp_path)
    slot.registered()
    assert slot.earlier == set()
    slot.free(clean=False)
    again = WorkerSlot.take(tmp_path)
    assert again.earlier == {slot.instance}
    again.free()
    assert WorkerSlot.take(tmp_path).earlier == set()


def test_a_neighbour_with_damaged_or_missing_files_hides_no_other(tmp_path: Path) -> None:
    ours, odd, dead, other = (WorkerSlot.take(tmp_path) for _ in range(4))
    (odd.directory / "instance").write_bytes(b"\xff\xfe")
    assert ours.living_neighbours() == {ours.instance, dead.instance, other.instance}
    odd.free(clean=False)
    (odd.directory / "lock").unlink()
    (odd.directory / "lock").mkdir()  # what cannot even be opened
    dead.free(clean=False)
    assert [one.worker for one in ours.dead_neighbours()] == [dead.worker]
    assert ours.living_neighbours() == {ours.instance, other.instance}
    ours.free()
    other.free()


def _child(home: Path) -> tuple[int, str]:
    """A process that holds a slot; returns its pid and its instance."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        slot = WorkerSlot.take(home)
        os.write(write, slot.instance.encode())
        signal.pause()
    instance = os.read(read, 100).decode()
    os.close(read)
    os.close(write)
    return pid, instance
