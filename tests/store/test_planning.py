"""Planning: one process at a time, and nothing claimable before the plan is whole."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

from scrapy_resume.exceptions import ConfigurationError, LeaseLost
from scrapy_resume.page import Shard
from scrapy_resume.store import plans, tasks
from tests.proxy import Proxy
from tests.store.parallel import in_threads
from tests.store.worlds import World


def test_two_planners(world: World) -> None:
    task = world.open()
    first = tasks.claim_planning(world.db, task.id, worker="a", instance="a1", lease=15)
    assert first == 1
    assert tasks.claim_planning(world.db, task.id, worker="b", instance="b1", lease=15) is None
    assert tasks.renew_planning(world.db, task.id, first, 15)
    assert tasks.store_plan(world.db, task.id, first, [Shard("x")], default_site="s") == 1
    assert tasks.claim_planning(world.db, task.id, worker="b", instance="b1", lease=15) is None
    assert not tasks.renew_planning(world.db, task.id, first, 15)


def test_a_dead_planner_of_the_same_worker_is_taken_over_at_once(world: World) -> None:
    task = world.open()
    tasks.claim_planning(world.db, task.id, worker="a", instance="a1", lease=15)
    assert tasks.claim_planning(world.db, task.id, worker="a", instance="a2", lease=15) == 2


def test_a_dead_planners_shards_are_deleted_and_it_stores_nothing_more(world: World) -> None:
    task = world.open()
    dead = tasks.claim_planning(world.db, task.id, worker="a", instance="a1", lease=0)
    assert dead is not None

    def dies_half_way() -> Iterator[Shard]:
        yield from (Shard(f"old{n}") for n in range(1500))
        heir = tasks.claim_planning(world.db, task.id, worker="b", instance="b1", lease=15)
        assert heir is not None
        assert world.claim(task) == [], "nothing can be claimed before the plan is whole"
        tasks.store_plan(world.db, task.id, heir, [Shard("new")], default_site="s")
        yield from (Shard(f"late{n}") for n in range(10))

    with pytest.raises(LeaseLost, match="planning token 1"):
        tasks.store_plan(world.db, task.id, dead, dies_half_way(), default_site="s")
    assert [one.shard.key for one in world.claim(task)] == ["new"]
    assert not tasks.renew_planning(world.db, task.id, dead, 15)


def test_a_superseded_run_can_no_longer_be_planned(world: World) -> None:
    task = world.open()
    token = tasks.claim_planning(world.db, task.id, worker="a", instance="a1", lease=0)
    assert token is not None
    world.open("new")
    with pytest.raises(LeaseLost):
        tasks.store_plan(world.db, task.id, token, [Shard("x")], default_site="s")


def test_what_a_plan_stores(world: World) -> None:
    shards = [
        Shard("numbered", 3, 12, priority=-5, site="elsewhere", spec={"größe": [1, None]}),
        Shard("chain", cursor={"url": "http://x/?a=b"}, ordered=True),
        Shard("empty", 1, 0),
    ]
    task = world.plan(shards, bound="2024", signature="sig", max_attempts=3)
    assert (task.status, task.bound, task.signature) == ("running", "2024", "sig")
    assert task.planned_at is not None
    numbered, chain, empty = world.claim(task)
    assert numbered.shard == Shard("numbered", 3, 12, None, -5, "elsewhere",
                                   {"größe": [1, None]}, False)  # fmt: skip
    assert (numbered.position.cur_page, numbered.max_attempts) == (2, 3)
    assert chain.shard.cursor == {"url": "http://x/?a=b"}
    assert chain.position.cursor == '{"url":"http://x/?a=b"}'
    assert (chain.ordered, empty.ordered, empty.site) == (True, False, "site")
    assert (numbered.fencing_token, numbered.attempt_count, numbered.resumed) == (1, 1, False)


@pytest.mark.parametrize(
    ("shards", "message"),
    [
        ([Shard("a"), Shard("a")], "the shard key 'a' twice"),
        ([Shard(f"k{n}") for n in range(1000)] + [Shard("k7")], "the shard key 'k7' twice"),
        ([Shard("a", 5, 3)], "the pages 5 to 3"),
        ([Shard("")], "a key of 0 characters; allowed are 1 to 255"),
        ([Shard("x" * 256)], "a key of 256 characters; allowed are 1 to 255"),
        ([Shard("a", site="x" * 191)], "a site of 191 characters"),
        ([Shard("a", cursor={1, 2})], "a cursor that JSON cannot hold"),
        ([Shard("a", cursor=(1, 2))], "a cursor that JSON cannot hold"),
        ([Shard("a", spec=math.nan)], "a spec that JSON cannot hold"),
        ([Shard("a", spec={1: 2})], "a spec that JSON cannot hold"),
    ],
)
def test_a_plan_that_cannot_be_stored(world: World, shards: list[Shard], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        world.plan(shards)


def test_keys_that_differ_only_a_little_are_different_shards(world: World) -> None:
    task = world.plan([Shard("a"), Shard("A"), Shard("a "), Shard("á")])
    assert len(world.claim(task)) == 4


def chunk(first: int, count: int) -> list[Shard]:
    return [Shard(f"s{number}") for number in range(first, first + count)]


def plan_token(world: World, task_id: int, *, worker: str = "a", lease: float = 15) -> int:
    token = tasks.claim_planning(
        world.db, task_id, worker=worker, instance=f"{worker}1", lease=lease
    )
    assert token is not None
    return token


def test_a_plan_is_stored_chunk_by_chunk(world: World) -> None:
    task = world.open()
    token = plan_token(world, task.id)
    assert not tasks.clear_plan(world.db, task.id, token)
    for first in (1, 11, 11, 21):  # the second one twice, as after a lost reply
        tasks.add_shards(world.db, task.id, token, chunk(first, 10), first, default_site="s")
    tasks.add_shards(world.db, task.id, token, [], 31, default_site="s")
    assert world.claim(task) == []
    with pytest.raises(AssertionError, match="30 of 31 shards"):
        tasks.finish_plan(world.db, task.id, token, 31)
    tasks.finish_plan(world.db, task.id, token, 30, bound="b", signature="s")
    tasks.finish_plan(world.db, task.id, token, 30, bound="b", signature="s")
    claimed = world.claim(task)
    assert [one.shard_no for one in claimed] == list(range(1, 31))
    assert [one.shard.key for one in claimed] == [f"s{number}" for number in range(1, 31)]
    (row,) = tasks.find_tasks(world.db, task.id)
    assert (row.bound, row.signature, row.status) == ("b", "s", "running")


def test_a_key_of_an_earlier_chunk_is_named(world: World) -> None:
    task = world.open()
    token = plan_token(world, task.id)
    tasks.add_shards(world.db, task.id, token, chunk(1, 10), 1, default_site="s")
    again = [*chunk(11, 3), Shard("s4"), Shard("s12")]
    with pytest.raises(ConfigurationError, match="the shard key 's4' twice"):
        tasks.add_shards(world.db, task.id, token, again, 11, default_site="s")


def test_a_dead_planners_shards_are_deleted_in_parts(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plans, "_DELETED", 20)
    task = world.open()
    dead = plan_token(world, task.id, lease=0)
    tasks.add_shards(world.db, task.id, dead, chunk(1, 50), 1, default_site="s")
    heir = plan_token(world, task.id, worker="b")
    deleted = [tasks.clear_plan(world.db, task.id, heir) for _ in range(4)]
    assert deleted == [True, True, True, False]
    for late in (
        lambda: tasks.clear_plan(world.db, task.id, dead),
        lambda: tasks.add_shards(world.db, task.id, dead, chunk(51, 1), 51, default_site="s"),
        lambda: tasks.finish_plan(world.db, task.id, dead, 51),
    ):
        with pytest.raises(LeaseLost):
            late()
    tasks.add_shards(world.db, task.id, heir, chunk(1, 2), 1, default_site="s")
    tasks.finish_plan(world.db, task.id, heir, 2)
    assert len(world.claim(task)) == 2


def test_of_planners_at_the_same_moment_one_plans(world: World, database_url: str) -> None:
    task = world.open()
    won: list[int] = []

    def planning(name: str):  # type: ignore[no-untyped-def]
        def work(other: World) -> None:
            token = tasks.claim_planning(other.db, task.id, worker=name, instance=name, lease=15)
            if token is not None:
                won.append(tasks.store_plan(other.db, task.id, token, chunk(1, 2500),
                                            default_site="s"))  # fmt: skip

        return work

    in_threads(database_url, [planning(f"w{number}") for number in range(4)])
    assert won == [2500]
    assert world.sql("SELECT COUNT(*), MAX(shard_no) FROM resume_task_shard") == [(2500, 2500)]


@pytest.mark.parametrize("action", ["cut_after", "cut_before"])
@pytest.mark.parametrize("step", ["clear", "add", "finish"])
def test_txn_4_the_reply_of_a_step_of_planning_is_lost(
    relayed: World, mariadb_world: World, proxy: Proxy, action: str, step: str
) -> None:
    task = mariadb_world.open()
    dead = plan_token(mariadb_world, task.id, lease=0)
    tasks.add_shards(mariadb_world.db, task.id, dead, chunk(1, 5), 1, default_site="s")
    token = plan_token(mariadb_world, task.id, worker="b")
    proxy.rule("COMMIT", action, skip={"clear": 0, "add": 2, "finish": 4}[step])
    while tasks.clear_plan(relayed.db, task.id, token):
        pass
    for first in (1, 4):
        tasks.add_shards(relayed.db, task.id, token, chunk(first, 3), first, default_site="s")
    tasks.finish_plan(relayed.db, task.id, token, 6)
    assert [one.shard_no for one in mariadb_world.claim(task)] == [1, 2, 3, 4, 5, 6]
