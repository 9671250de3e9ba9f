"""What an idle worker learns of a run: what it may claim now or later, and what is not for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from scrapy_resume.intake import Intake, Waiting
from scrapy_resume.page import Shard
from scrapy_resume.store import leases, outlook
from scrapy_resume.store.checkpoints import Finish, Release
from scrapy_resume.store.leases import Outlook
from scrapy_resume.store.tasks import Task
from tests.store.worlds import World

FRESH, RESUMED = Intake.parse("fresh"), Intake.parse("resumed")


def look(world: World, task: Task, **options: Any) -> Outlook:
    """The outlook without its time, which differs from call to call."""
    found = leases.outlook(world.db, task.id, **({"instance": "w1"} | options))
    return replace(found, next_due=None)


def park(world: World, site: str) -> None:
    world.sql(
        "INSERT INTO resume_site_health (site, state, reason, updated_at)"
        " VALUES (:site, 'paused', 'a test', '2026-01-01')", site=site,
    )  # fmt: skip


@pytest.fixture
def mixed(world: World) -> Task:
    """Fresh shards of sites a and b; one each: waiting for a time, held by us, held elsewhere."""
    task = world.plan(
        [Shard(f"s{n}", site="ab"[n % 2], priority=n % 3) for n in range(1, 7)]
    )  # s1 b1, s2 a2, s3 b0, s4 a1, s5 b2, s6 a0
    _, late = world.claim(task, 2, instance="w1")
    world.claim(task, 1, worker="v", instance="v1")
    world.commit(Release(late.id, late.fencing_token, "503", "retryable", 3600.0))
    return task


def test_an_outlook_of_everything(world: World, mixed: Task) -> None:
    assert look(world, mixed) == Outlook(pending=4, running=2, due=3, leased_elsewhere=1)
    found = leases.outlook(world.db, mixed.id, instance="w1")
    assert found.next_due is not None and 3500 < found.next_due <= 3600


@pytest.mark.parametrize(
    ("intake", "due", "elsewhere", "other"),
    [
        (Intake.parse("", "0"), 0, 0, 4),
        (Intake.parse("", "1-2"), 3, 1, 2),
        (Intake.parse("", "2"), 2, 0, 4),
        (FRESH, 3, 1, 0),
        (RESUMED, 0, 1, 4),
        (Intake(sites=frozenset({"nowhere"})), 0, 0, 6),
    ],
)
def test_an_outlook_is_about_what_the_worker_takes(
    world: World, mixed: Task, intake: Intake, due: int, elsewhere: int, other: int
) -> None:
    found = look(world, mixed, intake=intake)
    assert (found.due, found.leased_elsewhere, found.other) == (due, elsewhere, other)
    assert (found.pending, found.running) == (4, 2)


def test_a_wait_for_others_shards_is_none_of_ours(world: World, mixed: Task) -> None:
    nowhere = Intake(sites=frozenset({"nowhere"}))
    found = leases.outlook(world.db, mixed.id, instance="w1", intake=nowhere)
    assert (found.next_due, found.leased_elsewhere) == (None, 0)


def test_a_running_shard_may_come_back_as_resumed(world: World) -> None:
    task = world.plan(2)
    one, _ = world.claim(task, 2, worker="v", instance="v1")
    world.sql("UPDATE resume_task_shard SET lane = 1 WHERE id = :id", id=one.id)
    assert look(world, task, intake=RESUMED) == Outlook(running=2, leased_elsewhere=2)
    assert look(world, task, intake=FRESH) == Outlook(running=2, leased_elsewhere=1, other=1)


def test_parked_sites_are_told_apart(world: World) -> None:
    task = world.plan([Shard(f"s{n}", site="ab"[n % 2]) for n in range(5)])
    park(world, "a")
    assert look(world, task) == Outlook(pending=5, due=2, parked=3)
    (held,) = world.claim(task, 1)
    world.commit(Release(held.id, held.fencing_token, "503", "retryable", 3600.0))
    world.sql("UPDATE resume_site_health SET site = 'b'")
    found = leases.outlook(world.db, task.id, instance="w1")
    assert (found.due, found.parked, found.next_due) == (3, 2, None)


def test_full_sites_are_told_apart(world: World) -> None:
    task = world.plan([Shard(f"s{n}", site="ab"[n % 2]) for n in range(6)])
    leases.claim(world.db, task.id, worker="v", instance="v1", limit=1, lease=60,
                 intake=Intake(sites=frozenset("a")))  # fmt: skip
    found = look(world, task, site_cap=1)
    assert (found.due, found.capped, found.leased_elsewhere) == (3, 2, 1)
    assert look(world, task, site_cap=2).due == look(world, task).due == 5


def test_final_shards_are_no_work(world: World) -> None:
    task = world.plan(3)
    for one, status in zip(world.claim(task), ("done", "failed", "failed"), strict=True):
        world.commit(Finish(one.id, one.fencing_token, status, "read"))
    assert look(world, task) == Outlook()
    world.sql("UPDATE resume_task SET desired = 'pause'")
    assert look(world, task).desired == "pause"


def test_counting_ends_somewhere(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outlook, "COUNTED", 5)
    found = look(world, world.plan(9), intake=RESUMED)
    assert (found.pending, found.due, found.other) == (5, 0, 5)


def test_what_waits_is_listed_in_order(world: World) -> None:
    before, task, behind = (world.plan(4, name=name) for name in ("before", "books", "behind"))
    ids = [row[0] for row in world.sql("SELECT id FROM resume_task_shard WHERE task_id = 2")]
    assert leases.waiting(world.db, task.id, after=0, limit=9) == [
        Waiting(number, "site", 0, 0) for number in ids
    ]
    world.claim(task, 1)
    assert [one.id for one in leases.waiting(world.db, task.id, after=0, limit=2)] == ids[1:3]
    assert [one.id for one in leases.waiting(world.db, task.id, after=ids[2], limit=2)] == ids[3:]
    assert leases.waiting(world.db, task.id, after=ids[3], limit=2) == []
    for other in (before, behind):
        assert len(leases.waiting(world.db, other.id, after=0, limit=9)) == 4
    assert leases.waiting(world.db, 4711, after=0, limit=2) == []


def test_nothing_waits_before_the_plan_is_whole_and_after_the_end(world: World) -> None:
    task = world.plan(2)
    world.sql("UPDATE resume_task SET status = 'planning', planned_at = NULL")
    assert leases.waiting(world.db, task.id, after=0, limit=9) == []
