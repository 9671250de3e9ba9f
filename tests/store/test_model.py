"""Random histories of a shard against a model that is a set of pages and a dict of items."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from scrapy_resume.page import Shard
from scrapy_resume.store import checkpoints, leases, migrate
from scrapy_resume.store.checkpoints import Finish, PageRecord, Release
from scrapy_resume.store.engine import Database
from scrapy_resume.store.leases import ClaimedShard
from scrapy_resume.watermark import PageRanges, Position
from tests.store.worlds import World, failure, item

SHARDS_OF_A_RUN = [Shard("a", 1, 12), Shard("b", 1, 12)]
PAGES = st.integers(1, 12)
SHARDS = st.integers(0, 1)


@dataclass
class Owner:
    """What one owner believes of a shard."""

    claimed: ClaimedShard
    position: Position


@dataclass
class Model:
    """What the tables must hold: pages and held pages, and the items in order of commits."""

    pages: set[int] = field(default_factory=set)
    held: set[int] = field(default_factory=set)
    token: int = 0
    version: int = 0
    dropped: int = 0
    status: str = "pending"


class Histories(RuleBasedStateMachine):
    """Claims, commits, replays, stale writers and take-overs, in any order."""

    database: Database

    @initialize()
    def begin(self) -> None:
        self.world = World(self.database)
        number = self.world.open("new", name="model").run_no
        self.task = self.world.plan(SHARDS_OF_A_RUN, name="model", max_attempts=1000)
        assert self.task.run_no == number
        self.prefix = f"{number}-"
        self.owners: dict[int, list[Owner]] = {0: [], 1: []}
        self.models = {0: Model(), 1: Model()}
        self.items: dict[str, int] = {}
        self.stamp = 0

    def teardown(self) -> None:
        if hasattr(self, "task"):
            self.world.sql(
                "UPDATE resume_task_shard SET status = 'failed', reason = 'over', due = 0,"
                " next_run_at = NULL, worker = NULL, instance = NULL, lease_until = NULL"
                " WHERE status <> 'done'"
            )

    @rule(limit=st.integers(1, 2))
    def claim(self, limit: int) -> None:
        waiting = [at for at, model in self.models.items() if model.status == "pending"]
        claimed = self.world.claim(self.task, limit, lease=0)
        assert len(claimed) <= min(limit, len(waiting))
        assert bool(claimed) == bool(waiting)  # one that may kill its process comes alone
        for one in claimed:
            at = one.shard_no - 1
            model = self.models[at]
            model.token, model.status = model.token + 1, "running"
            assert one.fencing_token == model.token
            assert one.position.version == model.version
            self.owners[at].append(Owner(one, one.position))

    @rule()
    def reap(self) -> None:
        leases.reap(self.database, actor="model")
        for model in self.models.values():
            if model.status == "running":
                model.status, model.token = "pending", model.token + 1

    @rule(
        at=SHARDS, stale=st.integers(0, 3), old=st.booleans(),
        pages=st.lists(st.tuples(PAGES, st.booleans(), st.integers(0, 3)), min_size=1, max_size=4),
        ending=st.sampled_from([None, None, None, "release", "failed"]),
    )  # fmt: skip
    def commit(
        self, at: int, stale: int, old: bool, pages: list[tuple[int, bool, int]], ending: str | None
    ) -> None:
        if not self.owners[at]:
            return
        owner = self.owners[at][-1 - stale % len(self.owners[at])]
        one, records, model = owner.claimed, [], self.models[at]
        legal = model.status == "running" and one.fencing_token == model.token
        new = False
        for number, held, key in pages:
            if held:
                records.append(failure(one, number))
                if legal and number not in model.pages:
                    model.held.add(number)
                continue
            self.stamp += 1
            rows = (item(f"{self.prefix}{key}", stamp=self.stamp),)
            records.append(PageRecord(one.id, one.fencing_token, number, rows, dropped=1))
            if legal and number not in model.pages:
                new = True
                model.pages.add(number)
                model.held.discard(number)
                model.dropped += 1
                self.items[f"{self.prefix}{key}"] = self.stamp
        if ending == "release":
            records.append(Release(one.id, one.fencing_token, "stop"))
        elif ending == "failed":
            records.append(Finish(one.id, one.fencing_token, "failed", "given up"))
        position = one.position if old else owner.position
        result = checkpoints.commit(self.database, records, {one.id: position})
        if not legal:
            return
        assert result.fenced == frozenset()
        model.version += new
        owner.position = result.positions[one.id]
        if ending:
            model.status = {"release": "pending", "failed": "failed"}[ending]

    @precondition(lambda self: hasattr(self, "models"))
    @invariant()
    def rows_are_as_the_model_says(self) -> None:
        rows = self.world.sql(
            "SELECT shard_no, cur_page, ahead, failed_pages, version, fencing_token, status,"
            " page_count, dropped_count FROM resume_task_shard WHERE task_id = :task",
            task=self.task.id,
        )
        for row in rows:
            model = self.models[row.shard_no - 1]
            committed = {*range(1, row.cur_page + 1), *PageRanges.parse(row.ahead)}
            assert committed == model.pages
            assert set(PageRanges.parse(row.failed_pages)) == model.held
            assert (row.version, row.fencing_token, row.status) == (
                model.version, model.token, model.status
            )  # fmt: skip
            assert (row.page_count, row.dropped_count) == (len(model.pages), model.dropped)
        found = self.world.items()
        mine = {key: value["stamp"] for key, value in found.items() if key.startswith(self.prefix)}
        assert mine == self.items


@pytest.fixture
def model_database(database_url: str) -> Iterator[Database]:
    db = Database.connect(database_url)
    migrate.ensure_schema(db)
    yield db
    db.close()


def test_histories(model_database: Database) -> None:
    machine = type("OnThisDatabase", (Histories,), {"database": model_database})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=15, stateful_step_count=25, deadline=None,
            suppress_health_check=list(HealthCheck), database=None, phases=[Phase.generate],
        ),
    )  # fmt: skip
