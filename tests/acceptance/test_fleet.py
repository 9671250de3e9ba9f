"""The gauntlet of a fleet: everything dies, freezes and comes back, in one run."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from example_project.site import Site

from tests.acceptance.acts import ACTS, drawn
from tests.acceptance.fleet import LEASE, ROWS, SHARDS, WORKERS, Fleet
from tests.acceptance.forkserver import ForkServer
from tests.acceptance.gauntlet import Tally
from tests.acceptance.harness import Bench
from tests.services import MariaDB, Redis

SECONDS = 38  # of faults; the run then has to end


@contextmanager
def made(directory: Path, forks: ForkServer | None, shard_pages: int) -> Iterator[Fleet]:
    """Four machines with servers of their own, which are going to be harmed."""
    mariadb, redis = MariaDB(directory / "mariadb"), Redis(directory / "redis")
    with Site(pages=SHARDS * shard_pages, rows=ROWS) as site:
        for server in (mariadb, redis):
            server.start()
        mariadb.execute("CREATE DATABASE fleet")
        bench = Bench(directory / "project", mariadb.url("fleet"), site, "fleet_", forks)
        try:
            yield Fleet(bench, mariadb, redis, shard_pages)
        finally:
            bench.end()
            for server in (mariadb, redis):
                server.discard()


def gauntlet(fleet: Fleet, tally: Tally, seed: int, seconds: float, pause: float) -> None:
    """One run of the fleet; says what was done and what it came to."""
    acts = drawn(seed, seconds, pause=pause, workers=WORKERS, lease=LEASE)
    print(f"FLEET_SEED={seed}, {len(acts)} acts")
    fleet.run(acts, seconds)
    fleet.judge()
    print(dict(sorted(fleet.counts.items())))
    tally.counts["acts on a fleet"] += len(acts)


def test_a_fleet_goes_through_everything(
    tmp_path: Path, forks: ForkServer | None, tally: Tally
) -> None:
    seed = int(os.environ.get("FLEET_SEED", zlib.crc32(b"fleet")))
    with made(tmp_path, forks, shard_pages=6) as fleet:
        gauntlet(fleet, tally, seed, SECONDS, pause=1.2)
        assert all(fleet.counts[what] for what in ACTS), fleet.counts
        assert fleet.counts["frozen in a commit"]
        assert fleet.counts["killed in the journal"]


def test_the_acts_are_those_of_the_seed() -> None:
    one, same, other = (drawn(n, 60, pause=1, workers=4, lease=1) for n in (1, 1, 2))
    assert one == same != other
    assert {act.what for act in one} == {act.what for act in other} == set(ACTS)
