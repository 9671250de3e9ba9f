"""The reply of a COMMIT is lost: whether it happened is found out, and it counts once."""

from __future__ import annotations

import threading

import pytest

from scrapy_resume.store import groups, leases, migrate, quarantine
from scrapy_resume.store.checkpoints import Finish, Release
from scrapy_resume.store.engine import Database
from tests.proxy import Proxy
from tests.services import MariaDB
from tests.store.worlds import World, item, page


@pytest.fixture
def world(mariadb_world: World) -> World:
    return mariadb_world


@pytest.mark.parametrize("action", ["cut_after", "cut_before"])
def test_txn_4_the_reply_of_commit_is_lost(
    relayed: World, world: World, proxy: Proxy, action: str
) -> None:
    task = world.plan(2)
    one, two = relayed.claim(task)
    relayed.commit(page(one, 1))
    rule = proxy.rule("COMMIT", action)
    bad = item("bad")
    bad.values["payload"] = None
    result = relayed.commit(page(one, 2, item("a"), bad), page(two, 1))
    assert rule.met.is_set()
    assert result.retries == 1
    assert (result.written, len(result.rejected), result.fenced) == (3, 1, frozenset())
    row = world.shard(one.id)
    assert (row.version, row.cur_page, row.page_count) == (2, 2, 2)
    assert (row.written_count, row.quarantined_count) == (3, 1)
    assert result.positions[one.id] == relayed.positions[one.id]
    assert result.positions[one.id].version == 2
    assert len(quarantine.find(world.db, task.id)) == 1
    relayed.commit(page(one, 3), page(two, 2))
    assert world.shard(two.id).cur_page == 2


@pytest.mark.mutant
def test_txn_4_a_commit_that_does_not_ask_what_became_of_it_is_noticed(
    relayed: World, world: World, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups.Group, "_landed", lambda *_: False)
    with pytest.raises(AssertionError):
        test_txn_4_the_reply_of_commit_is_lost(relayed, world, proxy, "cut_after")


@pytest.mark.parametrize("action", ["cut_after", "cut_before"])
def test_txn_4_the_reply_for_an_ending_is_lost(
    relayed: World, world: World, proxy: Proxy, action: str
) -> None:
    one, two = relayed.claim(world.plan(2))
    proxy.rule("COMMIT", action)
    result = relayed.commit(
        Finish(one.id, one.fencing_token, "done", "read"),
        Release(two.id, two.fencing_token, "stop"),
    )
    assert result.statuses == {one.id: "done", two.id: "pending"}
    assert result.fenced == frozenset()
    assert (world.shard(one.id).status, world.shard(two.id).status) == ("done", "pending")
    assert world.shard(two.id).attempt_count == 0


def test_txn_4_a_commit_that_arrives_late_counts_once(
    relayed: World, world: World, proxy: Proxy
) -> None:
    (one,) = relayed.claim(world.plan(1))
    rule = proxy.rule("COMMIT", "late")
    # The client has given the connection up; its transaction still holds the row's lock.
    threading.Timer(1.5, rule.let_go).start()
    result = relayed.commit(page(one, 1))
    row = world.shard(one.id)
    assert (row.version, row.page_count, row.written_count) == (1, 1, 2)
    assert (result.written, result.fenced) == (2, frozenset())


@pytest.mark.parametrize("action", ["cut_after", "cut_before"])
def test_txn_4_a_claim_whose_reply_is_lost(
    relayed: World, world: World, proxy: Proxy, action: str
) -> None:
    task = world.plan(3)
    proxy.rule("COMMIT", action)
    claimed = relayed.claim(task, 2)
    assert [one.shard_no for one in claimed] == [1, 2]
    assert {world.shard(one.id).fencing_token for one in claimed} == {1}
    assert [one.fencing_token for one in claimed] == [1, 1]
    assert leases.outlook(world.db, task.id).running == 2
    assert relayed.commit(page(claimed[0], 1)).fenced == frozenset()


@pytest.mark.parametrize("action", ["cut_after", "cut_before"])
@pytest.mark.parametrize("skip", range(4))
def test_txn_4_a_plan_whose_reply_is_lost(
    relayed: World, world: World, proxy: Proxy, action: str, skip: int
) -> None:
    proxy.rule("COMMIT", action, skip=skip + 1)  # the first is that of opening the run
    task = relayed.plan(3)
    assert task.planned_at is not None
    assert len(world.claim(task)) == 3


@pytest.mark.parametrize("action", ["cut_after", "cut_before"])
@pytest.mark.parametrize("run", ["auto", "new", "a-name"])
def test_txn_4_a_run_whose_reply_is_lost_is_opened_once(
    relayed: World, world: World, proxy: Proxy, action: str, run: str
) -> None:
    proxy.rule("COMMIT", action)
    assert relayed.open(run).run_no == 1
    assert world.sql("SELECT COUNT(*) FROM resume_task") == [(1,)]


def test_the_database_goes_away_in_the_first_start(
    mariadb: MariaDB, mariadb_name: str, proxy: Proxy
) -> None:
    """In the middle of making the tables, with the lock that keeps others from it."""
    rule = proxy.rule(r"\s*CREATE TABLE", "cut_before", skip=2)
    db = Database.connect(mariadb.url(mariadb_name, port=proxy.port))
    migrate.ensure_schema(db)
    db.close()
    assert rule.met.is_set()
