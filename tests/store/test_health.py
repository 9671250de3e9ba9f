"""What operators say of sites, and the record of it."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
from sqlalchemy import text

from scrapy_resume.exceptions import ActRefused
from scrapy_resume.intake import Intake
from scrapy_resume.page import Shard
from scrapy_resume.store import health
from scrapy_resume.store.health import SiteRow
from scrapy_resume.store.records import Release
from tests.store.worlds import World

WHO = {"actor": "alice@desk", "reason": "they asked us to"}


@pytest.fixture
def world(world: World) -> World:
    """A run with shards on two sites."""
    world.plan([Shard("a", 1, 9, site="a.org"), Shard("b", 1, 9, site="b.org")])
    return world


def row(world: World, site: str = "a.org") -> SiteRow:
    (found,) = health.sites(world.db, [site])
    return found


def records(world: World) -> list[tuple[str, ...]]:
    rows = world.sql("SELECT * FROM resume_operation ORDER BY id")
    return [(r.kind, r.actor, r.reason, r.before, r.after) for r in rows]


def park(world: World, site: str = "a.org", kind: str = "blocked") -> int:
    """Give a claimed shard of *site* back for a long time; returns its id."""
    (task,) = world.sql("SELECT id FROM resume_task")
    (shard,) = world.claim(task, intake=Intake(sites=frozenset({site})))
    world.commit(Release(shard.id, shard.fencing_token, f"parked: {site} said no", kind, 900.0))
    return shard.id


def waiting(world: World, shard_id: int) -> bool:
    found = world.shard(shard_id)
    assert found.status == "pending"
    assert (found.due == 0) == (found.next_run_at is not None)
    return bool(found.next_run_at)


def test_a_paused_site_has_no_shard_handed_out(world: World) -> None:
    result = health.pause_site(world.db, "a.org", **WHO)
    assert (result.kind, result.task_ids, result.dry_run) == ("pause_site", (), False)
    assert result.counts == {"sites": 1}
    assert result.sentences == (
        "Site a.org is paused (it was healthy): they asked us to.",
        "Its shards are not handed out, and no attempt is spent.",
    )
    found = row(world)
    assert (found.state, found.reason, found.until, found.set_by) == (
        "paused", "they asked us to", None, "alice@desk",
    )  # fmt: skip
    (task,) = world.sql("SELECT id FROM resume_task")
    assert [one.site for one in world.claim(task)] == ["b.org"]
    assert records(world) == [
        ("pause_site", "alice@desk", "they asked us to", "a.org: healthy", "a.org: paused")
    ]


def test_a_pause_for_a_time_ends_by_itself(world: World) -> None:
    health.pause_site(world.db, "a.org", seconds=60, **WHO)
    found = row(world)
    assert found.until is not None
    assert found.until - found.updated_at == timedelta(seconds=60)
    assert records(world)[0][-1] == f"a.org: paused until {found.until:%Y-%m-%d %H:%M:%S} UTC"
    world.sql("UPDATE resume_site_health SET until = '2020-01-01 00:00:00.000000'")
    (task,) = world.sql("SELECT id FROM resume_task")
    assert len(world.claim(task)) == 2
    health.pause_site(world.db, "a.org", **WHO)  # it is over, so this one is not refused
    assert row(world).until is None


def test_an_unpaused_site_is_healthy_and_its_parked_shards_are_due(world: World) -> None:
    parked, elsewhere = park(world), park(world, "b.org")
    health.pause_site(world.db, "a.org", **WHO)
    result = health.unpause_site(world.db, "a.org", **WHO)
    assert result.counts == {"sites": 1, "shards": 1}
    assert "1 shard(s) that were parked for it are due at once." in result.sentences
    assert row(world).state == "healthy"
    assert (waiting(world, parked), waiting(world, elsewhere)) == (False, True)
    assert records(world)[-1][0] == "unpause_site"
    assert records(world)[-1][3:] == ("a.org: paused", "a.org: healthy")


def test_a_shard_that_waits_for_another_reason_goes_on_waiting(world: World) -> None:
    shard = park(world, kind="retryable")
    health.pause_site(world.db, "a.org", **WHO)
    assert health.unpause_site(world.db, "a.org", **WHO).counts == {"sites": 1}
    assert waiting(world, shard)


@pytest.mark.parametrize("state", ["healthy", "blocked", "paused"])
def test_a_site_may_be_set_whatever_it_was(world: World, state: str) -> None:
    seconds = None if state == "healthy" else 60.0
    for before in ("suspect", "blocked", "paused"):
        world.sql("DELETE FROM resume_site_health")
        world.sql(
            "INSERT INTO resume_site_health (site, state, reason, counters, updated_at) VALUES"
            " ('a.org', :state, 'so it is', '{}', '2020-01-01 00:00:00.000000')",
            state=before,
        )
        health.set_site(world.db, "a.org", state, seconds=seconds, **WHO)
        found = row(world)
        assert (found.state, found.reason, found.set_by) == (state, WHO["reason"], WHO["actor"])
        assert found.counters is None  # the window begins anew
        assert (found.until is None) == (seconds is None)
        assert records(world)[-1][3] == f"a.org: {before}"


def test_a_healthy_site_may_be_set_healthy_for_the_sake_of_its_parked_shards(world: World) -> None:
    shard = park(world)
    assert health.set_site(world.db, "a.org", "healthy", **WHO).counts["shards"] == 1
    assert not waiting(world, shard)
    with pytest.raises(ActRefused, match=r"site a\.org is healthy already: they asked us to"):
        health.set_site(world.db, "a.org", "healthy", **WHO)


def test_what_would_change_nothing_is_refused(world: World) -> None:
    with pytest.raises(ActRefused, match=r"site a\.org is not paused, it is healthy"):
        health.unpause_site(world.db, "a.org", **WHO)
    with pytest.raises(ActRefused, match="healthy already"):
        health.set_site(world.db, "a.org", "healthy", **WHO)
    health.pause_site(world.db, "a.org", **WHO)
    with pytest.raises(ActRefused, match=r"paused already: they asked us to; .*health set"):
        health.pause_site(world.db, "a.org", seconds=60, **WHO)
    with pytest.raises(ActRefused, match="paused already"):
        health.set_site(world.db, "a.org", "paused", **WHO)
    assert len(records(world)) == 1


@pytest.mark.parametrize(
    ("state", "seconds"), [("suspect", None), ("well", None), ("blocked", None), ("healthy", 60.0)]
)
def test_what_a_site_cannot_be_set(world: World, state: str, seconds: float | None) -> None:
    with pytest.raises(ActRefused):
        health.set_site(world.db, "a.org", state, seconds=seconds, **WHO)
    assert health.sites(world.db) == []
    assert records(world) == []


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_site_that_no_shard_has_is_refused(world: World, dry_run: bool) -> None:
    with pytest.raises(ActRefused, match=r"no shard has the site 'a\.rg'; did you mean a\.org"):
        health.pause_site(world.db, "a.rg", dry_run=dry_run, **WHO)
    assert health.sites(world.db) == []


def test_a_dry_run_says_the_same_and_changes_nothing(world: World) -> None:
    shard = park(world)
    before = health.set_site(world.db, "a.org", "blocked", seconds=60, dry_run=True, **WHO)
    assert (before.dry_run, before.counts) == (True, {"sites": 1})
    assert "Site a.org is blocked until 2" in before.sentences[0]
    health.pause_site(world.db, "a.org", **WHO)
    known, acts = row(world), records(world)
    result = health.unpause_site(world.db, "a.org", dry_run=True, **WHO)
    assert result.counts == {"sites": 1, "shards": 1}
    assert (row(world), records(world), waiting(world, shard)) == (known, acts, True)


def test_of_two_who_pause_at_once_one_is_refused(world: World) -> None:
    refused: list[str] = []

    def pause(who: str) -> None:
        try:
            health.pause_site(world.db, "a.org", actor=who, reason="mine")
        except ActRefused as error:
            refused.append(str(error))

    threads = [threading.Thread(target=pause, args=(f"p{n}",)) for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) == 1
    assert len(records(world)) == 1


def test_an_act_waits_for_one_that_is_under_way_and_sees_what_it_did(
    mariadb_world: World,
) -> None:
    world = mariadb_world
    world.plan([Shard("a", 1, 9, site="a.org")])
    health.set_site(world.db, "a.org", "blocked", seconds=60, **WHO)
    refused: list[str] = []

    def unpause() -> None:
        try:
            health.unpause_site(world.db, "a.org", **WHO)
        except ActRefused as error:
            refused.append(str(error))

    paused = "UPDATE resume_site_health SET state = 'paused', reason = :why"
    with world.db.transaction() as conn:
        conn.execute(text(paused), {"why": "the other one's"})
        waiter = threading.Thread(target=unpause)
        waiter.start()
        waiter.join(0.3)  # it would be long done if it did not wait
        assert waiter.is_alive()
    waiter.join()
    assert refused == []
    assert records(world)[-1][3].startswith("a.org: paused")


def test_shards_of_unfinished_runs_are_counted_by_site(world: World) -> None:
    (task,) = world.sql("SELECT id FROM resume_task")
    world.claim(task, intake=Intake(sites=frozenset({"a.org"})))
    over = world.plan([Shard("c", 1, 1, site="c.org")], name="over")
    world.sql(
        "UPDATE resume_task SET open_name = NULL, status = 'failed', verdict = 'incomplete',"
        " finished_at = updated_at WHERE id = :id",
        id=over.id,
    )
    assert health.open_shards(world.db) == {
        "a.org": {"pending": 0, "running": 1, "paused": 0},
        "b.org": {"pending": 1, "running": 0, "paused": 0},
    }
