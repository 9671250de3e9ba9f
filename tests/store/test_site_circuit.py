"""What workers judge of sites together: parked, tried by one of them, healthy for all."""

from __future__ import annotations

import threading
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from scrapy_resume.intake import Intake
from scrapy_resume.page import Shard
from scrapy_resume.sitework import SiteWork
from scrapy_resume.store import circuits, health, leases, tasks
from scrapy_resume.store.circuits import Parking
from scrapy_resume.store.columns import DIED
from scrapy_resume.store.records import Finish, Release
from scrapy_resume.store.siterows import SiteRow
from scrapy_resume.store.sites import look_parked
from scrapy_resume.verdict import Verdict
from tests.store.parallel import in_threads
from tests.store.worlds import World

PARKING = Parking(30.0, 100.0)
WHO = {"actor": "alice@desk", "reason": "they asked us to"}
SITE = "a.org"


@pytest.fixture
def world(world: World) -> World:
    """A run with three shards on one site and one on another."""
    world.plan([*(Shard(f"a{n}", 1, 9, site=SITE) for n in (1, 2, 3)), Shard("b", 1, 9, site="b")])
    return world


def judge(world: World, state: str = "blocked", reason: str = "403s", asked: float = 0) -> SiteRow:
    parking = Parking(PARKING.wait, PARKING.longest, asked)
    return circuits.judge_site(world.db, SITE, state, reason, parking=parking, by="worker w1")


def later(world: World, seconds: float) -> None:
    """Let so much time pass for the site, as far as its row tells."""
    health_ = world.db.tables.site_health
    (row,) = health.sites(world.db, [SITE])
    moved = {
        name: at - timedelta(seconds=seconds)
        for name in ("until", "updated_at", "probe_until")
        if (at := getattr(row, name)) is not None
    }
    with world.db.transaction() as conn:
        conn.execute(health_.update().where(health_.c.site == SITE).values(moved))


def tries(world: World, instance: str = "w1", lease: float = 15.0) -> bool:
    return circuits.claim_probe(world.db, SITE, instance=instance, lease=lease)


def tried(world: World, passed: bool, instance: str = "w1") -> SiteRow | None:
    return circuits.probe_result(
        world.db, SITE, passed, "it was tried", instance=instance, parking=PARKING, by=instance
    )


def waits(world: World, row: SiteRow) -> float:
    assert row.until is not None
    return round((row.until - row.updated_at).total_seconds(), 3)


def task(world: World) -> Any:
    return tasks.find_tasks(world.db, None)[0]


def claimed(world: World, **options: Any) -> list[str]:
    """The keys of what a claim gets, which is not kept."""
    got = leases.claim(
        world.db, task(world).id, worker="w", instance="w1", limit=9, lease=15.0, **options
    )
    world.positions.update({one.id: one.position for one in got})
    if got:
        world.commit(*(Release(one.id, one.fencing_token, "given back") for one in got))
    return sorted(one.shard.key for one in got)


def half_open(world: World) -> None:
    judge(world)
    later(world, 31)


# Parked


def test_a_blocked_site_has_no_shard_handed_out_to_anybody(world: World) -> None:
    row = judge(world)
    assert (row.state, row.reason, row.set_by, waits(world, row)) == ("blocked", "403s", None, 30)
    assert claimed(world) == ["b"]
    assert claimed(world, hints=[1, 2, 3, 4]) == ["b"]
    later(world, 31)
    assert claimed(world) == ["b"]  # it was not tried yet


def test_it_is_on_record_who_judged(world: World) -> None:
    judge(world)
    (act,) = world.sql("SELECT * FROM resume_operation")
    assert (act.kind, act.actor, act.reason) == ("site_blocked", "worker w1", "403s")
    assert act.before == "a.org: healthy" and act.after.startswith("a.org: blocked until ")


def test_what_others_see_meanwhile_parks_it_no_longer(world: World) -> None:
    first = judge(world)
    assert judge(world, reason="503s") == first
    later(world, 31)
    assert judge(world).until == health.sites(world.db, [SITE])[0].until
    assert len(world.sql("SELECT * FROM resume_operation")) == 1


def test_a_site_is_left_alone_for_as_long_as_it_asks_within_bounds(world: World) -> None:
    assert waits(world, judge(world, asked=70)) == 70
    world.sql("DELETE FROM resume_site_health")
    assert waits(world, judge(world, asked=3000)) == 100


def test_a_site_blocked_again_at_once_rests_for_longer(world: World) -> None:
    half_open(world)
    assert tries(world) and tried(world, True)
    later(world, 29)
    assert waits(world, judge(world)) == 60


def test_a_site_that_was_well_for_a_while_begins_anew(world: World) -> None:
    half_open(world)
    assert tries(world) and tried(world, True)
    later(world, 31)
    judge(world, "suspect", "2 pages without items")
    assert waits(world, judge(world)) == 30


def test_suspicion_is_told_and_ends_but_ends_no_block(world: World) -> None:
    assert judge(world, "suspect", "odd").state == "suspect"
    assert "a1" in claimed(world)
    assert judge(world, "healthy", "well").state == "healthy"
    assert world.sql("SELECT * FROM resume_operation") == []
    half_open(world)
    assert judge(world, "healthy", "well").state == "blocked"
    assert judge(world, "suspect", "odd").state == "blocked"


@pytest.mark.parametrize("state", ["blocked", "suspect", "healthy"])
def test_no_judgement_ends_an_operators_pause(world: World, state: str) -> None:
    health.pause_site(world.db, SITE, seconds=60, **WHO)
    before = health.sites(world.db, [SITE])
    assert judge(world, state).state == "paused"
    assert health.sites(world.db, [SITE]) == before
    assert claimed(world) == ["b"]


def test_a_pause_that_is_over_holds_nobody(world: World) -> None:
    health.pause_site(world.db, SITE, seconds=60, **WHO)
    later(world, 61)
    assert "a1" in claimed(world)
    assert judge(world).state == "blocked"


# Tried


def test_one_worker_at_a_time_may_try_it(world: World) -> None:
    judge(world)
    assert not tries(world)  # it is too early
    later(world, 31)
    assert tries(world, "w1")
    assert not tries(world, "w2")
    assert tries(world, "w1")
    assert look_parked(world.db)[SITE].prober == "w1"


def test_only_who_has_the_right_gets_a_shard_to_try_it_with(world: World) -> None:
    half_open(world)
    assert tries(world, "w2")
    only = {"intake": Intake(sites=frozenset({SITE})), "alone": False}
    assert claimed(world, tries=SITE, **only) == []  # w1 has not
    assert tried(world, False, "w2") is not None
    later(world, 61)
    assert tries(world, "w1")
    assert claimed(world) == ["b"]
    assert claimed(world, tries=SITE, **only) == ["a1", "a2", "a3"]


def test_of_many_who_come_at_once_one_may_try_it(world: World, database_url: str) -> None:
    half_open(world)
    got: list[str] = []

    def work(name: str) -> Any:
        return lambda mine: got.append(name) if tries(mine, name) else None

    in_threads(database_url, [work(f"w{n}") for n in range(6)])
    assert len(got) == 1


def test_a_dead_prober_keeps_the_right_for_a_lease(world: World) -> None:
    half_open(world)
    assert tries(world, "dead")
    later(world, 14)
    assert not tries(world, "w2")
    later(world, 2)
    assert tries(world, "w2")
    assert tried(world, True, "dead") is None  # it was frozen, and is too late
    assert health.sites(world.db, [SITE])[0].state == "blocked"
    assert tried(world, False, "w2") is not None


def test_a_living_prober_keeps_it(world: World) -> None:
    half_open(world)
    assert tries(world, "w1", lease=1.0)
    leases.renew(
        world.db, instance="w1", shards={}, lease=15.0, task_id=task(world).id, probes=[SITE]
    )
    later(world, 2)
    assert not tries(world, "w2")
    leases.renew(
        world.db, instance="w2", shards={}, lease=99.0, task_id=task(world).id, probes=[SITE]
    )
    later(world, 14)
    assert tries(world, "w2")  # nobody renews another's right


def test_a_right_that_is_given_back_is_free(world: World) -> None:
    half_open(world)
    assert tries(world, "w1")
    circuits.drop_probe(world.db, SITE, instance="w2")
    assert not tries(world, "w2")
    circuits.drop_probe(world.db, SITE, instance="w1")
    assert tries(world, "w2")


def test_a_site_that_fails_is_parked_for_twice_as_long_up_to_a_bound(world: World) -> None:
    half_open(world)
    for expected in (60, 100, 100):
        assert tries(world)
        row = tried(world, False)
        assert row is not None and waits(world, row) == expected
        assert (row.probe_instance, row.probe_until) == (None, None)
        assert not tries(world)
        later(world, expected + 1)


def test_a_site_that_passes_is_healthy_and_its_shards_are_due_at_once(world: World) -> None:
    shards = world.claim(task(world), intake=Intake(sites=frozenset({SITE})))
    judge(world)
    world.commit(*(Release(s.id, s.fencing_token, "parked", "blocked", 900.0) for s in shards[:2]))
    last = shards[2]
    world.commit(Release(last.id, last.fencing_token, "503", "retryable", 900.0, True))
    later(world, 31)
    assert tries(world)
    row = tried(world, True)
    assert row is not None
    assert (row.state, row.until, row.reason) == ("healthy", None, "it was tried")
    assert claimed(world) == ["a1", "a2", "b"]
    kinds = [act.kind for act in world.sql("SELECT kind FROM resume_operation ORDER BY id")]
    assert kinds == ["site_blocked", "site_healthy"]


def test_an_operators_word_ends_a_trial(world: World) -> None:
    half_open(world)
    assert tries(world)
    health.pause_site(world.db, SITE, **WHO)
    assert tried(world, True) is None
    assert claimed(world) == ["b"]
    health.set_site(world.db, SITE, "blocked", seconds=0.0, **WHO)
    assert tried(world, True) is None  # the right was for the block before


# What it means for a run


def test_a_heartbeat_tells_which_sites_are_parked(world: World) -> None:
    judge(world)
    health.pause_site(world.db, "b", **WHO)
    told = leases.renew(world.db, instance="w1", shards={}, lease=15.0, task_id=task(world).id)
    assert told.parked is not None
    assert {name: one.state for name, one in told.parked.items()} == {
        SITE: "blocked",
        "b": "paused",
    }
    left = told.parked[SITE].left
    assert left is not None and 20 < left <= 30
    assert told.parked["b"].left is None


def next_try(world: World, **options: Any) -> float | None:
    return leases.outlook(world.db, task(world).id, instance="w1", **options).next_try


def test_an_idle_worker_learns_when_a_site_may_be_tried(world: World) -> None:
    assert next_try(world) is None
    judge(world)
    left = next_try(world)
    assert left is not None and 20 < left <= 30
    assert next_try(world, intake=Intake(sites=frozenset({"b"}))) is None
    later(world, 31)
    assert next_try(world) == 0
    health.pause_site(world.db, SITE, **WHO)
    assert next_try(world) is None  # nobody knows
    health.set_site(world.db, SITE, "paused", seconds=60, **WHO)
    left = next_try(world)
    assert left is not None and 50 < left <= 60


def test_a_site_may_be_tried_once_a_shard_of_it_is_due(world: World) -> None:
    shards = world.claim(task(world), intake=Intake(sites=frozenset({SITE})))
    judge(world)
    world.commit(*(Release(s.id, s.fencing_token, "503", "retryable", 900.0) for s in shards))
    later(world, 31)
    left = next_try(world)
    assert left is not None and 850 < left <= 900


def test_a_run_with_nothing_but_a_blocked_site_left_is_blocked(world: World) -> None:
    judge(world)
    verdict, _ = tasks.read_verdict(world.db, task(world).id)
    assert verdict is Verdict.NOTHING_READ  # the other site's shard is not blocked
    (other,) = world.claim(task(world))
    world.commit(Finish(other.id, other.fencing_token, "done", "read"))
    assert tasks.read_verdict(world.db, task(world).id) == (
        Verdict.BLOCKED,
        "3 shards not done, blocked: 3 pending (parked: site a.org is blocked: 403s)",
    )
    health.pause_site(world.db, SITE, **WHO)
    assert tasks.read_verdict(world.db, task(world).id)[0] is Verdict.NOTHING_READ


def test_two_judge_at_once_and_it_is_parked_once(world: World, database_url: str) -> None:
    done = threading.Event()
    in_threads(database_url, [lambda mine: judge(mine) and done.set()] * 4)  # type: ignore[list-item]
    (row,) = health.sites(world.db, [SITE])
    assert waits(world, row) == 30
    assert len(world.sql("SELECT * FROM resume_operation")) == 1


@pytest.mark.parametrize("alone", [True, False])
def test_a_site_with_nothing_but_a_suspect_is_tried_by_who_holds_nothing(
    world: World, alone: bool
) -> None:
    """Else nobody would ever try it: no claim takes a shard of a blocked site."""
    judge(world)
    world.sql(
        "UPDATE resume_task_shard SET attempt_count = 2, reason = :why WHERE site = :site",
        why=DIED, site=SITE,
    )  # fmt: skip
    later(world, 31)
    slot = SimpleNamespace(instance="w1", worker="w")
    settings = SimpleNamespace(lease=15.0, intake=Intake(), site_shards=0)
    work = SiteWork(world.db, cast(Any, settings), cast(Any, slot))
    right, got = work.claim_probe(task(world).id, SITE, alone)
    assert right
    assert (got is not None and got.suspect) is alone
    assert (look_parked(world.db)[SITE].prober == "w1") is alone


def test_a_claim_leaves_out_the_sites_that_it_is_told_to(world: World) -> None:
    assert claimed(world, without={SITE}) == ["b"]
    ids = [row.id for row in world.sql("SELECT id FROM resume_task_shard")]
    assert claimed(world, without={"b"}, hints=ids) == ["a1", "a2", "a3"]
