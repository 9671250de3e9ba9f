"""Runs of many shards: statements and transactions stay small, and nothing reads all of them."""

from __future__ import annotations

import time
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import event

from scrapy_resume.page import Shard
from scrapy_resume.store import checkpoints, leases, tasks
from scrapy_resume.store.checkpoints import Finish
from scrapy_resume.store.connections import STATEMENT_BYTES
from tests.store.parallel import in_threads
from tests.store.worlds import World, item, page

MANY = 100_000


@contextmanager
def statements(world: World) -> Iterator[list[tuple[str, int]]]:
    """What is sent meanwhile: the text, and how many rows of parameters."""
    sent: list[tuple[str, int]] = []

    def note(conn: Any, cursor: Any, text: str, parameters: Any, context: Any, many: bool) -> None:
        sent.append((text, len(parameters) if many else 1))

    event.listen(world.db.engine, "before_cursor_execute", note)
    yield sent
    event.remove(world.db.engine, "before_cursor_execute", note)


def shards(count: int, sites: int = 1, pages: int = 9) -> Iterator[Shard]:
    return (Shard(f"s{n}", 1, pages, site=f"site{n % sites}", spec={"n": n}) for n in range(count))


def test_a_plan_is_stored_in_small_statements_and_little_memory(world: World) -> None:
    world.plan(10, name="warm")
    tracemalloc.start()
    with statements(world) as sent:
        task = world.plan(shards(5000))
    memory = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert max(rows for _, rows in sent) == 1000
    assert max(len(text) for text, _ in sent) < STATEMENT_BYTES
    assert len(sent) < 80
    assert memory < 12e6, "a thousand shards at once, not five thousand"
    assert len(leases.waiting(world.db, task.id, after=0, limit=9999)) == 5000


@pytest.mark.parametrize("done", [0, 3000])
def test_questions_of_a_large_run_cost_the_same_all_along(world: World, done: int) -> None:
    task = world.plan(shards(3000, sites=40))
    world.sql(
        "UPDATE resume_task_shard SET status = 'done', due = 0 WHERE shard_no <= :done", done=done
    )
    asked: dict[Callable[[], object], int] = {
        lambda: leases.outlook(world.db, task.id, instance="w"): 7,
        lambda: leases.raise_due(world.db): 4,
        lambda: leases.reap(world.db, actor="reaper"): 4,
        lambda: leases.expired_holders(world.db): 3,
        lambda: leases.waiting(world.db, task.id, after=0, limit=10): 5,
    }
    for ask, most in asked.items():
        with statements(world) as sent:
            ask()
        assert len(sent) <= most
        assert max(len(text) for text, _ in sent) < 10_000


def finish(world: World, found: list[leases.ClaimedShard]) -> None:
    """Commit the only page of each, and end it, a group of twenty at a time."""
    for at in range(0, len(found), 20):
        group = found[at : at + 20]
        pages = [page(shard, 1, item(shard.shard.key)) for shard in group]
        ends = [Finish(shard.id, shard.fencing_token, "done", "read") for shard in group]
        positions = {shard.id: shard.position for shard in group}
        checkpoints.commit(world.db, [*pages, *ends], positions)


def work_all(world: World, url: str, task: tasks.Task, workers: int) -> list[int]:
    """Claim and finish every shard of the run; returns the ids claimed."""
    claimed: list[int] = []

    def work(other: World, name: str) -> None:
        while True:
            found = leases.claim(
                other.db, task.id, worker=name, instance=name, limit=100, lease=600
            )
            claimed.extend(one.id for one in found)
            finish(other, found)
            if not found and not leases.outlook(other.db, task.id).due:
                return

    in_threads(url, [lambda other, n=n: work(other, f"w{n}") for n in range(workers)])  # type: ignore[misc]
    return claimed


@pytest.mark.stress
def test_a_run_of_100_000_shards(world: World, database_url: str) -> None:
    begun = time.monotonic()
    task = world.plan(shards(MANY, sites=3, pages=1))
    planned = time.monotonic() - begun
    listed, after, begun = 0, 0, time.monotonic()
    while found := leases.waiting(world.db, task.id, after=after, limit=5000):
        listed, after = listed + len(found), found[-1].id
    restored = time.monotonic() - begun
    begun = time.monotonic()
    leases.outlook(world.db, task.id)
    looked = time.monotonic() - begun
    tracemalloc.start()
    claimed = work_all(world, database_url, task, 4)
    memory = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert listed == MANY
    assert memory < 40e6, "a few hundred shards at once, and a list of 100,000 ids"
    assert tasks.finish_run(world.db, task.id).verdict == "complete"
    assert world.sql("SELECT COUNT(*) FROM resume_item") == [(MANY,)]
    assert Counter(claimed).most_common(1)[0][1] == 1 and len(claimed) == MANY
    assert (planned < 120, restored < 5, looked < 0.5) == (True, True, True)
    assert world.sql("SELECT DISTINCT fencing_token FROM resume_task_shard") == [(1,)]


@pytest.mark.stress
def test_100_000_shards_of_a_dead_planner_and_of_dead_workers(world: World) -> None:
    task = world.open()
    dead = tasks.claim_planning(world.db, task.id, worker="a", instance="a1", lease=0)
    assert dead is not None
    for first in range(0, MANY, 1000):
        chunk = [Shard(f"old{n}") for n in range(first, first + 1000)]
        tasks.add_shards(world.db, task.id, dead, chunk, first + 1, default_site="s")
    with statements(world) as sent:
        world.plan(shards(MANY))
    assert max(len(text) for text, _ in sent) < STATEMENT_BYTES
    few = world.plan(1, name="few")
    world.sql("UPDATE resume_task_shard SET status = 'running', due = 0, worker = 'w',"
              " instance = 'i', lease_until = '2020-01-01', fencing_token = 1")  # fmt: skip
    begun = time.monotonic()
    first_back = leases.reap(world.db, actor="reaper")
    assert few.id in [world.shard(number).task_id for number in first_back]
    assert len(first_back) == 1000 and time.monotonic() - begun < 30
