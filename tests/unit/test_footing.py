"""Where a dead instance stood: told by its journal and its mirror, and only to its successor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from scrapy_resume import footing, journalcodec, journalnotes
from scrapy_resume.exceptions import JournalFailed
from scrapy_resume.footing import Wanted
from scrapy_resume.journal import Journal
from scrapy_resume.page import ErrorKind, Shard, Trouble, Where
from scrapy_resume.redismirror import Mirrored
from scrapy_resume.standin import StandIn
from scrapy_resume.store.checkpoints import Finish, PageFailure, PageRecord, Record, Release
from scrapy_resume.store.items import ItemTable, Row
from scrapy_resume.store.leases import ClaimedShard
from scrapy_resume.store.tasks import Task
from scrapy_resume.watermark import PageRanges, Position

TASK = Task(
    id=7, name="books", spider="books", args="{}", run_no=1, run_name=None, priority=0,
    status="running", desired="run", reason="", verdict=None, bound=None, signature=None,
    planned_at=datetime(2026, 1, 1), started_at=datetime(2026, 1, 1), finished_at=None,
)  # fmt: skip
WANTED = Wanted("books", "auto", "here", {"dead", "stillborn"})
OURS = journalnotes.of_rows([ItemTable("book", key=["isbn"])], "quarantine")
NOTHING: tuple[bytes, list[Mirrored]] = (b"", [])


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    journal = Journal.open(tmp_path / "journal.db", meta={"address": "here"})
    journal.set_meta("task", journalcodec.dump_task(TASK).decode())
    yield journal
    journal.close()


def shard(number: int = 1, page: int = 3, **given: Any) -> ClaimedShard:
    """A shard of which three pages are committed."""
    claimed = ClaimedShard(
        number, TASK.id, number, Shard(f"s{number}", 1, 99), Position(page, page), False, 5, 1, 10,
        False, "site",
    )  # fmt: skip
    return replace(claimed, **given)


def page(number: int, token: int = 5, **given: Any) -> PageRecord:
    return PageRecord(1, token, number, (), **given)


def keep(journal: Journal, *records: Record, base: ClaimedShard | None = None) -> None:
    """What the dead instance did: hold a shard, and journal *records*."""
    held = base or shard()
    journal.trim(0, {held.id: journalcodec.dump_shard(held)})
    entries = [(one.shard_id, one.fencing_token, *journalcodec.dump(one)) for one in records]
    journal.append([(shard_id, token, kind, None, body) for shard_id, token, kind, body in entries])


def mirror(*shards: ClaimedShard, task: Task = TASK, **given: str) -> tuple[bytes, list[Mirrored]]:
    of = footing.origin(given.get("address", "here"), given.get("instance", "dead"), task)
    return of, [
        Mirrored(one.id, one.fencing_token, one.position.version, journalcodec.dump_shard(one))
        for one in shards
    ]


def found(
    journal: Journal, mirrored: tuple[bytes, Sequence[Mirrored]] = NOTHING, wanted: Wanted = WANTED
) -> dict[int, tuple[int, int]]:
    """Token and watermark of what is read on."""
    shards = footing.find(journal, mirrored, wanted)
    return {one.id: (one.fencing_token, one.position.cur_page) for one in shards}


def test_a_base_and_what_was_read_since(journal: Journal) -> None:
    keep(journal, page(3), page(5), page(4), page(7))
    (one,) = footing.find(journal, NOTHING, WANTED)
    assert (one.position.cur_page, one.position.ahead) == (5, PageRanges(((7, 7),)))
    assert one.position.version > 3 and one.resumed


def test_a_chain_goes_on_with_the_last_cursor(journal: Journal) -> None:
    chain = shard(ordered=True, position=Position(3, 3, '"c4"'))
    keep(
        journal, page(4, ordered=True, cursor='"c5"', digests="d"),
        page(5, ordered=True, cursor='"c6"', digests="e"), base=chain,
    )  # fmt: skip
    (one,) = footing.find(journal, NOTHING, WANTED)
    assert (one.position.cur_page, one.position.cursor, one.position.digests) == (5, '"c6"', "e")


def test_a_list_that_ended_is_read_no_further(journal: Journal) -> None:
    keep(journal, page(5), page(4, ends=True))
    (one,) = footing.find(journal, NOTHING, WANTED)
    assert (one.shard.last_page, one.position.cur_page) == (4, 4)


TROUBLE = Trouble(Where.PAGE, ErrorKind.RETRYABLE, "TimeoutError", "late")


@pytest.mark.parametrize(
    "records",
    [
        [page(4), Finish(1, 5, "done", "all read")],
        [page(4), Release(1, 5, "held", "retryable", 9.0, True, "late")],
        [page(4), page(5, token=6)],  # of a claim whose base is not known
        [page(4, ordered=True), page(6, ordered=True)],
    ],
    ids=["finished", "given back", "claimed again", "hole"],
)
def test_what_is_not_ours_to_read_on(journal: Journal, records: list[Record]) -> None:
    keep(journal, *records)
    assert found(journal) == {}


def test_what_nobody_understands_is_left_alone(journal: Journal) -> None:
    keep(journal, page(4))
    journal.append([(1, 5, "page", 5, b"of a newer version")])
    keep(journal, base=shard(2))
    journal.trim(0, {3: b"of a newer version"})
    assert found(journal) == {2: (5, 3)}


def test_a_held_page_moves_nothing(journal: Journal) -> None:
    keep(journal, PageFailure(1, 5, 4, TROUBLE), page(5))
    assert found(journal) == {1: (5, 3)}


def test_a_page_that_may_have_killed_its_process_is_not_asked_for(journal: Journal) -> None:
    keep(journal, base=shard(suspect=True))
    assert found(journal) == {}
    keep(journal, page(4), base=shard(suspect=True))
    assert found(journal) == {1: (5, 4)}  # it was not this one


@pytest.mark.parametrize(
    ("position", "token", "stands"),
    [(2, 5, 4), (4, 5, 4), (6, 5, 6), (1, 6, 1), (9, 4, 4)],
)
def test_of_journal_and_mirror_the_later_claim_counts_then_the_later_position(
    journal: Journal, position: int, token: int, stands: int
) -> None:
    keep(journal, page(4))
    mirrored = shard(page=position, position=Position(position, position), fencing_token=token)
    assert found(journal, mirror(mirrored, shard(2, position=Position(8, 8)))) == {
        1: (max(5, token), stands), 2: (5, 8),
    }  # fmt: skip


def test_what_the_mirror_alone_knew_the_journal_knows_now(journal: Journal, tmp_path: Path) -> None:
    journal.set_meta("task", "")
    assert found(journal, mirror(shard(2))) == {2: (5, 3)}
    assert found(journal) == {2: (5, 3)}


@pytest.mark.parametrize(
    "given", [{"address": "elsewhere"}, {"instance": "another"}], ids=["database", "instance"]
)
def test_a_mirror_of_another(journal: Journal, given: dict[str, str]) -> None:
    assert found(journal, mirror(shard(), **given)) == {}
    assert found(journal, (b"nonsense", mirror(shard())[1])) == {}


@pytest.mark.parametrize(
    ("wanted", "task"),
    [
        (replace(WANTED, task="films"), TASK),
        (replace(WANTED, run="new"), TASK),
        (replace(WANTED, run="2026-01"), TASK),
        (replace(WANTED, sites={"other"}), TASK),
        (replace(WANTED, earlier=()), TASK),
        (WANTED, replace(TASK, finished_at=datetime(2026, 1, 2))),
        (WANTED, replace(TASK, desired="pause")),
        (WANTED, replace(TASK, id=8)),
    ],
    ids=["task", "new run", "named run", "site", "ended", "over", "paused", "older run"],
)
def test_what_this_crawl_would_not_resume(journal: Journal, wanted: Wanted, task: Task) -> None:
    keep(journal)
    assert found(journal, mirror(shard(2))) == {1: (5, 3), 2: (5, 3)}
    journal.trim(0, {2: None})
    journal.set_meta("task", journalcodec.dump_task(task).decode())
    assert found(journal, mirror(shard(2), task=task), wanted) == {}


def test_the_named_run_is_resumed(journal: Journal) -> None:
    task = replace(TASK, run_name="2026-01")
    journal.set_meta("task", journalcodec.dump_task(task).decode())
    keep(journal)
    assert found(journal, wanted=replace(WANTED, run="2026-01")) == {1: (5, 3)}


def test_pages_for_other_tables_do_not_join_those_in_the_journal(journal: Journal) -> None:
    assert footing.obstacle(journal, {**OURS, "on_failed_record": "hold"}) is None
    assert footing.obstacle(journal, OURS) is None  # it is empty
    keep(journal, page(4))
    assert footing.obstacle(journal, OURS) is None
    for other in (journalnotes.of_rows([], "quarantine"), {**OURS, "on_failed_record": "hold"}):
        assert "other item tables" in str(footing.obstacle(journal, other))


def test_starts_that_keep_nothing_come_to_an_end(journal: Journal, tmp_path: Path) -> None:
    assert footing.obstacle(journal, OURS) is None
    keep(journal, page(4))
    assert [footing.obstacle(journal, OURS) for _ in range(3)] == [None] * 3
    journal.close()
    again = Journal.open(tmp_path / "journal.db", meta={})
    assert footing.obstacle(again, OURS) == "the last 3 starts kept no page"
    keep(again, page(5))
    assert footing.obstacle(again, OURS) is None
    again.close()


# The stand-in


def test_it_answers_as_the_database_would(journal: Journal) -> None:
    before = {1: Position(3, 3), 2: Position(9, 9)}
    result = StandIn(journal).commit([page(5), page(4), PageFailure(1, 5, 7, TROUBLE)], before)
    moved = result.positions[1]
    assert (moved.cur_page, moved.failed, moved.page_count) == (5, PageRanges(((7, 7),)), 2)
    assert moved.version > 3 and result.positions[2] == before[2]
    assert [(one.kind, one.page) for one in journal.entries()] == [
        ("page", 5), ("page", 4), ("fail", 7),
    ]  # fmt: skip


def test_a_mere_stop_leaves_the_shard_to_be_read_on(journal: Journal) -> None:
    keep(journal, page(4))
    StandIn(journal).commit(
        [Release(1, 5, "stopped", None, None, False, None)], {1: Position(1, 1)}
    )
    assert found(journal) == {1: (5, 4)}


def test_what_cannot_be_kept_is_said(journal: Journal) -> None:
    row = Row(None, ("x",), {"odd": object()})
    with pytest.raises(JournalFailed, match="cannot be kept"):
        StandIn(journal).commit([replace(page(4), rows=(row,))], {1: Position(3, 3)})
    assert journal.records == 0


def test_it_is_full_by_pages_or_bytes(journal: Journal, caplog: pytest.LogCaptureFixture) -> None:
    keep(journal, page(4), page(5))
    standin = StandIn(journal)
    assert not standin.is_full(3, 10**6) and not caplog.records
    assert standin.is_full(2, 10**6) and standin.is_full(99, 10)
    assert "is full: 2 pages" in caplog.text
