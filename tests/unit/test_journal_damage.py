"""Damaged journals: what can be read is used, the rest is set aside, and the crawl starts."""

from __future__ import annotations

import logging
import os
import random
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from scrapy_resume.exceptions import JournalFailed
from scrapy_resume.journal import Entry, Journal, beside, copying, file, repair
from scrapy_resume.journal.file import Record

SIZES = (20, 700, 9000, 3, 5000, 40, 2500)  # bytes of bodies: in a page, and over several
GROUPS = 10
SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.stress) for seed in range(1, 40))]


@pytest.fixture(autouse=True)
def _no_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hundreds of files are opened here; none has to survive a loss of power."""
    connect = file.connect

    def quick(path: Path) -> sqlite3.Connection:
        conn = connect(path)
        conn.execute("PRAGMA synchronous = OFF")
        return conn

    monkeypatch.setattr(file, "connect", quick)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path


def fill(path: Path, history: list[Entry] | None = None, *, shards: int = 4) -> Journal:
    """A journal in use: records of several shards in groups, the first of them settled."""
    journal = Journal.open(path, meta={"database": "", "address": "here"})
    for group in range(GROUPS):
        given = []
        for shard in range(1, shards + 1):
            size = SIZES[(group * shards + shard) % len(SIZES)]
            given.append((shard, 1, "page", group, bytes([97 + group]) * size))
        seqs = journal.append(given)
        if history is not None:
            history += [Entry(seq, *one) for seq, one in zip(seqs, given, strict=True)]
        if group in (2, 4):
            journal.trim(seqs[0] - 1, {1: b"base of group %d" % group})
    return journal


class Sample:
    """A journal as it was found: files by name, and what was in it."""

    def __init__(self, home: Path, *, in_use: bool) -> None:
        source = home / f"sample-{in_use}"
        source.mkdir()
        self.history: list[Entry] = []  # the settled ones too
        journal = fill(source / "journal.db", self.history)
        self.entries = journal.entries()
        self.newest = {entry.seq for entry in self.entries[-4:]}
        if not in_use:
            journal.close()
        self.files = {one.name: one.read_bytes() for one in source.glob("journal*")}
        journal.close()
        self._home, self._number = source, 0

    def put(self, **changed: bytes | None) -> Path:
        """A home with the files, those of *changed* (db, wal) instead or (None) not at all."""
        self._number += 1
        place = self._home / str(self._number)
        place.mkdir()
        files = self.files | {
            {"db": "journal.db", "wal": "journal.db-wal"}[name]: data
            for name, data in changed.items()
        }
        for name, data in files.items():
            if data is not None:
                (place / name).write_bytes(data)
        return place / "journal.db"

    def check(self, path: Path, *, may_lose: set[int] | None = None) -> Journal:
        """Open *path*; what it holds is right, and what it lacks is said unless *may_lose*."""
        journal = Journal.open(path, meta={"database": "", "address": "here"})
        found = journal.entries()
        self.check_order(found)
        lost = {entry.seq for entry in self.entries} - {entry.seq for entry in found}
        if lost - (may_lose or set()):
            assert journal.damage is not None, f"{len(lost)} records are lost and nothing is said"
            assert journal.damage.kept == len(found)
        journal.append([(1, 2, "finish", None, b"")])
        journal.close()
        again = Journal.open(path, meta={"database": "", "address": "here"})
        assert again.damage is None
        assert again.records == len(found) + 1
        again.close()
        return journal

    def check_order(self, found: list[Entry]) -> None:
        """*found* is right, and without holes: of each shard, what was to be settled next."""
        assert [one.seq for one in found] == sorted(one.seq for one in found)
        assert {one.seq for one in found} <= {one.seq for one in self.history}
        for shard in {one.shard_id for one in self.history}:
            its = [one for one in found if one.shard_id == shard]
            known = [one for one in self.history if one.shard_id == shard]
            start = known.index(its[0]) if its else 0
            assert its == known[start : start + len(its)]
            assert start <= known.index(next(one for one in self.entries if one.shard_id == shard))


@pytest.fixture
def closed(home: Path) -> Sample:
    return Sample(home, in_use=False)


@pytest.fixture
def in_use(home: Path) -> Sample:
    return Sample(home, in_use=True)


def flipped(data: bytes, at: int, bit: int) -> bytes:
    return data[:at] + bytes([data[at] ^ (1 << bit)]) + data[at + 1 :]


def test_the_samples_are_sound(closed: Sample, in_use: Sample) -> None:
    assert set(closed.files) == {"journal.db"}
    assert {"journal.db", "journal.db-wal"} == set(in_use.files)
    for sample in (closed, in_use):
        path = sample.put()
        journal = sample.check(path)
        assert journal.damage is None
        assert [path] == list(path.parent.iterdir())


@pytest.mark.parametrize("seed", SEEDS)
def test_a_bit_flipped_anywhere_in_the_file(closed: Sample, seed: int) -> None:
    rng, data = random.Random(seed), closed.files["journal.db"]
    for _ in range(40):
        closed.check(closed.put(db=flipped(data, rng.randrange(len(data)), rng.randrange(8))))


def test_a_bit_flipped_in_the_header(closed: Sample) -> None:
    rng, data = random.Random(1), closed.files["journal.db"]
    for at in range(0, 108, 4):
        closed.check(closed.put(db=flipped(data, at, rng.randrange(8))))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_bit_flipped_anywhere_in_the_log(in_use: Sample, seed: int) -> None:
    rng, data = random.Random(seed), in_use.files["journal.db-wal"]
    for _ in range(25):
        wal = flipped(data, rng.randrange(len(data)), rng.randrange(8))
        in_use.check(in_use.put(wal=wal), may_lose=in_use.newest)


def test_a_bit_flipped_in_the_header_of_the_log(in_use: Sample) -> None:
    data = in_use.files["journal.db-wal"]
    for at in range(0, 56, 2):
        in_use.check(in_use.put(wal=flipped(data, at, at % 8)))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_block_of_zeros_or_noise_in_the_file(closed: Sample, seed: int) -> None:
    rng, data = random.Random(seed), closed.files["journal.db"]
    for number in range(12):
        size = rng.choice([16, 512, 4096, 9000])
        at = rng.randrange(len(data) - size)
        block = rng.randbytes(size) if number % 2 else bytes(size)
        closed.check(closed.put(db=data[:at] + block + data[at + size :]))


@pytest.mark.parametrize("sizes", [(0, 1, 99, 100, 4095, 4096, 4097, 8192), (0.3, 0.6, 0.9, 0.999)])
def test_a_file_cut_to_any_length(closed: Sample, sizes: tuple[float, ...]) -> None:
    data = closed.files["journal.db"]
    for size in sizes:
        length = size if isinstance(size, int) else int(len(data) * size)
        journal = closed.check(closed.put(db=data[:length]))
        assert journal.damage is not None


def test_a_log_cut_to_any_length_holds_whole_groups(in_use: Sample) -> None:
    data = in_use.files["journal.db-wal"]
    everything = {entry.seq for entry in in_use.entries}
    before = 0
    for length in (0, 1, 31, 32, 33, 4000, 4152, *range(9000, len(data), 9000), len(data) - 1):
        path = in_use.put(wal=data[:length])
        journal = Journal.open(path, meta={})
        found = journal.entries(limit=100)
        journal.close()
        assert len(found) % 4 == 0
        assert (found[-1].seq if found else 0) >= before
        before = found[-1].seq if found else before
        in_use.check(in_use.put(wal=data[:length]), may_lose=everything)


@pytest.mark.parametrize(("frames", "is_damage"), [(1, False), (2, True)])
def test_a_frame_in_which_a_process_died_is_no_damage(
    in_use: Sample, frames: int, is_damage: bool
) -> None:
    """A frame's head was written and its page was not: only the last one can be such a frame."""
    log = in_use.files["journal.db-wal"]
    torn = log[-4120:-4096] + bytes(4096)
    journal = in_use.check(in_use.put(wal=log + torn * frames))
    assert (journal.damage is not None) == is_damage


def test_a_log_that_has_gone_is_said(in_use: Sample, caplog: pytest.LogCaptureFixture) -> None:
    path = in_use.put(wal=None)
    journal = Journal.open(path, meta={})
    assert journal.damage is not None
    assert journal.damage.reason == "its log has gone"
    assert "its log has gone" in caplog.text
    journal.close()


def test_a_log_of_another_journal_is_not_applied(in_use: Sample, home: Path) -> None:
    other = fill(home / "other.db", shards=9)
    wal = (home / "other.db-wal").read_bytes()
    other.close()
    path = in_use.put(wal=wal)
    before = path.read_bytes()
    journal = in_use.check(path)
    assert journal.damage is not None
    aside = journal.damage.path
    assert aside is not None
    assert aside.read_bytes() == wal
    assert journal.damage.reason == "the log beside it is not its own"
    assert len(before) > 0


def test_a_file_that_has_gone_leaves_its_log_aside(in_use: Sample) -> None:
    for db in (None, b""):
        path = in_use.put(db=db)
        journal = in_use.check(path)
        assert journal.damage is not None
        assert journal.damage.path is not None
        assert journal.damage.path.read_bytes() == in_use.files["journal.db-wal"]


GARBAGE: dict[str, Callable[[Path], object]] = {
    "a directory": Path.mkdir,
    "a directory with something in it": lambda path: (path / "deeper").mkdir(parents=True),
    "noise": lambda path: path.write_bytes(random.Random(1).randbytes(50_000)),
    "text": lambda path: path.write_text("{}"),
    "nothing": Path.touch,
    "another database": lambda path: _execute(path, "CREATE TABLE record (id)"),
    "a dangling link": lambda path: path.symlink_to(path.parent / "nowhere" / "else"),
}


def _execute(path: Path, statement: str) -> None:
    conn = sqlite3.connect(path)
    conn.execute(statement)
    conn.close()


@pytest.mark.parametrize("what", GARBAGE)
def test_anything_else_in_its_place_is_set_aside(
    home: Path, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = home / "journal.db"
    GARBAGE[what](path)
    journal = Journal.open(path, meta={})
    assert journal.damage is not None
    assert journal.damage.path is not None
    assert os.path.lexists(journal.damage.path)
    assert str(journal.damage.path) in str(journal.damage)
    (warning,) = [one for one in caplog.records if one.levelno >= logging.WARNING]
    assert "could not be read as a whole" in warning.message
    assert journal.append([(1, 1, "page", 1, b"")]) == [1]
    journal.close()


def test_a_link_to_a_sound_journal_is_used(closed: Sample, home: Path) -> None:
    (home / "linked").mkdir()
    path = home / "linked" / "journal.db"
    path.symlink_to(closed.put())
    assert closed.check(path).damage is None


def test_of_a_shard_nothing_behind_its_first_lost_record_is_used(closed: Sample) -> None:
    lost = next(entry for entry in closed.entries[6:] if entry.shard_id == 3)
    path = closed.put()
    _execute_in(path, f"DELETE FROM record WHERE seq = {lost.seq}")
    journal = closed.check(path)
    assert journal.damage is not None
    behind = [e for e in closed.entries if e.shard_id == 3 and e.seq >= lost.seq]
    assert journal.damage.kept == len(closed.entries) - len(behind)
    assert journal.damage.lost == len(behind) - 1  # the one that is gone cannot be counted


@pytest.mark.parametrize("column", ["shard_id", "token", "page", "prior", "before", "settled"])
def test_every_field_of_a_record_counts(closed: Sample, column: str) -> None:
    path = closed.put()
    changed = closed.entries[-1]
    _execute_in(path, f"UPDATE record SET {column} = {column} + 1 WHERE seq = {changed.seq}")
    journal = closed.check(path)
    assert journal.damage is not None
    assert journal.damage.kept == len(closed.entries) - 1


def test_a_settled_record_that_came_back_is_left_out(closed: Sample) -> None:
    path = closed.put()
    conn = sqlite3.connect(path, isolation_level=None)
    old = closed.history[0]
    record = Record(old.seq, old.shard_id, 1, "page", 0, 0, 0, 0, old.body)
    file.put_records(conn, file.file_id_of(conn), [record])
    conn.close()
    journal = closed.check(path)
    assert journal.damage is not None
    assert journal.damage.kept == len(closed.entries)


def test_a_wrong_id_in_the_header_loses_nothing(closed: Sample) -> None:
    data = closed.files["journal.db"]
    journal = closed.check(closed.put(db=flipped(data, 70, 1)))
    assert journal.damage is not None
    assert journal.damage.kept == len(closed.entries)


def test_records_lost_at_the_front_are_not_taken_for_settled(closed: Sample) -> None:
    path = closed.put()
    first = closed.entries[0].seq
    _execute_in(path, f"DELETE FROM record WHERE seq < {first + 4}")
    journal = closed.check(path)
    assert journal.damage is not None
    assert journal.damage.kept == 0


def test_a_damaged_base_is_left_out_and_the_rest_is_kept(closed: Sample) -> None:
    path = closed.put()
    _execute_in(path, "UPDATE note SET value = CAST('x' AS BLOB) WHERE name = 'shard 1'")
    journal = Journal.open(path, meta={})
    assert journal.damage is not None
    assert journal.bases() == {}
    assert journal.entries() == closed.entries
    assert journal.meta == {"database": "", "address": "here"}
    journal.close()


def _execute_in(path: Path, statement: str) -> None:
    conn = sqlite3.connect(path, isolation_level=None)
    conn.execute(statement)
    conn.close()


@pytest.mark.parametrize("died_at", ["copy", "put_in_place", "set_aside", "_opened"])
def test_dying_in_the_repair_loses_nothing(
    closed: Sample, monkeypatch: pytest.MonkeyPatch, died_at: str
) -> None:
    path = closed.put()
    _execute_in(path, f"UPDATE record SET token = 9 WHERE seq = {closed.entries[-1].seq}")
    owner = next(one for one in (copying, beside, repair) if hasattr(one, died_at))
    done = getattr(owner, died_at)

    def dies(*args: object) -> object:
        if died_at in ("copy", "set_aside"):  # else before anything is done
            done(*args)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(owner, died_at, dies)
        with pytest.raises(KeyboardInterrupt):
            Journal.open(path, meta={})
    journal = Journal.open(path, meta={})
    assert journal.entries() == closed.entries[:-1]
    journal.close()
    assert len(list(path.parent.glob("journal-*-damaged.db"))) == 1
    assert not list(path.parent.glob("*rebuilt*"))


def test_a_file_that_cannot_even_be_set_aside_is_said_in_a_sentence(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = home / "journal.db"
    path.write_text("garbage")

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(JournalFailed, match=r"neither be used nor set aside: .*Permission"):
        Journal.open(path, meta={})


def test_a_file_removed_while_in_use_is_made_again(home: Path) -> None:
    journal = fill(home / "journal.db")
    entries = journal.entries()
    for one in home.iterdir():
        one.unlink()
    journal.append([(1, 1, "page", 99, b"new")])
    shutil.copytree(home, home / "copy")
    copy = Journal.open(home / "copy" / "journal.db", meta={})
    assert copy.entries()[:-1] == entries
    assert copy.bases() == journal.bases()
    copy.close()
    journal.close()


def test_a_file_damaged_while_in_use_is_mended(home: Path) -> None:
    journal = fill(home / "journal.db")
    entries = journal.entries()
    conn = journal._writer.conn
    conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    # What SQLite has read it does not read again: only a page that it does not know can show.
    raise_once(journal)
    assert journal.append([(1, 1, "page", 99, b"new")]) == [journal.last]
    assert journal.entries()[:-1] == entries
    assert journal.damage is not None
    journal.close()


def test_records_lost_while_in_use_block_it_until_all_else_is_settled(home: Path) -> None:
    journal = fill(home / "journal.db")
    lost = journal.entries()[-2]
    journal._writer.conn.execute(f"DELETE FROM record WHERE seq = {lost.seq}")
    raise_once(journal)
    for _ in range(2):
        with pytest.raises(JournalFailed, match="lost"):
            journal.append([(1, 1, "page", 99, b"new")])
    with pytest.raises(JournalFailed, match="lost"):
        journal.read([lost.seq])
    journal.trim(journal.last)
    assert journal.append([(1, 1, "page", 100, b"new")]) == [lost.seq + 2]
    assert [entry.page for entry in journal.entries()] == [100]
    journal.close()
    again = Journal.open(home / "journal.db", meta={})
    assert [entry.page for entry in again.entries()] == [100]
    again.close()


def raise_once(journal: Journal) -> None:
    """The next transaction of *journal* fails as it does on a page that is not as written."""
    writer = journal._writer

    def fails(*_: object, **__: object) -> None:
        raise sqlite3.DatabaseError("database disk image is malformed")

    writer.write = fails  # type: ignore[method-assign]


@contextmanager
def nobody() -> Iterator[Path]:
    """A directory of somebody who may not write to every file, as root may."""
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o777)
        euid = os.geteuid()
        if not euid:
            os.seteuid(65534)
        try:
            yield Path(place)
        finally:
            os.seteuid(euid)


def test_a_file_that_may_only_be_read_is_copied(closed: Sample, in_use: Sample) -> None:
    for sample in (closed, in_use):
        with nobody() as place:
            for name, data in sample.files.items():
                (place / name).write_bytes(data)
                (place / name).chmod(0o444)
            journal = sample.check(place / "journal.db")
        assert journal.damage is not None
        assert journal.damage.reason == "it may only be read"
        assert journal.damage.kept == len(sample.entries)
