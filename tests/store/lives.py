"""The life of a task as a random walk: workers and operators do as they please.

Triggers in the database write down every change of a status, whoever makes it. After each
act every change must be one that ``transitions`` lists, with a reason of its own, and the
tables must be as the checker of :mod:`scrapy_resume.testing` wants them (I1, I3 to I7).
"""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from scrapy_resume.exceptions import ActRefused, ConfigurationError, LeaseLost, RunRefused
from scrapy_resume.intake import Intake
from scrapy_resume.page import Shard
from scrapy_resume.store import (
    acts,
    checkpoints,
    circuits,
    health,
    leases,
    quarantine,
    tasks,
    transitions,
)
from scrapy_resume.store.checkpoints import Finish, PageRecord, Record, Release
from scrapy_resume.store.engine import Database
from scrapy_resume.store.items.table import Row
from scrapy_resume.store.leases import ClaimedShard
from scrapy_resume.store.quarantine import QuarantineRecord
from scrapy_resume.store.sites import look_parked
from scrapy_resume.testing.rules import wrong_in
from scrapy_resume.testing.snapshot import Snapshot, by_shard, read_snapshot
from scrapy_resume.testing.steps import wrong_between
from scrapy_resume.watermark import PageRanges, Position
from tests.store.worlds import World, failure, item

LAST = 6
PLAN = [
    Shard("a", 1, LAST),
    Shard("b", LAST + 1, 2 * LAST, site="other"),
    Shard("chain", 1, cursor={"page": 1}, ordered=True),
]
SERVED = by_shard(
    {
        shard.key: {
            number: [f"{shard.key}-{number}-{n}" for n in (1, 2)]
            for number in range(shard.first_page, shard.first_page + LAST)
        }
        for shard in PLAN
    }
)
WORKERS = st.sampled_from(["w1", "w2"])
OWNERS = st.integers(0, 5)
PARKING = circuits.Parking(0.0, 0.0)  # over at once
DRY = st.sampled_from([False, False, False, True])
ENDS = ["release", "release", "backoff", "blocked", "code", "give up"]
SITES = st.sampled_from(["other", "site"])
_WATCH = {
    "sqlite": (
        "CREATE TRIGGER {name} AFTER UPDATE ON {table} WHEN NEW.status <> OLD.status"
        " OR NEW.{token} < OLD.{token} BEGIN {insert}; END"
    ),
    "mysql": (
        "CREATE TRIGGER {name} AFTER UPDATE ON {table} FOR EACH ROW"
        " IF NEW.status <> OLD.status OR NEW.{token} < OLD.{token} THEN {insert}; END IF"
    ),
}
_EDGES = {
    kind: {(a, b) for move in moves.values() for a in move.before for b in move.after}
    for kind, moves in {"task": transitions.TASK, "task_shard": transitions.SHARD}.items()
}


def watch(db: Database) -> None:
    """Have the database write down every change of a status."""
    with db.transaction() as conn:
        conn.exec_driver_sql(
            "CREATE TABLE life (kind VARCHAR(20), id BIGINT, old_status VARCHAR(20),"
            " new_status VARCHAR(20), old_reason VARCHAR(500), new_reason VARCHAR(500),"
            " old_token BIGINT, new_token BIGINT)"
        )
        for kind, token in (("task", "plan_token"), ("task_shard", "fencing_token")):
            insert = (
                f"INSERT INTO life VALUES ('{kind}', NEW.id, OLD.status, NEW.status, OLD.reason,"
                f" NEW.reason, OLD.{token}, NEW.{token})"
            )
            text = _WATCH[db.dialect].format(
                name=f"life_{kind}", table=f"resume_{kind}", token=token, insert=insert
            )
            conn.exec_driver_sql(text)


class Lives(RuleBasedStateMachine):
    """One task, two workers that may die or be late, and an operator."""

    database: Database
    acts: Counter[str] = Counter()
    moves: Counter[tuple[str, str]] = Counter()

    @initialize()
    def begin(self) -> None:
        self.db = self.database
        self.world = World(self.db)
        with self.db.transaction() as conn:
            for table in reversed(self.db.tables.metadata.sorted_tables):
                if not table.name.endswith("meta"):
                    conn.execute(table.delete())
            conn.exec_driver_sql("DELETE FROM life")
        self.owners: list[tuple[ClaimedShard, Position]] = []
        self.instances = itertools.count(1)
        self.instance = {"w1": "w1.0", "w2": "w2.0"}
        self.latest: Snapshot | None = None
        self.stamp = itertools.count(1)
        self.planned()

    @property
    def task(self) -> Any:
        return tasks.find_tasks(self.db, None)[0]

    # A worker

    @rule()
    def planned(self) -> None:
        """Somebody starts a crawl."""
        task = self.world.open(name="life")
        token = tasks.claim_planning(self.db, task.id, worker="w1", instance="w1.0", lease=15)
        if token is not None:
            tasks.store_plan(self.db, task.id, token, PLAN, default_site="site", max_attempts=3)
            self.acts["plan"] += 1

    @rule(worker=WORKERS, limit=st.integers(1, 3), lease=st.sampled_from([0.0, 0.0, 15.0]))
    def claim(self, worker: str, limit: int, lease: float) -> None:
        parked = look_parked(self.db)
        claimed = self._claim(worker, limit, lease)
        assert not {one.site for one in claimed} & parked.keys()
        self.acts["claim"] += len(claimed)

    @rule(at=OWNERS, count=st.integers(1, LAST), fails=st.booleans(), rejects=st.booleans())
    def read(self, at: int, count: int, fails: bool, rejects: bool) -> None:
        """Some pages of a shard, by its owner or by somebody who was."""
        if not self.owners:
            return
        one, position = self.owners[-1 - at % len(self.owners)]
        last = one.shard.last_page or LAST
        pages = list(itertools.islice(position.missing(last), count))
        records: list[Record] = [
            self._page(one, number, rejects and number % 3 == 0, last) for number in pages
        ]
        if fails and records:
            records[-1] = failure(one, pages[-1])
        if records:
            self._commit(at, records)
            self.acts["pages"] += 1

    @rule(at=OWNERS, how=st.sampled_from(ENDS))
    def end(self, at: int, how: str) -> None:
        """An owner finishes its shard if it can, else gives it up."""
        if not self.owners:
            return
        one, position = self.owners[-1 - at % len(self.owners)]
        ids = (one.id, one.fencing_token)
        last = one.shard.last_page or (LAST if one.ordered else None)
        if position.cur_page == last:
            record: Record = Finish(*ids, "done", "read to the end")
        elif how == "give up":
            record = Finish(*ids, "failed", "given up")
        elif how == "release":
            record = Release(*ids, "released")
        elif how == "blocked":
            record = Release(*ids, "the site is blocked: 403", "blocked", 0.0)
        elif how == "backoff":
            record = Release(*ids, "HttpError: 503", "retryable", 0.0, True)
        else:
            record = Release(*ids, "ValueError: no", "code", None, True)
        self._commit(at, [record])
        self.acts["end"] += 1

    @rule(
        worker=WORKERS, how=st.sampled_from(ENDS), rejects=st.booleans(),
        well=st.sampled_from([True, True, False]),
    )  # fmt: skip
    def works(self, worker: str, how: str, rejects: bool, well: bool = False) -> None:
        """A worker reads what it can get to the end, and gives up what it cannot."""
        for site in ("other", "site") if well else ():
            self.says_of_a_site(site, "healthy", False)
        before = len(self.owners)
        self.claim(worker, 2, 15.0)
        for at in range(len(self.owners) - before):
            self.read(at, LAST, False, rejects)
            self.end(at, how)

    @rule(
        what=st.sampled_from(["dies", "dies", "reap", "reap", "reap", "mended", "opens_another"]),
        worker=WORKERS,
    )
    def happens(self, what: str, worker: str) -> None:
        """What nobody asks for."""
        getattr(self, what)(*[worker] * (what == "dies"))

    def dies(self, worker: str) -> None:
        """A worker is killed and comes back."""
        self.instance[worker] = f"{worker}.{next(self.instances)}"
        leases.reclaim_worker(self.db, worker=worker, instance=self.instance[worker])
        self.acts["die"] += 1

    def reap(self) -> None:
        leases.reap(self.db, actor="reaper")
        leases.raise_due(self.db)
        acts.carry_out(self.db)
        tasks.finish_ended(self.db)
        self.acts["reap"] += 1

    def mended(self) -> None:
        leases.raise_code_holds(self.db, self.task.id)
        self.acts["mend"] += 1

    def opens_another(self) -> None:
        try:
            self.world.open("new", name="life")
        except RunRefused:
            return
        self.acts["new run"] += 1

    @rule(site=SITES, state=st.sampled_from(["suspect", "healthy", "blocked"]))
    def judges(self, site: str, state: str) -> None:
        """A worker says how a site is; a blocked one may be tried at once."""
        before = circuits.judge_site(self.db, site, state, "403s", parking=PARKING, by="a worker")
        assert before.state in (state, "blocked", "paused", "healthy")
        self.acts[f"judge {state}"] += 1

    @rule(
        site=SITES, worker=WORKERS,
        how=st.sampled_from(["passes", "passes", "fails", "dies", "gives up"]),
    )  # fmt: skip
    def tries(self, site: str, worker: str, how: str) -> None:
        """A worker tries a blocked site with one shard of it."""
        instance = self.instance[worker]
        if not circuits.claim_probe(self.db, site, instance=instance, lease=0.0):
            return
        circuits.claim_probe(self.db, site, instance=instance, lease=15.0)
        self._claim(worker, 1, 15.0, intake=Intake(sites=frozenset({site})), tries=site)
        if how == "dies":
            self.dies(worker)
        elif how == "gives up":
            circuits.drop_probe(self.db, site, instance=instance)
        else:
            row = circuits.probe_result(
                self.db, site, how == "passes", "it was tried", instance=instance,
                parking=PARKING, by=worker,
            )  # fmt: skip
            assert row is not None
        self.acts[f"try that {how}"] += 1

    # An operator

    @rule(
        site=SITES,
        state=st.sampled_from(["healthy", "healthy", "healthy", "paused", "blocked"]),
        dry=DRY,
    )
    def says_of_a_site(self, site: str, state: str, dry: bool) -> None:
        seconds = 0.0 if state == "blocked" else None
        before = health.sites(self.db)
        try:
            health.set_site(
                self.db, site, state, actor="operator", seconds=seconds,
                reason=f"number {next(self.stamp)}", dry_run=dry,
            )  # fmt: skip
        except ActRefused:
            self.acts["site refused"] += 1
            return
        assert not dry or health.sites(self.db) == before
        self.acts[f"site {state}"] += 1

    @rule(
        kind=st.sampled_from(
            ["pause", "pause", "unpause", "unpause", "unpause", "cancel", "retry", "retry",
             "restart", "reset"]
        ),
        dry=DRY,
    )  # fmt: skip
    def acts_on_the_run(self, kind: str, dry: bool) -> None:
        self._act(kind, dry, self.task.id)

    @rule(
        first=st.integers(1, 2 * LAST + 2),
        more=st.integers(0, 4),
        dry=DRY,
        failed=st.sampled_from([False, False, True]),
    )
    def acts_on_pages(self, first: int, more: int, dry: bool, failed: bool) -> None:
        pages = PageRanges(((first, first + more),))
        if failed:
            self._act("retry", dry, self.task.id, pages=pages)
        else:
            self._act("backfill", dry, self.task.id, pages)

    @rule(take=st.integers(1, 3), resolve=st.booleans(), dry=DRY)
    def looks_at_the_quarantine(self, take: int, resolve: bool, dry: bool) -> None:
        found = quarantine.find(self.db, self.task.id, resolved=False, limit=take)
        ids = [row["id"] for row in found]
        if resolve:
            self._act("resolve", dry, ids, "seen")
        else:
            self._act("requeue", dry, ids)

    @rule(kind=st.sampled_from(["retry", "restart"]), at=OWNERS, worker=WORKERS)
    def mends_a_paused_run(self, kind: str, at: int, worker: str) -> None:
        """Something fails, and is mended while nobody may read on."""
        self.claim(worker, 2, 15.0)
        self.end(at, "give up")
        self._act("pause", False, self.task.id)
        self.dies(worker)
        self._act(kind, False, self.task.id)

    # Inside

    def _act(self, kind: str, dry: bool, *args: Any, **given: Any) -> None:
        before = read_snapshot(self.db) if dry else None
        try:
            result = getattr(acts, kind)(
                self.db, *args, actor="operator", reason=f"number {next(self.stamp)}",
                dry_run=dry, **given,
            )  # fmt: skip
        except (ActRefused, ConfigurationError):
            self.acts[f"{kind} refused"] += 1
            return
        assert result.sentences
        self.acts[kind] += 1
        if before is not None:
            assert read_snapshot(self.db) == before

    def _claim(self, worker: str, limit: int, lease: float, **options: Any) -> list[ClaimedShard]:
        claimed = leases.claim(
            self.db, self.task.id, worker=worker, instance=self.instance[worker], limit=limit,
            lease=lease, **options,
        )  # fmt: skip
        self.owners += [(one, one.position) for one in claimed]
        return claimed

    def _commit(self, at: int, records: list[Record]) -> None:
        place = len(self.owners) - 1 - at % len(self.owners)
        one, position = self.owners[place]
        try:
            result = checkpoints.commit(self.db, records, {one.id: position})
        except LeaseLost:
            return
        self.owners[place] = (one, result.positions.get(one.id, position))

    def _page(self, one: ClaimedShard, number: int, rejects: bool, last: int) -> PageRecord:
        where = {"task_id": one.task_id, "shard_no": one.shard_no, "page": number}
        rows: list[Row] = []
        for n in (1, 2):
            row = item(f"{one.shard.key}-{number}-{n}", stamp=next(self.stamp))
            row.values.update(where)
            rows.append(row)
        aside = QuarantineRecord(
            one.task_id, one.id, one.shard_no, number, "request", None, None, "HttpError", "404"
        )
        chain: dict[str, Any] = {}
        if one.ordered:
            chain = {"cursor": f'{{"page":{number + 1}}}', "ordered": True, "ends": number == last}
        return PageRecord(
            one.id, one.fencing_token, number, tuple(rows), (aside,) if rejects else (), **chain
        )

    @precondition(lambda self: hasattr(self, "db"))
    @invariant()
    def every_change_is_listed_and_has_a_reason(self) -> None:
        with self.db.transaction() as conn:
            changes = conn.exec_driver_sql("SELECT * FROM life").all()
            conn.exec_driver_sql("DELETE FROM life")
        for change in changes:
            edge = (change.old_status, change.new_status)
            assert edge in _EDGES[change.kind], change
            assert change.new_reason.strip(), change
            assert change.new_token >= change.old_token, change
            if change.kind == "task_shard":
                assert change.new_reason != change.old_reason, change
                if change.new_status == "running":
                    assert change.new_token == change.old_token + 1, change
            self.moves[edge] += 1

    @precondition(lambda self: hasattr(self, "db"))
    @invariant()
    def the_tables_are_as_promised(self) -> None:
        now = read_snapshot(self.db)
        wrong = list(wrong_in(now, SERVED))
        if self.latest is not None:
            wrong += wrong_between(self.latest, now)
        self.latest = now
        assert wrong == []
