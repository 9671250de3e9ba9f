"""A disk without room: nothing is half appended, nothing is lost, and it goes on with room."""

from __future__ import annotations

import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from scrapy_resume.exceptions import JournalFailed
from scrapy_resume.journal import Journal

BODY = b"x" * 8000
ROOM = 600_000  # bytes


@contextmanager
def small_disk(journal: Journal) -> Iterator[None]:
    """No file of this process may grow beyond a limit: the system says so at the write."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextmanager
def small_file(journal: Journal) -> Iterator[None]:
    """The file may not grow: SQLite says so as it does on a full disk."""
    conn = journal._writer.conn
    conn.execute(f"PRAGMA max_page_count = {ROOM // 4096}")
    yield
    conn.execute("PRAGMA max_page_count = 1000000")


Limit = Callable[[Journal], AbstractContextManager[None]]


@pytest.fixture(params=[small_disk, small_file], ids=lambda limit: limit.__name__)
def limit(request: pytest.FixtureRequest) -> Limit:
    found: Limit = request.param
    return found


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    (tmp_path / "home").mkdir()
    opened = Journal.open(tmp_path / "home" / "journal.db", meta={"address": "here"})
    yield opened
    opened.close()


def fill(journal: Journal) -> int:
    """Append until that fails; returns how many pages were taken."""
    for number in range(1, 1000):
        try:
            journal.append([(1, 1, "page", number, BODY), (2, 1, "page", number, BODY)])
        except JournalFailed:
            return number - 1
    raise AssertionError("it never ran out of room")


def test_it_fails_with_path_and_advice_and_keeps_nothing(journal: Journal, limit: Limit) -> None:
    with limit(journal):
        taken = fill(journal)
        with pytest.raises(JournalFailed) as failed:
            journal.append([(1, 1, "page", 0, BODY), (2, 1, "page", 0, BODY)])
    assert str(journal.path) in str(failed.value)
    assert "make room on its disk" in str(failed.value)
    assert (journal.records, journal.last) == (2 * taken, 2 * taken)
    assert [entry.seq for entry in journal.entries()] == list(range(1, 2 * taken + 1))
    assert journal.append([(1, 1, "page", 0, BODY)]) == [2 * taken + 1]
    assert list(journal.path.parent.glob("*damaged*")) == []


def test_a_death_on_a_full_disk_loses_nothing(
    journal: Journal, limit: Limit, tmp_path: Path
) -> None:
    with limit(journal):
        taken = fill(journal)
    shutil.copytree(journal.path.parent, tmp_path / "copy")
    again = Journal.open(tmp_path / "copy" / "journal.db", meta={})
    assert again.records == 2 * taken
    assert again.damage is None
    again.close()


def test_once_all_is_settled_it_has_room_again(journal: Journal, limit: Limit) -> None:
    with limit(journal):
        taken = fill(journal)
        journal.trim(journal.last, {1: b"base"})
        assert journal.append([(1, 1, "page", 0, BODY)]) == [2 * taken + 1]
        assert fill(journal) > taken // 2
    assert journal.bases() == {1: b"base"}
    assert journal.meta == {"address": "here"}
    journal.close()
    again = Journal.open(journal.path, meta={})
    assert again.bases() == {1: b"base"}
    assert again.meta == {"address": "here"}
    assert again.damage is None
    again.close()


def test_room_in_the_file_is_used_again(journal: Journal) -> None:
    """What is settled makes room for what comes: the files do not grow with the crawl."""
    for number in range(1, 300):
        (seq,) = journal.append([(1, 1, "page", number, BODY)])
        journal.trim(seq - 2)
    size = sum(one.stat().st_size for one in journal.path.parent.iterdir())
    assert size < 5 * 1024 * 1024  # nearly all of it the log; 300 pages have 2.4 MB


def test_a_start_on_a_full_disk_reads_what_is_there(journal: Journal) -> None:
    with small_disk(journal):
        taken = fill(journal)
        journal.close()
        again = Journal.open(journal.path, meta={})
        assert again.records == 2 * taken
        assert len(again.entries()) == 2 * taken
        again.trim(again.last)
        again.append([(1, 1, "page", 0, BODY)])
        again.close()


def test_a_new_journal_that_finds_no_room_is_said(tmp_path: Path, journal: Journal) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, hard))
    try:
        with pytest.raises(JournalFailed, match="make room on its disk"):
            Journal.open(tmp_path / "journal.db", meta={})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    again = Journal.open(tmp_path / "journal.db", meta={})
    assert again.damage is None
    again.close()


def test_a_damaged_journal_that_finds_no_room_for_its_repair_stays_as_it_is(
    tmp_path: Path, journal: Journal
) -> None:
    journal.append([(1, 1, "page", number, BODY) for number in range(30)])
    journal.close()
    data = bytearray(journal.path.read_bytes())
    data[-5000] ^= 1
    journal.path.write_bytes(data)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, hard))
    try:
        with pytest.raises(JournalFailed):
            Journal.open(journal.path, meta={})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert journal.path.read_bytes() == data
    again = Journal.open(journal.path, meta={})
    assert again.damage is not None
    assert again.records >= 28
    again.close()
