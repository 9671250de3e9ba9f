"""Hints and the database together: whatever Redis says, every shard has one owner."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from redis import Redis as Client

from scrapy_resume.intake import Intake
from scrapy_resume.page import Shard
from scrapy_resume.shardqueue import ShardQueue
from scrapy_resume.store import backlog, leases, migrate, tasks
from scrapy_resume.store.engine import Database

SHARDS, WORKERS = 400, 4


@pytest.fixture
def db(database_url: str) -> Iterator[Database]:
    database = Database.connect(database_url)
    migrate.ensure_schema(database)
    yield database
    database.close()


def planned(db: Database) -> int:
    task = tasks.open_run(db, name="t", spider="t", args="{}", run="new", actor="a test")
    token = tasks.claim_planning(db, task.id, worker="w", instance="i", lease=60)
    assert token is not None
    shards = [Shard(f"s{n}", 1, 2, site=f"site{n % 3}", priority=n % 2) for n in range(SHARDS)]
    tasks.store_plan(db, task.id, token, shards, default_site="site")
    return task.id


def test_red_5_flushed_and_stale_hints_give_no_shard_two_owners(
    db: Database, asker: Callable[..., ShardQueue], redis_client: Client
) -> None:
    task = planned(db)
    everything = backlog.waiting(db, task, after=0, limit=SHARDS)
    owners: Counter[int] = Counter()
    stale = [0] * WORKERS
    asker("filler").offer(everything)

    def work(number: int) -> None:
        queue, request = asker(f"w{number}"), 0
        while sum(owners.values()) < SHARDS:
            request += 1
            hints = queue.take(str(request), 5, Intake())
            claimed = leases.claim(
                db, task, worker=f"w{number}", instance=f"w{number}", limit=5, lease=600,
                hints=[entry.id for entry in hints], alone=True,
            )  # fmt: skip
            queue.settle(hints)
            owners.update(shard.id for shard in claimed)
            stale[number] += len({entry.id for entry in hints} - {shard.id for shard in claimed})
            if request % 7 == 3:
                redis_client.flushall()
                queue.offer(everything)  # those that have an owner too

    threads = [threading.Thread(target=work, args=(number,)) for number in range(WORKERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert owners == Counter({shard.id: 1 for shard in everything})
    assert sum(stale) > 0


def test_hints_are_what_is_claimed(
    db: Database, asker: Callable[..., ShardQueue], database_id: str
) -> None:
    task = planned(db)
    queue = asker("a", run=task)
    after = 0
    assert queue.begin_fill()
    while batch := backlog.waiting(db, task, after=after, limit=150):
        assert queue.offer(batch, filling=True)
        after = batch[-1].id
    queue.end_fill(1)
    hints = [entry.id for entry in queue.take("1", 7, Intake())]
    claimed = leases.claim(
        db, task, worker="w", instance="w", limit=7, lease=600, hints=hints, alone=True
    )
    assert sorted(shard.id for shard in claimed) == sorted(hints) and len(hints) == 7
