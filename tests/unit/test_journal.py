"""The journal: what was reported synced is there after any death, in order, and nothing else."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scrapy_resume import faults
from scrapy_resume.exceptions import InjectedFault, JournalFailed
from scrapy_resume.journal import Journal

OURS = {"database": "aaaa", "address": "here"}
Given = tuple[int, int, str, "int | None", bytes]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


@pytest.fixture
def journal(path: Path) -> Iterator[Journal]:
    opened = Journal.open(path, meta=OURS)
    yield opened
    opened.close()


@pytest.fixture(autouse=True)
def _no_faults() -> Iterator[None]:
    yield
    faults.arm(None)


def page(shard: int, number: int, body: bytes = b"{}") -> Given:
    return shard, 1, "page", number, body


def told(journal: Journal) -> list[Given]:
    return [(e.shard_id, e.token, e.kind, e.page, e.body) for e in journal.entries()]


def test_what_was_appended_is_there_in_order_and_counted(path: Path, journal: Journal) -> None:
    given = [page(2, 1), page(1, 1, b"x" * 9000), (2, 1, "finish", None, b"")]
    assert journal.append(given[:2]) + journal.append(given[2:]) == [1, 2, 3]
    assert told(journal) == given
    assert (journal.records, journal.pages, journal.size) == (3, 2, 9002)
    assert journal.read([3, 2]) == [b"", b"x" * 9000]
    journal.close()
    again = Journal.open(path, meta=OURS)
    assert told(again) == given
    assert (again.records, again.pages, again.size, again.damage) == (3, 2, 9002, None)
    again.close()


def test_what_is_settled_is_forgotten_with_the_next_append(path: Path, journal: Journal) -> None:
    journal.append([page(1, 1), page(2, 1), page(1, 2)])
    journal.trim(2, {1: b"at 1", 2: b"at 1"})
    assert (journal.records, journal.pages, journal.size) == (1, 1, 2)
    assert [entry.seq for entry in journal.entries()] == [3]
    assert journal.append([page(1, 3)]) == [4]
    journal.trim(3, {2: None})
    copy = crashed(path)
    assert [entry.seq for entry in copy.entries()] == [3, 4]  # the second trim was not written
    assert copy.bases() == {1: b"at 1", 2: b"at 1"}
    copy.close()
    journal.flush()
    copy = crashed(path)
    assert [entry.seq for entry in copy.entries()] == [4]
    assert copy.bases() == journal.bases() == {1: b"at 1"}
    copy.close()


def test_numbers_are_never_used_again(path: Path, journal: Journal) -> None:
    journal.append([page(1, 1), page(1, 2)])
    journal.trim(2)
    journal.close()
    again = Journal.open(path, meta=OURS)
    assert again.append([page(1, 3)]) == [3]
    again.trim(99)
    assert again.append([page(1, 4)]) == [4]
    again.close()


def test_entries_come_in_parts(journal: Journal) -> None:
    journal.append([page(1, number, b"x" * 1024 * 1024) for number in range(1, 21)])
    assert [entry.seq for entry in journal.entries(limit=3)] == [1, 2, 3]
    assert [entry.seq for entry in journal.entries(after=3, limit=2)] == [4, 5]
    assert len(journal.entries()) == 16  # MB
    assert len(journal.entries(after=16)) == 4
    assert journal.entries(after=20) == []


def test_an_append_that_fails_keeps_nothing(path: Path, journal: Journal) -> None:
    journal.append([page(1, 1)])
    faults.arm("journal.append:1:raise")
    with pytest.raises(InjectedFault):
        journal.append([page(1, 2), page(2, 1)])
    assert told(journal) == [page(1, 1)]
    assert (journal.records, journal.size, journal.last) == (1, 2, 1)
    assert journal.append([page(1, 2)]) == [2]
    copy = crashed(path)
    assert told(copy) == [page(1, 1), page(1, 2)]
    copy.close()


def test_a_death_in_the_middle_of_a_write_is_no_damage(path: Path, journal: Journal) -> None:
    """What SQLite had written of a transaction before its end is left out, and not lamented."""
    journal.append([page(1, 1)])
    conn = journal._writer.conn
    conn.execute("PRAGMA cache_size = 10")
    conn.execute("BEGIN IMMEDIATE")
    for number in range(2, 40):
        conn.execute(
            "INSERT INTO record SELECT ?, shard_id, token, kind, page, prior, before, settled, crc,"
            " ? FROM record WHERE seq = 1",
            (number, b"x" * 8000),
        )
    assert path.with_name("journal.db-wal").stat().st_size > 100_000
    copy = crashed(path)
    conn.execute("ROLLBACK")
    assert told(copy) == [page(1, 1)]
    assert copy.damage is None
    copy.close()


def test_a_journal_of_another_database_is_set_aside(path: Path, journal: Journal) -> None:
    journal.append([page(1, 1)])
    journal.close()
    other = Journal.open(path, meta={"database": "bbbb", "address": "here"})
    assert (other.records, other.meta["database"]) == (0, "bbbb")
    other.close()
    (aside,) = path.parent.glob("journal-*-foreign.db")
    assert Journal.find(aside, meta={"database": "bbbb"}) is None
    found = Journal.find(aside, meta=OURS)
    assert found is not None
    assert told(found) == [page(1, 1)]
    found.close()


@pytest.mark.parametrize(
    ("kept", "asked", "same"),
    [
        ({"database": "", "address": "here"}, {"database": "aaaa", "address": "here"}, True),
        ({"database": "", "address": "here"}, {"database": "aaaa", "address": "there"}, False),
        ({"database": "aaaa", "address": "here"}, {"database": "", "address": "there"}, False),
        # A database that has moved is the same one.
        ({"database": "aaaa", "address": "here"}, {"database": "aaaa", "address": "there"}, True),
        ({"database": "aaaa", "address": "here"}, {"database": "bbbb", "address": "here"}, False),
    ],
)
def test_a_database_is_known_by_its_id_else_by_its_address(
    path: Path, kept: dict[str, str], asked: dict[str, str], same: bool
) -> None:
    first = Journal.open(path, meta=kept)
    first.append([page(1, 1)])
    first.close()
    second = Journal.open(path, meta=asked)
    assert second.records == same
    second.append([page(1, 2)])
    assert second.meta["database"] == (asked["database"] or kept["database"] * same)
    second.close()


def test_notes_are_kept_with_the_file(path: Path, journal: Journal) -> None:
    journal.set_meta("tables", "[\u00e4]")
    journal.flush()
    copy = crashed(path)
    assert copy.meta == OURS | {"tables": "[\u00e4]"}
    copy.close()


def test_every_append_is_synced(journal: Journal) -> None:
    """By SQLite's word: a kill does not show it, since what was written outlives a process."""
    assert journal._writer.conn.execute("PRAGMA synchronous").fetchone() == (2,)
    journal.append([page(1, 1)])
    assert journal._writer.conn.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_nobody_else_gets_in(path: Path, journal: Journal) -> None:
    with sqlite3.connect(path, timeout=0) as conn, pytest.raises(sqlite3.OperationalError):
        conn.execute("SELECT * FROM record").fetchall()
    conn.close()


def test_a_program_that_looks_into_it_is_no_damage(
    path: Path, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal.append([page(1, 1)])
    journal.close()
    monkeypatch.setattr("scrapy_resume.journal.file._PATIENCE", 0)
    looking = sqlite3.connect(path, isolation_level=None)
    looking.execute("BEGIN EXCLUSIVE")
    with pytest.raises(JournalFailed, match="close the program that has it open"):
        Journal.open(path, meta=OURS)
    looking.close()
    again = Journal.open(path, meta=OURS)
    assert told(again) == [page(1, 1)]
    again.close()
    assert list(path.parent.glob("journal-*")) == []


def test_a_large_file_is_small_again_once_it_is_empty(path: Path, journal: Journal) -> None:
    journal.append([page(1, 1, b"x" * 20 * 1024 * 1024)])
    journal.trim(1)
    journal.close()
    assert path.stat().st_size < 100_000


def test_a_closed_journal_stays_closed(path: Path, journal: Journal) -> None:
    journal.append([page(1, 1)])
    aside = journal.set_aside("done")
    journal.trim(1)
    journal.close()
    assert not path.exists()
    assert aside is not None and aside.exists()
    with pytest.raises(JournalFailed):
        journal.append([page(1, 2)])


def crashed(path: Path) -> Journal:
    """The journal as a start finds it whose predecessor died in this moment."""
    home = Path(tempfile.mkdtemp(dir=path.parent))
    for one in path.parent.glob(f"{path.name}*"):
        shutil.copy(one, home / one.name)
    return Journal.open(home / path.name, meta=OURS)


STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("append"),
            st.lists(st.tuples(st.integers(1, 3), st.integers(0, 9000)), max_size=4),
        ),
        st.tuples(st.just("trim"), st.integers(0, 6)),
        st.tuples(st.sampled_from(["flush", "crash", "close", "refuse"]), st.none()),
    ),
    max_size=12,
)


class Model:
    """What a journal is to hold: *kept* what it says, *written* what it would say after a death."""

    def __init__(self, home: Path) -> None:
        self.path = home / "journal.db"
        self.journal = Journal.open(self.path, meta={})
        self.kept: dict[int, Given] = {}
        self.written: dict[int, Given] = {}
        self.bases: dict[int, bytes] = {}
        self.written_bases: dict[int, bytes] = {}
        self.last = 0

    def append(self, sizes: list[tuple[int, int]]) -> None:
        given = [page(shard, self.last + 1, b"x" * size) for shard, size in sizes]
        seqs = self.journal.append(given)
        assert seqs == list(range(self.last + 1, self.last + 1 + len(given)))
        self.last += len(given)
        self.kept |= zip(seqs, given, strict=True)
        self.flush()

    def refuse(self, _: None) -> None:
        faults.arm("journal.append:1:raise")
        with pytest.raises(InjectedFault):
            self.journal.append([page(1, 0)])
        faults.arm(None)

    def trim(self, count: int) -> None:
        for seq in list(self.kept)[:count]:
            shard, *_ = self.kept.pop(seq)
            self.bases[shard] = b"behind %d" % seq
            self.journal.trim(seq, {shard: self.bases[shard]})
        if count == 0 and self.bases:
            shard = next(iter(self.bases))
            del self.bases[shard]
            self.journal.trim(0, {shard: None})

    def flush(self, _: None = None) -> None:
        self.journal.flush()
        self.written, self.written_bases = dict(self.kept), dict(self.bases)

    def close(self, _: None = None) -> None:
        self.journal.close()
        self.kept, self.bases = dict(self.kept), dict(self.bases)
        self.journal = Journal.open(self.path, meta={})
        self.written, self.written_bases = dict(self.kept), dict(self.bases)

    def crash(self, _: None = None) -> None:
        old, self.journal = self.journal, crashed(self.path)
        old.close()
        self.path = self.journal.path
        self.kept, self.bases = dict(self.written), dict(self.written_bases)

    def check(self) -> None:
        assert {e.seq for e in self.journal.entries()} == set(self.kept)
        assert told(self.journal) == list(self.kept.values())
        assert self.journal.bases() == self.bases
        assert self.journal.records == self.journal.pages == len(self.kept)
        assert self.journal.size == sum(len(given[4]) for given in self.kept.values())
        assert self.journal.damage is None


@settings(max_examples=15)
@given(STEPS)
def test_it_holds_what_a_model_holds(steps: list[tuple[str, object]]) -> None:
    with tempfile.TemporaryDirectory() as home:
        model = Model(Path(home))
        for step, argument in steps:
            getattr(model, step)(argument)
            model.check()
        model.close()
        model.check()
        model.journal.close()


APPENDING = """
    import sys
    from pathlib import Path
    from scrapy_resume import faults
    from scrapy_resume.journal import Journal

    faults.arm(sys.argv[2])
    journal = Journal.open(Path(sys.argv[1]), meta={})
    for group in range(1, 8):
        given = [(shard, 1, "page", group, b"%d" % group * 3000) for shard in (1, 2, 3)]
        print(journal.append(given)[-1], flush=True)
        if group > 2:
            journal.trim((group - 2) * 3, {1: b"%d" % group})
    journal.flush()
"""


@pytest.mark.parametrize(
    ("fault", "reported", "kept"),
    [
        ("journal.append:1:kill", 0, []),
        (
            "journal.append:5:kill",
            12,
            [2, 3, 4],
        ),  # the second trim went with the fifth, which is not kept
        ("journal.synced:1:kill", 0, [1]),
        ("journal.synced:5:kill", 12, [3, 4, 5]),
        ("journal.trimmed:1:kill", 9, [2, 3, 4]),
        ("journal.trimmed:5:kill", 21, [6, 7]),
    ],
)
def test_a_killed_process_leaves_what_it_reported_in_order(
    path: Path, fault: str, reported: int, kept: list[int]
) -> None:
    command = [sys.executable, "-c", textwrap.dedent(APPENDING), str(path), fault]
    child = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert child.returncode == -signal.SIGKILL, child.stderr
    assert [int(line) for line in child.stdout.split()][-1:] == ([reported] if reported else [])
    journal = Journal.open(path, meta={})
    assert told(journal) == [
        (shard, 1, "page", group, b"%d" % group * 3000) for group in kept for shard in (1, 2, 3)
    ]
    assert journal.damage is None
    assert journal.append([page(1, 9)]) == [journal.last]
    journal.close()
    assert os.listdir(path.parent) == ["journal.db"]


WITHOUT_END = """
    import sys
    from pathlib import Path
    from scrapy_resume.journal import Journal

    journal = Journal.open(Path(sys.argv[1]), meta={})
    kept = [entry.page for entry in journal.entries(limit=10000)]
    assert kept == list(range(kept[0], kept[-1] + 1)) if kept else True
    number = max(kept, default=int(sys.argv[2]))
    while True:
        given = [(1, 1, "page", number + one, b"x" * 5000) for one in range(1, 4)]
        seqs = journal.append(given)
        number += 3
        print(number, flush=True)
        journal.trim(seqs[0] - 5)
"""


@pytest.mark.stress
def test_a_process_killed_at_any_moment_leaves_what_it_reported(path: Path) -> None:
    rng, last = random.Random(5), 0
    for _ in range(60):
        command = [sys.executable, "-c", textwrap.dedent(WITHOUT_END), str(path), str(last)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            reported = [int(child.stdout.readline()) for _ in range(rng.randrange(1, 300))]
            time.sleep(rng.random() / 500)  # so that it dies at any place of its loop
            child.kill()
            reported += [int(line) for line in child.stdout.read().split()]
        copy = crashed(path)
        last = copy.entries(limit=10000)[-1].page or 0
        assert last in (reported[-1], reported[-1] + 3)
        assert copy.damage is None
        copy.close()
