"""What a start without the database looks at, and when it gives up."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from scrapy_resume import clock, journalcodec
from scrapy_resume.exceptions import JournalFailed, StoreUnavailable
from scrapy_resume.journal import Journal
from scrapy_resume.provisional import Provisional
from scrapy_resume.standin import StandIn
from tests.unit.test_footing import TASK, WANTED, keep, mirror, page, shard


def loop(directory: Path, *, address: str = "here", journals: bool = True) -> Any:
    wanted = WANTED if address == WANTED.address else WANTED.__class__("books", "auto", address, [])
    return SimpleNamespace(
        slot=SimpleNamespace(directory=directory, worker="w", earlier=wanted.earlier),
        work=SimpleNamespace(wanted=lambda: wanted),
        session=SimpleNamespace(rows=None),
        settings=SimpleNamespace(
            journals=journals, on_failed_record="quarantine", store_patience=600, heartbeat=3,
            grace=8,
        ),
        link=None,
    )  # fmt: skip


def left(directory: Path, address: str = "here") -> Path:
    """What an instance leaves that died with one page in its journal."""
    path = directory / "journal.db"
    journal = Journal.open(path, meta={"address": address, "on_failed_record": "quarantine"})
    journal.set_meta("task", journalcodec.dump_task(TASK).decode())
    journal.set_meta("tables", journalcodec.dump_tables([]).decode())
    keep(journal, page(4))
    journal.close()
    return path


def test_what_the_journal_says_is_read_on(tmp_path: Path) -> None:
    left(tmp_path)
    provisional = Provisional(loop(tmp_path))
    (one,), why = provisional._look(b"", [])
    assert (one.position.cur_page, why) == (4, None)


def test_the_journal_of_another_database_is_put_aside_whole(tmp_path: Path) -> None:
    left(tmp_path, "elsewhere")
    provisional = Provisional(loop(tmp_path))
    assert provisional._look(b"", []) == ([], "nothing says where to read on")
    assert [path.name[-11:] for path in tmp_path.glob("journal-*")] == ["-foreign.db"]


def test_no_file_is_made_if_there_is_nothing_to_read_on(tmp_path: Path) -> None:
    of, mirrored = mirror(shard(), address="elsewhere")
    assert Provisional(loop(tmp_path))._look(of, mirrored)[0] == []
    assert list(tmp_path.iterdir()) == []
    of, mirrored = mirror(shard())
    assert len(Provisional(loop(tmp_path))._look(of, mirrored)[0]) == 1


@pytest.mark.parametrize("hindered", ["no journal", "ended in order"])
def test_without_a_journal_or_a_dead_process_nothing_is_looked_at(
    tmp_path: Path, hindered: str
) -> None:
    left(tmp_path)
    crawl = loop(tmp_path, journals=hindered != "no journal")
    if hindered == "ended in order":
        crawl.slot.earlier = set()
    shards, why = asyncio.run(Provisional(crawl)._find())
    assert (shards, why) == ([], "nothing says where to read on")


def test_a_journal_that_cannot_be_opened_is_the_reason_to_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left(tmp_path)

    def fails(*args: Any, **kwargs: Any) -> Journal:
        raise JournalFailed("the disk is full")

    monkeypatch.setattr(Journal, "open", fails)
    assert asyncio.run(Provisional(loop(tmp_path))._find()) == ([], "the disk is full")


def test_patience_lasts_from_the_last_page_that_was_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    provisional = Provisional(loop(tmp_path))
    provisional._since, provisional._away = 1000.0, StoreUnavailable("still away")
    monkeypatch.setattr(clock, "monotonic", lambda: 1599.0)
    assert provisional._patience() == 1
    journal = Journal.open(tmp_path / "journal.db", meta={})
    provisional._standin = StandIn(journal)
    monkeypatch.setattr(clock, "monotonic", lambda: 2198.0)
    assert provisional._patience() == 1
    monkeypatch.setattr(clock, "monotonic", lambda: 2199.0)
    with pytest.raises(StoreUnavailable, match="still away"):
        provisional._patience()
    journal.close()


def test_a_crawl_that_is_stopped_while_it_opens_does_not_begin_to_read(tmp_path: Path) -> None:
    """A replay that is cut short says that the database is away, like any call of it."""
    crawl = loop(tmp_path)
    crawl.flow, crawl.task, said = SimpleNamespace(stopping=False), None, list[str]()

    async def opening() -> None:
        crawl.flow.stopping = True
        raise StoreUnavailable("the crawl ends before its journal is replayed")

    async def look() -> Any:
        said.append("it looks where to read on")
        return [], None

    async def ask() -> None:
        return

    async def read() -> list[Any]:
        return [request async for request in provisional.opening()]

    crawl.open, provisional = opening, Provisional(crawl)
    provisional._away = StoreUnavailable("away")
    provisional._find = look  # type: ignore[method-assign]
    provisional._ask = ask  # type: ignore[method-assign]
    assert asyncio.run(read()) == said == []
