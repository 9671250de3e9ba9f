"""A committer with a journal, whose threads and timers wait until a test lets them go on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from scrapy_resume import committer, journalling, patience
from scrapy_resume.backlog import Backlog, Quota
from scrapy_resume.committer import Committer, GroupLimits, LostPage
from scrapy_resume.exceptions import JournalFailed
from scrapy_resume.journal import Journal
from scrapy_resume.journalling import Journalling
from scrapy_resume.outage import Outage
from scrapy_resume.store.checkpoints import CommitResult, PageRecord, Record
from scrapy_resume.store.items import default_row
from scrapy_resume.submission import Outcome
from scrapy_resume.threads import StoreThread
from scrapy_resume.watermark import Position
from tests.unit.test_walks import claimed


class Thread:
    """Makes its calls when it is told to."""

    def __init__(self) -> None:
        self.calls: list[tuple[Deferred[Any], Callable[[], Any]]] = []

    def call(self, func: Callable[..., Any], *args: Any) -> Deferred[Any]:
        done: Deferred[Any] = Deferred()
        self.calls.append((done, lambda: func(*args)))
        return done

    def post(self, func: Callable[..., None], *args: Any) -> None:
        self.call(func, *args)

    def work(self) -> None:
        """Make every call made so far and those that follow from them."""
        while self.calls:
            done, call = self.calls.pop(0)
            try:
                result = call()
            except Exception as error:
                done.errback(Failure(error))  # type: ignore[no-untyped-call]
            else:
                done.callback(result)


@dataclass
class Timer:
    """What ``call_later`` gives."""

    due: float
    call: Callable[[], None]
    cancelled: bool = False

    def cancel(self) -> None:
        self.cancelled = True


class OnDisk:
    """A journal whose disk may be full, or have *lost* records."""

    def __init__(self, path: Path) -> None:
        self.real = Journal.open(path, meta={})
        self.full = False
        self.lost: set[int] = set()

    def read(self, seqs: Sequence[int]) -> list[bytes]:
        if self.lost & set(seqs):
            raise JournalFailed("it has lost records")
        return self.real.read(seqs)

    def __getattr__(self, name: str) -> Any:
        if self.full and name in ("append", "flush"):
            raise JournalFailed(f"The journal {self.real.path} cannot be written: the disk is full")
        return getattr(self.real, name)


@dataclass
class World:
    """Everything around one committer. *refuse* is raised by commits, if set."""

    path: Path
    now: float = 0.0
    timers: list[Timer] = field(default_factory=list)
    commits: list[list[Record]] = field(default_factory=list)
    salvaged: list[LostPage] = field(default_factory=list)
    stats: dict[str, float] = field(default_factory=dict)
    failures: list[BaseException] = field(default_factory=list)
    let_go: list[int] = field(default_factory=list)
    fenced: set[int] = field(default_factory=set)
    refuse: Exception | None = None
    pressing: bool = True

    def __post_init__(self) -> None:
        self.database, self.disk = Thread(), Thread()
        self.journal = OnDisk(self.path)
        self.outage = Outage(60)
        self.committer = Committer(
            cast(StoreThread, self.database),
            self._commit,
            GroupLimits(pages=3, items=1000, delay=1.0),
            pressing=lambda waiting: self.pressing,
            inc_stat=self._count,
            on_failure=self.failures.append,
            patience=60,
            outage=self.outage,
            salvage=self.salvaged.extend,
        )
        self.woken = 0

    def keep(self, pages: int = 1000, size: int = 10**9) -> Journalling:
        """Begin to journal, with a quota."""
        journal = cast(Journal, self.journal)
        backlog = Backlog(Quota(pages, size), "PATH", wake=self._wake, inc_stat=self._count)
        made = Journalling(
            cast(StoreThread, self.disk), journal, backlog,
            pressing=lambda waiting: self.pressing, wake=self._wake, inc_stat=self._count,
            on_failure=self.failures.append, patience=60,
        )  # fmt: skip
        self.committer.keep_in(made)
        self.committer.hold(claimed(last=100))
        return made

    def submit(self, *records: Record) -> list[Deferred[Outcome]]:
        """Submit *records*; the pages that are let go are in :attr:`let_go`."""
        return [
            self.committer.submit(one, partial(self.let_go.append, one.page or 0))
            for one in records
        ]

    def work(self) -> None:
        """Let both threads do all there is to do."""
        while self.disk.calls or self.database.calls:
            self.disk.work()
            self.database.work()

    def fire(self) -> None:
        """The next timer falls due; what it asks the threads for is not done yet."""
        first = min((one for one in self.timers if not one.cancelled), key=lambda one: one.due)
        self.timers.remove(first)
        first.call()

    def pass_time(self, seconds: float) -> None:
        """Let timers fall due, in order."""
        end = self.now + seconds
        while due := [one for one in self.timers if not one.cancelled and one.due <= end]:
            first = min(due, key=lambda one: one.due)
            self.timers.remove(first)
            self.now = first.due
            first.call()
            self.work()
        self.now = end

    @property
    def stored(self) -> list[Any]:
        """What was committed, in order: page numbers, and else the records' names."""
        records = [record for group in self.commits for record in group]
        return [record.page or type(record).__name__ for record in records]

    def _commit(self, records: Sequence[Record], positions: Mapping[int, Position]) -> CommitResult:
        if self.refuse is not None:
            raise self.refuse
        fenced = frozenset(self.fenced & {record.shard_id for record in records})
        self.commits.append([record for record in records if record.shard_id not in fenced])
        moved = dict(positions)
        for record in self.commits[-1]:
            if isinstance(record, PageRecord):
                position = moved[record.shard_id].with_page(record.page)
                moved[record.shard_id] = position
        after = {shard: moved[shard] for shard in moved if shard not in fenced}
        return CommitResult(positions=after, fenced=fenced)

    def _count(self, name: str, count: float = 1) -> None:
        if count:
            self.stats[name] = self.stats.get(name, 0) + count

    def _wake(self) -> None:
        self.woken += 1

    def later(self, delay: float, call: Callable[..., None], *args: Any) -> Timer:
        timer = Timer(self.now + delay, lambda: call(*args))
        self.timers.append(timer)
        return timer


def page(number: int, rows: int = 1, shard: int = 1) -> PageRecord:
    """A complete page."""
    made = tuple(default_row("s", f"{number}-{row}", "{}") for row in range(rows))
    return PageRecord(shard, 1, number, made)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """One committer without a journal as yet, at moment 0."""
    made = World(tmp_path / "journal.db")
    for module in (committer, journalling, patience):
        monkeypatch.setattr(module, "call_later", made.later)
        monkeypatch.setattr(module.clock, "monotonic", lambda: made.now)
    return made
