"""Pages in a commit: watermarks, replays, refused rows, and endings in their order."""

from __future__ import annotations

import pytest
from sqlalchemy import event

from scrapy_resume.page import ErrorKind
from scrapy_resume.store import checkpoints, quarantine
from scrapy_resume.store.checkpoints import Finish, PageRecord, Release
from scrapy_resume.store.quarantine import QuarantineRecord
from tests.store.worlds import World, failure, item, page


def test_pages_ahead_of_a_hole_and_the_hole_filled(world: World) -> None:
    (one,) = world.claim(world.plan(1))
    world.commit(page(one, 2), page(one, 4), page(one, 5))
    row = world.shard(one.id)
    assert (row.cur_page, row.ahead, row.version, row.page_count) == (0, "2,4-5", 1, 3)
    world.commit(failure(one, 1))
    assert (world.shard(one.id).failed_pages, world.shard(one.id).version) == ("1", 1)
    world.commit(page(one, 1))
    row = world.shard(one.id)
    assert (row.cur_page, row.ahead, row.failed_pages, row.version) == (2, "4-5", "", 2)
    world.commit(page(one, 3))
    assert (world.shard(one.id).cur_page, world.shard(one.id).ahead) == (5, "")


def test_only_page_commits_raise_the_version(world: World) -> None:
    (one,) = world.claim(world.plan(1))
    world.commit(failure(one, 1))
    world.commit(Release(one.id, one.fencing_token, "stop"))
    assert world.shard(one.id).version == 0


def test_replaying_a_committed_page_changes_nothing(world: World) -> None:
    (one,) = world.claim(world.plan(1))
    start = dict(world.positions)
    first = page(one, 1, item("k", price=1))
    world.commit(first, page(one, 3))
    row = world.shard(one.id)
    for positions in (start, dict(world.positions)):
        changed = PageRecord(one.id, one.fencing_token, 1, (item("k", price=2),), dropped=3)
        result = checkpoints.commit(world.db, [changed, page(one, 3)], positions)
        assert not result.fenced
        assert result.written == 0
        assert result.positions[one.id] == world.positions[one.id]
    again = world.shard(one.id)
    assert (again.version, again.page_count, again.dropped_count) == (row.version, 2, 0)
    assert world.items()["k"] == {"key": "k", "price": 1}


def test_an_old_position_is_replaced_by_the_rows_own(world: World) -> None:
    (one,) = world.claim(world.plan(1))
    start = dict(world.positions)
    world.commit(page(one, 1))
    result = checkpoints.commit(world.db, [page(one, 1), page(one, 2)], start)
    assert (result.positions[one.id].cur_page, result.positions[one.id].version) == (2, 2)
    assert result.written == 2
    assert world.shard(one.id).page_count == 2


def test_a_replayed_ending_changes_nothing(world: World) -> None:
    one, two = world.claim(world.plan(2))
    start = dict(world.positions)
    records = [
        page(one, 1), Finish(one.id, one.fencing_token, "done", "read"),
        page(two, 1), Release(two.id, two.fencing_token, "stop", None, 60.0),
    ]  # fmt: skip
    world.commit(*records)
    before = [world.shard(one.id), world.shard(two.id)]
    result = checkpoints.commit(world.db, records, start)
    assert result.fenced == frozenset()
    assert [world.shard(one.id), world.shard(two.id)] == before


def test_after_its_ending_a_shard_takes_no_page(world: World) -> None:
    (one,) = world.claim(world.plan(1))
    world.commit(Finish(one.id, one.fencing_token, "failed", "broken"))
    assert world.commit(page(one, 1)).fenced == {one.id}
    assert world.commit(failure(one, 1)).fenced == {one.id}
    assert world.items() == {}


def test_records_of_an_earlier_claim_are_void(world: World) -> None:
    task = world.plan(1)
    (old,) = world.claim(task)
    world.commit(Release(old.id, old.fencing_token, "stop"))
    (new,) = world.claim(task)
    world.commit(page(old, 1), page(new, 2), Finish(old.id, old.fencing_token, "done", "x"))
    row = world.shard(new.id)
    assert (row.status, row.cur_page, row.ahead) == ("running", 0, "2")


def test_a_finish_does_not_overtake_its_pages(world: World) -> None:
    (one,) = world.claim(world.plan(1))
    result = world.commit(page(one, 1), Finish(one.id, one.fencing_token, "done", "end of list"))
    assert result.statuses == {one.id: "done"}
    row = world.shard(one.id)
    assert (row.status, row.reason, row.cur_page, row.worker) == ("done", "end of list", 1, None)
    assert row.checkpoint_at is not None


def test_progress_in_the_same_commit_gives_the_attempts_back(world: World) -> None:
    task = world.plan(1)
    (one,) = world.claim(task)
    world.commit(
        page(one, 2), failure(one, 1),
        Release(one.id, one.fencing_token, "page 1 held", "retryable", 30.0, True, "503"),
    )  # fmt: skip
    row = world.shard(one.id)
    assert (row.attempt_count, row.lane, row.status, row.due) == (0, 1, "pending", 0)


def test_what_was_set_aside_is_stored_with_its_page(world: World) -> None:
    task = world.plan(1)
    (one,) = world.claim(task)
    aside = QuarantineRecord(
        task.id, one.id, one.shard_no, 1, "request", "http://x/d/1", None, "HttpError", "500", 3
    )
    world.commit(page(one, 1, item("a"), quarantine=(aside,), dropped=4))
    row = world.shard(one.id)
    assert (row.written_count, row.quarantined_count, row.dropped_count) == (1, 1, 4)
    (stored,) = quarantine.find(world.db, task.id)
    assert (stored["kind"], stored["url"], stored["error"]) == ("request", "http://x/d/1", "500")
    assert stored["resolved_at"] is None


def poison(key: str) -> object:
    """A row that every database refuses: its payload is missing."""
    row = item(key)
    row.values["payload"] = None
    return row


def test_one_bad_row_goes_to_quarantine_and_the_others_are_stored(world: World) -> None:
    task = world.plan(2)
    one, two = world.claim(task)
    rows = [item(f"k{n:02}") for n in range(20)]
    rows[7] = poison("bad")
    result = world.commit(page(one, 1, *rows), page(two, 1), page(one, 2))
    assert (result.written, len(world.items())) == (19 + 2 + 2, 23)
    (rejected,) = result.rejected
    assert (rejected.page, rejected.kind, rejected.item_key) == (1, "row", "bad")
    assert (rejected.shard_id, rejected.shard_no, rejected.task_id) == (one.id, 1, task.id)
    (stored,) = quarantine.find(world.db, task.id)
    assert (stored["item_key"], stored["page"], stored["kind"]) == ("bad", 1, "row")
    row = world.shard(one.id)
    assert (row.written_count, row.quarantined_count, row.cur_page) == (21, 1, 2)
    assert result.positions[one.id].written_count == 21
    world.commit(page(one, 3))
    assert world.shard(one.id).written_count == 23


def test_a_bad_row_is_found_by_halving(world: World) -> None:
    (one,) = world.claim(world.plan(1))
    rows = [item(f"k{n:04}") for n in range(512)]
    rows[300] = poison("bad")
    statements: list[str] = []
    event.listen(
        world.db.engine, "before_cursor_execute",
        lambda conn, cursor, statement, *_: statements.append(statement),
    )  # fmt: skip
    world.commit(page(one, 1, *rows))
    inserts = [text for text in statements if text.startswith("INSERT INTO resume_item")]
    assert len(inserts) <= 1 + 2 * 9
    assert len(world.items()) == 511


def test_a_bad_row_does_not_take_a_good_one_of_its_key_with_it(world: World) -> None:
    task = world.plan(1)
    (one,) = world.claim(task)
    world.commit(page(one, 1, item("k", price=1)), page(one, 2, poison("k"), item("other")))
    assert world.items() == {"k": {"key": "k", "price": 1}, "other": {"key": "other"}}
    (stored,) = quarantine.find(world.db, task.id)
    assert (stored["item_key"], stored["page"]) == ("k", 2)


def test_with_hold_a_refused_row_holds_its_page(world: World) -> None:
    one, two = world.claim(world.plan(2))
    result = world.commit(
        page(one, 1, item("a"), poison("bad")), page(one, 2), page(two, 1),
        Finish(one.id, one.fencing_token, "done", "read"),
        hold_records=True,
    )  # fmt: skip
    ((shard_id, number, trouble),) = result.held
    assert (shard_id, number, trouble.item_key) == (one.id, 1, "bad")
    assert trouble.kind is ErrorKind.PERMANENT
    assert result.statuses == {}
    row = world.shard(one.id)
    assert (row.cur_page, row.ahead, row.status) == (0, "2", "running")
    assert "a" not in world.items()
    assert world.shard(two.id).cur_page == 1


def test_with_hold_a_chain_does_not_go_on_behind_its_held_page(world: World) -> None:
    (one,) = world.claim(world.plan(1, ordered=True))
    result = world.commit(
        page(one, 1, cursor='"p2"'), page(one, 2, poison("bad"), cursor='"p3"'),
        page(one, 3, cursor='"p4"'), hold_records=True,
    )  # fmt: skip
    assert [(number, trouble.item_key) for _, number, trouble in result.held] == [
        (2, "bad"), (3, None)
    ]  # fmt: skip
    row = world.shard(one.id)
    assert (row.cur_page, row.ahead, row.cursor) == (1, "", '"p2"')


def test_a_long_key_is_rejected_and_never_cut(world: World) -> None:
    task = world.plan(1)
    (one,) = world.claim(task)
    fits, long, twin = "x" * 512, "x" * 512 + "a", "x" * 512 + "b"
    world.commit(page(one, 1, item(fits), item(long), item(twin), item("größe" * 100)))
    assert set(world.items()) == {fits, "größe" * 100}
    stored = quarantine.find(world.db, task.id)
    assert [row["error"] for row in stored] == ["the key has 513 characters, 512 are kept"] * 2
    assert {row["item_key"] for row in stored} == {long, twin}


TEXTS = [
    "'; DROP TABLE x; --", "\\", "\\'", "a\x00b", "😎 咖啡", "%s %(a)s", "\n\r\t\x1a", '"', "`",
    "עברית", "\u2028",
]  # fmt: skip


@pytest.mark.parametrize("text", TEXTS)
def test_any_text_comes_back(world: World, text: str) -> None:
    (one,) = world.claim(world.plan(1))
    world.commit(page(one, 1, item(text, value=text), item("x" + text)))
    assert world.items()[text] == {"key": text, "value": text}


def test_half_a_character_is_a_rejected_row(world: World) -> None:
    task = world.plan(1)
    (one,) = world.claim(task)
    bad = item("k\ud83d")
    bad.values["payload"] = '"\ud83d"'
    world.commit(page(one, 1, bad, item("good")))
    assert set(world.items()) == {"good"}
    assert quarantine.find(world.db, task.id)[0]["item_key"] == "k?"
