"""A dead worker's journal, written as its worker would have done it, and the replay of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from scrapy_resume import journalcodec, journalnotes, journalreplay
from scrapy_resume.journal import FILE, Journal
from scrapy_resume.journalreplay import Replayed
from scrapy_resume.store import operations
from scrapy_resume.store.engine import Database
from scrapy_resume.store.items import ItemTable
from scrapy_resume.store.leases import ClaimedShard
from scrapy_resume.store.records import Record
from tests.services import MariaDB
from tests.store.worlds import World


@dataclass
class Slot:
    """A slot's directory with a journal in it; its worker is ``w`` unless *worker* says else."""

    world: World
    directory: Path
    worker: str = "w"
    meta: dict[str, str] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        return self.directory / FILE

    def open(self) -> Journal:
        """The journal, as its worker opens it."""
        self.directory.mkdir(exist_ok=True)
        known = journalnotes.of_database(self.world.db) | {"worker": self.worker}
        journal = Journal.open(self.path, meta=known)
        for name, value in ({"on_failed_record": "quarantine"} | self.meta).items():
            journal.set_meta(name, value)
        return journal

    def hold(self, *shards: ClaimedShard) -> None:
        """Note the bases of *shards*, as a worker does that has just claimed them."""
        journal = self.open()
        bases = {one.id: journalcodec.dump_shard(one) for one in shards}
        journal.trim(journal.last, bases)
        journal.close()

    def write(self, *records: Record) -> None:
        """Append *records*; the worker then dies before it can store them."""
        journal = self.open()
        journal.append([journalcodec.entry(one) for one in records])
        journal.close()

    def declare(self, *tables: ItemTable) -> None:
        """Say which tables of the user the records are for."""
        self.meta["tables"] = journalcodec.dump_tables(tables).decode()

    def replay(self, db: Database | None = None, **options: Any) -> Replayed:
        """Replay it, as the next holder of the slot does."""
        return journalreplay.replay(db or self.world.db, self.directory, actor="a test", **options)

    def steps(self) -> Iterator[Replayed]:
        """The same, one step after the other, with every error as it is."""
        journal = self.open()
        try:
            yield from journalreplay.replay_open(self.world.db, journal, actor="a test")
        finally:
            journal.close()

    def left(self) -> int:
        """How many records are in it."""
        journal = self.open()
        count = journal.records
        journal.close()
        return count

    def bases(self) -> dict[int, ClaimedShard]:
        """The bases that are in it."""
        journal = self.open()
        found = journal.bases()
        journal.close()
        return {number: journalcodec.load_shard(body) for number, body in found.items()}

    def notes(self, task_id: int | None = 1) -> list[operations.Operation]:
        """The salvages on record."""
        found = operations.find(self.world.db, task_id) if task_id is not None else []
        return [one for _, one in found if one.kind == "salvage"]


def died(world: World, slot: Slot, shards: int = 1) -> list[ClaimedShard]:
    """Shards of worker ``w``, whose instance w1 is dead."""
    claimed = world.claim(world.plan(shards))
    slot.hold(*claimed)
    return claimed


BOTH = pytest.mark.parametrize("database_url", ["sqlite", "mariadb"], indirect=True)


@pytest.fixture
def database_url(request: pytest.FixtureRequest) -> str:
    """SQLite unless a test asks for both; how each commits and salvages is tested elsewhere."""
    if getattr(request, "param", "sqlite") == "sqlite":
        return str(request.getfixturevalue("sqlite_url"))
    server: MariaDB = request.getfixturevalue("mariadb")
    return server.url(request.getfixturevalue("mariadb_name"))
