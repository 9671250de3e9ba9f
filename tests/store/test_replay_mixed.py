"""Journals replayed late, twice, in part and out of turn, among owners that go on working."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from scrapy_resume import faults
from scrapy_resume.exceptions import InjectedFault
from scrapy_resume.page import Shard
from scrapy_resume.store import leases
from scrapy_resume.store.leases import ClaimedShard
from scrapy_resume.store.records import Finish
from tests.store.journals import Slot, database_url
from tests.store.worlds import World, item, page

__all__ = ["database_url"]  # a fixture

PAGES, SHARDS = 12, 3
POINTS = ["replay.before", "replay.settled", "commit.before", "commit.after", "salvage.before"]


class Play:
    """A worker after the other reads three shards; each dies, and its journal lies about."""

    def __init__(self, world: World, directory: Path, seed: int) -> None:
        self.world, self.directory, self.dice = world, directory, random.Random(seed)
        self.task = world.plan([Shard(f"s{n}", 1, PAGES) for n in range(1, SHARDS + 1)])
        self.slots: list[Slot] = []
        self.marks: dict[int, tuple[int, int]] = {}

    def life(self, number: int) -> None:
        """A worker claims, commits some pages, journals others, and dies."""
        world, dice, name = self.world, self.dice, f"w{number}"
        slot = Slot(world, self.directory / name, worker=name)
        claimed = world.claim(self.task, worker=name, instance=f"{name}i")
        slot.hold(*claimed)
        for one in claimed:
            missing = list(one.position.missing(PAGES))[: dice.randint(0, PAGES)]
            stored = dice.randint(0, len(missing))
            for at in missing[:stored]:
                world.commit(self.read(one, at, number))
            slot.write(*(self.read(one, at, number) for at in missing[stored:]))
            if missing and missing[-1] == PAGES and dice.random() < 0.7:
                slot.write(Finish(one.id, one.fencing_token, "done", "all read"))
        self.slots.append(slot)

    def read(self, one: ClaimedShard, number: int, life: int) -> object:
        """A page as it was at that time: what it says changes with each reading."""
        keys = [f"{one.shard.key}-{number}-{n}" for n in (1, 2)]
        return page(one, number, *(item(key, read=life) for key in keys))

    def replay(self) -> None:
        """Replay some journal, perhaps an old copy of it, perhaps not to the end."""
        slot = self.dice.choice(self.slots)
        if self.dice.random() < 0.5:
            copy = Slot(self.world, slot.directory.with_name(f"copy{len(self.slots)}"), slot.worker)
            shutil.copytree(slot.directory, copy.directory, dirs_exist_ok=True)
            self.slots.append(copy)
        if self.dice.random() < 0.5:
            faults.arm(f"{self.dice.choice(POINTS)}:1:raise")
        try:
            list(slot.steps())
        except InjectedFault:
            pass
        finally:
            faults.arm(None)

    def check(self) -> None:
        """No watermark goes back, and every page at or below one is whole."""
        items = self.world.items()
        for shard_id in range(1, SHARDS + 1):
            row = self.world.shard(shard_id)
            mark = (row.fencing_token, row.cur_page)
            assert mark >= self.marks.get(shard_id, (0, 0)), "it went back"
            assert mark[1] >= self.marks.get(shard_id, (0, 0))[1], "it went back"
            self.marks[shard_id] = mark
            for number in range(1, row.cur_page + 1):
                assert {f"{row.shard_key}-{number}-{n}" for n in (1, 2)} <= items.keys()
            if row.status == "done":
                assert (row.cur_page, row.page_count) == (PAGES, PAGES)


def play(world: World, directory: Path, seed: int) -> None:
    game = Play(world, directory, seed)
    for number in range(1, 5):
        game.life(number)
        game.check()
        for _ in range(game.dice.randint(0, 2)):
            game.replay()
            game.check()
        leases.reclaim_worker(world.db, worker=f"w{number}", instance="another")
        if game.dice.random() < 0.5:
            game.replay()
            game.check()
    while last := world.claim(game.task, worker="last", instance="last1"):  # suspects come alone
        for one in last:
            for number in one.position.missing(PAGES):
                world.commit(game.read(one, number, 99))
            world.commit(Finish(one.id, one.fencing_token, "done", "all read"))
    game.check()
    before = world.items()
    for slot in list(game.slots):
        slot.replay()
    game.check()
    assert world.items() == before, "a late journal changed what was stored"
    assert len(before) == SHARDS * PAGES * 2


@pytest.mark.parametrize("seed", range(2))
def test_any_order_of_replays_comes_to_the_same(world: World, tmp_path: Path, seed: int) -> None:
    play(world, tmp_path, seed)


@pytest.mark.stress
@pytest.mark.parametrize("seed", range(100, 250))
def test_many_orders_of_replays_come_to_the_same(world: World, tmp_path: Path, seed: int) -> None:
    play(world, tmp_path, seed)
