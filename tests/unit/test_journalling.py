"""Pages go into the journal first: their places are free then, and the commit follows."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import Deferred

from scrapy_resume import backlog, committer
from scrapy_resume.exceptions import StoreUnavailable
from scrapy_resume.store.checkpoints import Finish, PageRecord, Release
from tests.unit.journals import World, page, world
from tests.unit.test_walks import claimed

__all__ = ["world"]

AWAY = StoreUnavailable("the database is away", {"reconnects": 2})
STOP = Release(1, 1, "released: the crawl was stopped")


def outcomes(done: list[Any]) -> list[str]:
    return [one.result.status if one.called else "waits" for one in done]


def test_a_page_is_let_go_once_the_journal_holds_it_and_committed_later(world: World) -> None:
    world.keep()
    world.pressing = False
    done = world.submit(page(1), page(2))
    world.pass_time(0.1)
    assert (world.let_go, outcomes(done), world.stored) == ([1, 2], ["waits"] * 2, [])
    assert (world.journal.pages, world.stats["journal/syncs"]) == (2, 1)
    world.pass_time(2)
    assert (outcomes(done), world.stored) == (["committed"] * 2, [1, 2])
    assert world.journal.pages == 0


def test_what_is_said_of_a_shard_keeps_its_order(world: World) -> None:
    world.keep()
    world.submit(page(1), page(2), Finish(1, 1, "done", "read"))
    world.work()
    assert world.stored == [1, 2, "Finish"]
    assert world.journal.bases() == {}


def test_where_a_shard_stands_moves_with_what_is_forgotten(world: World) -> None:
    made = world.keep()
    world.submit(page(1))
    world.work()
    world.submit(page(2))
    world.disk.work()
    world.committer.lose(7)  # of no shard of ours
    world.disk.work()
    base = made.base_of(1)
    assert base is not None and base.position.cur_page == 1
    assert list(world.journal.bases()) == [1]
    world.committer.lose(1)
    world.work()
    world.journal.flush()
    assert (world.journal.bases(), made.base_of(1)) == ({}, None)


def test_bodies_leave_the_memory_and_come_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backlog, "IN_MEMORY", 2)
    world.keep()
    world.refuse = AWAY
    pages = [page(number, rows=3) for number in range(1, 9)]
    done = world.submit(*pages)
    world.work()
    held = [one.record for one in world.committer._queue._waiting]
    assert held == [pages[1], *[None] * 6]  # the first is on its way
    world.refuse = None
    world.pass_time(10)
    assert world.stored == list(range(1, 9))
    assert [record for group in world.commits for record in group] == pages
    assert outcomes(done) == ["committed"] * 8


def test_a_page_that_the_journal_lost_is_read_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backlog, "IN_MEMORY", 0)
    world.keep()
    world.pressing = False
    done = world.submit(*(page(number) for number in range(1, 6)))
    world.fire()  # all of them are appended at once
    world.journal.lost = {2}
    world.work()
    world.pass_time(5)
    assert world.stored == [1, 3, 4, 5]
    assert outcomes(done) == ["committed", "refused", *["committed"] * 3]
    assert done[1].result.trouble.error_class == "JournalFailed"


def test_at_the_quota_the_crawl_halts_until_half_of_it_is_stored(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    made = world.keep(pages=8)
    world.refuse = AWAY
    world.submit(*(page(number) for number in range(1, 8)))
    world.work()
    assert not made.halted
    world.submit(page(8), page(9), page(10))
    world.work()
    assert made.halted and world.stats["journal/full"] == 1
    world.refuse = None
    halted_at = []
    commit = world.committer._commit

    def spied(records: Any, positions: Any) -> Any:
        halted_at.append((made.backlog.pages, made.halted))
        return commit(records, positions)

    world.committer._commit = spied
    world.pass_time(10)
    assert halted_at == [(9, True), (6, True), (3, False)]  # before each group but the first
    said = [text for text in caplog.messages if text.startswith("The journal")]
    assert len(said) == 2 and "is full: 8 pages" in said[0] and "3 pages are left" in said[1]


def test_the_quota_counts_bytes_too(world: World) -> None:
    made = world.keep(size=1)
    world.submit(page(1))
    world.disk.work()
    assert made.halted
    world.work()
    assert not made.halted and world.woken


def test_a_full_disk_halts_the_crawl_and_loses_nothing(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    made = world.keep()
    world.journal.full = True
    done = world.submit(page(1), page(2))
    world.work()
    assert (world.stored, outcomes(done)) == ([1, 2], ["committed"] * 2)
    assert made.halted and world.let_go == []  # they keep their places until their COMMIT
    world.pass_time(20)
    assert made.halted and not world.failures
    assert caplog.text.count("the disk is full") == 1
    world.journal.full = False
    world.pass_time(10)
    assert not made.halted
    world.submit(page(3))
    world.disk.work()
    assert world.let_go == [3]
    assert caplog.text.count("can be written again") == 1


def test_a_stop_does_not_wait_for_a_disk_that_has_room_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal is looked at in the moment in which everything else is done."""
    monkeypatch.setattr(committer, "maybe_deferred_to_future", lambda waiting: waiting)
    world.keep()
    world.journal.full = True
    world.submit(page(1))
    world.work()
    world.journal.full = False
    world.fire()
    assert world.disk.calls and world.stored == [1]
    done = Deferred.fromCoroutine(world.committer.drained())
    assert not done.called
    world.work()
    assert done.called


def test_a_full_disk_while_the_database_is_away_keeps_pages_until_either_works(
    world: World,
) -> None:
    made = world.keep()
    world.journal.full, world.refuse = True, AWAY
    done = world.submit(*(page(number) for number in range(1, 6)))
    world.work()
    assert outcomes(done) == ["waits"] * 5 and made.halted
    world.journal.full = False
    world.pass_time(10)
    assert world.let_go == [4, 5] and not made.halted  # the others are on their way
    world.refuse = None
    world.pass_time(10)
    assert world.stored == [1, 2, 3, 4, 5]


def test_neither_journal_nor_database_ends_the_crawl(world: World) -> None:
    world.keep()
    world.journal.full, world.refuse = True, AWAY
    done = world.submit(page(1), page(2))
    world.work()
    world.pass_time(90)
    assert world.failures
    assert outcomes(done) == ["unstored"] * 2


def test_what_the_database_does_not_take_in_time_is_left_in_the_journal(world: World) -> None:
    made = world.keep()
    world.refuse = AWAY
    done = world.submit(*(page(number) for number in range(1, 6)))
    world.work()
    world.pass_time(90)
    assert (outcomes(done), world.failures) == (["left"] * 5, [AWAY])
    done = world.submit(page(6), STOP)
    world.work()
    assert (outcomes(done), world.let_go[-1]) == (["left"] * 2, 6)
    assert made.backlog.pages == world.journal.pages == 6
    assert [one.kind for one in world.journal.entries()] == ["page"] * 6


def test_the_journal_does_not_say_that_a_shard_is_given_back_for_a_mere_stop(world: World) -> None:
    """Any start gives it back; one without a database reads it on."""
    world.keep()
    world.refuse = AWAY
    blocked = Release(1, 1, "the site is blocked", "blocked", 30.0)
    world.submit(page(1), STOP, blocked)
    world.disk.work()
    assert [one.kind for one in world.journal.entries()] == ["page", "release"]
    world.refuse = None
    world.work()
    assert world.stored == [1, "Release", "Release"]


def test_a_stop_in_an_outage_is_no_failure_of_the_store(world: World) -> None:
    world.keep()
    world.refuse = AWAY
    done = world.submit(page(1))
    world.work()
    world.committer.hurry(5)
    world.work()
    world.pass_time(10)
    assert (outcomes(done), world.failures) == (["left"], [])


def test_a_stop_in_an_outage_with_nothing_read_is_none_either(world: World) -> None:
    world.keep()
    world.refuse = AWAY
    done = world.submit(STOP)
    world.committer.hurry(5)
    world.work()
    world.pass_time(10)
    assert (outcomes(done), world.failures) == (["left"], [])


@pytest.mark.parametrize("stops", [True, False])
def test_pages_that_cannot_be_salvaged_now_are_kept_for_the_next_start(
    world: World, stops: bool
) -> None:
    """Which the process says, so its slot does not count as one that ended in order."""
    made = world.keep()
    world.fenced = {1}

    def away(lost: Any) -> None:
        raise AWAY

    world.committer._salvage = away
    world.submit(page(1))
    world.work()
    if stops:
        world.committer.hurry(5)
    world.pass_time(90)
    world.journal.flush()
    assert [one.page for one in world.journal.entries()] == [1]
    assert made.backlog.records == 1
    assert world.failures == ([] if stops else [AWAY])  # or the journal would only grow from now


def test_a_stop_does_not_store_for_longer_than_its_grace(world: World) -> None:
    """What is said of other shards later does not make what is left be forgotten."""
    made = world.keep()
    world.committer.hold(claimed(last=100).__class__(**{**_parts(), "id": 2}))
    world.pressing = False
    done = world.submit(*(page(number) for number in range(1, 8)), Finish(2, 1, "done", "read"))
    world.fire()
    world.disk.work()
    world.committer.hurry(5)
    world.now += 6
    world.work()  # a slow database: the first group took all of the grace
    done += world.submit(STOP)
    world.work()
    assert world.stored == [1, 2, 3, "Finish"]
    assert outcomes(done) == [*["committed"] * 3, *["left"] * 4, "committed", "left"]
    world.journal.flush()
    assert [one.page for one in world.journal.entries()][:4] == [4, 5, 6, 7]
    assert made.backlog.pages == 4


def _parts() -> dict[str, Any]:
    one = claimed(last=100)
    return {name: getattr(one, name) for name in one.__dataclass_fields__}


def test_pages_of_a_shard_that_is_anothers_are_salvaged_before_they_are_forgotten(
    world: World,
) -> None:
    world.keep()
    world.fenced = {1}
    done = world.submit(page(1), page(2))
    world.disk.work()
    world.database.work()
    assert outcomes(done) == ["fenced"] * 2
    assert [record.page for record, _ in world.salvaged] == [1, 2]
    assert all(base is not None and base.fencing_token == 1 for _, base in world.salvaged)
    world.work()
    assert world.journal.pages == 0


def test_a_page_that_json_cannot_hold_is_committed_without_the_journal(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.keep()
    odd = PageRecord(1, 1, 2, (page(2).rows[0].__class__(None, ("x",), {"x": object()}),))
    world.submit(page(1), odd, page(3))
    world.work()
    assert world.stored == [1, 2, 3]
    assert world.let_go == [1, 3]
    assert "not in the journal" in caplog.text


def test_after_an_outage_commits_wait_for_the_heartbeat(world: World) -> None:
    world.keep()
    missing = True
    world.committer.patience.holds_back = lambda: missing
    world.refuse = AWAY
    done = world.submit(page(1))
    world.work()
    world.refuse = None
    world.pass_time(20)
    assert outcomes(done) == ["waits"]
    missing = False
    world.committer.patience.go_on()
    world.work()
    assert outcomes(done) == ["committed"]


def test_a_heartbeat_that_never_comes_does_not_keep_commits_for_ever(world: World) -> None:
    world.keep()
    world.committer.patience._seconds = 600
    world.committer.patience.holds_back = lambda: True
    world.refuse = AWAY
    done = world.submit(page(1))
    world.work()
    world.refuse = None
    world.pass_time(70)
    assert outcomes(done) == ["committed"]
