"""What a fleet has to bear for long, and at the default times; ``make stress``.

``FLEET_SEED`` repeats a gauntlet, ``FLEET_SECONDS`` makes it longer or shorter. Each test
prints what it measured.
"""

from __future__ import annotations

import datetime
import os
import random
import time
from pathlib import Path

import pytest
from example_project.site.listing import make_row

from scrapy_resume.wakeups import LOOK
from tests.acceptance.forkserver import ForkServer
from tests.acceptance.gauntlet import Tally
from tests.acceptance.harness import NUMBERED, Bench, wait_until
from tests.acceptance.test_fleet import gauntlet, made
from tests.acceptance.test_red import (
    blocking_callback,
    frozen_at_page_7,
    red,
    redis,
    repeated_deaths,
    slow_downloads,
    the_last_holder_dies,
    wakes_up_too_late,
    watched,
)
from tests.acceptance.test_red_away import LAG, WITH_LAG, lossy
from tests.acceptance.test_res import ONE_BY_ONE
from tests.services import MariaDB, Redis

__all__ = ["lossy", "red", "redis"]  # fixtures

pytestmark = pytest.mark.stress

SEED = int(os.environ.get("FLEET_SEED", random.randrange(2**32)))
SECONDS = float(os.environ.get("FLEET_SECONDS", "600"))
DEFAULTS = {"RESUME_LEASE": 15, "RESUME_HEARTBEAT": 3, "RESUME_MAX_WAIT": 60}


def test_stress_fleet(tmp_path: Path, forks: ForkServer | None, tally: Tally) -> None:
    """Ten minutes of everything: 0 violations, and the items of an undisturbed run."""
    with made(tmp_path, forks, shard_pages=max(6, int(SECONDS / 6.5))) as fleet:
        gauntlet(fleet, tally, SEED, SECONDS, pause=2.0)


def test_stress_red_1_thirty_deaths(red: Bench) -> None:
    print(f"{repeated_deaths(red, 30, SEED)} shards came back")


def test_stress_red_2_at_its_own_times(red: Bench) -> None:
    times = {"RESUME_LEASE": 5, "RESUME_HEARTBEAT": 1}
    slow_downloads(red, 8, **times)


def test_stress_red_2_a_callback_of_twelve_seconds(red: Bench) -> None:
    blocking_callback(red, 12, RESUME_LEASE=5, RESUME_HEARTBEAT=1)


def test_stress_red_3_a_freeze_of_a_minute(red: Bench, mariadb: MariaDB) -> None:
    """At the default times: the others take over within 20 s, the sleeper is refused."""
    red.write(NUMBERED + "    shard_pages = 9\n")
    red.settings = DEFAULTS
    with watched(red):
        first = frozen_at_page_7(red, mariadb)
        frozen_at = time.monotonic()
        second = red.start(home="B", RESUME_LANES="resumed", **ONE_BY_ONE)
        wait_until(lambda: red.committed() == set(range(1, 10)), timeout=60)
        print(f"pages 7-9 are stored {time.monotonic() - frozen_at:.1f} s after the freeze")
        second.stop().wait()
        time.sleep(max(0.0, 60 - (time.monotonic() - frozen_at)))
        wakes_up_too_late(red, first)
    assert (red.task["verdict"], len(red.items)) == ("complete", 120)


def test_stress_red_10_a_lease_of_twenty_seconds(red: Bench) -> None:
    with watched(red):
        times = {"RESUME_LEASE": 20, "RESUME_HEARTBEAT": 4}
        waited, left = the_last_holder_dies(red, 20.0, **times)
    print(f"the run ends {waited:.1f} s after the death, the last process {left:.1f} s later")
    assert waited < 20 + 15 and left < 15


def test_stress_another_machine_within_twenty_seconds(red: Bench) -> None:
    """After SIGKILL, at the default times, the shards of a dead machine are claimable."""
    red.write(NUMBERED + "    shard_pages = 2\n")
    red.settings = DEFAULTS
    held = red.site.behave(page=range(3, 13), hold=True)
    first = red.start(home="dead", RESUME_SHARDS=3, RESUME_PAGES_IN_FLIGHT=1)
    wait_until(lambda: held.hits >= 2)
    second = red.start(home="living", RESUME_SHARDS=1)
    second.wait_until_logged("Working on run")
    wait_until(lambda: _held_by(red, second))  # a fresh one, while the dead one's are not free
    time.sleep(16)  # it has been in contact for a whole lease, as a fleet's workers are
    first.kill()
    died = time.monotonic()
    wait_until(lambda: not _held_by(red, first), timeout=40)
    print(f"claimable {time.monotonic() - died:.1f} s after the death of the machine")
    assert time.monotonic() - died < 20
    red.site.heal()
    assert second.wait().finish_reason == "finished"


def _held_by(bench: Bench, crawl: object) -> bool:
    log = crawl.log  # type: ignore[attr-defined]
    return any(row["worker"] and row["worker"][:8] in log for row in bench.shards)


def test_stress_the_event_loop_never_waits_for_redis(
    lossy: tuple[Bench, Redis],
) -> None:
    """A crawl of 400 pages whose Redis freezes at page 5 and stays so."""
    bench, redis = lossy
    bench.site.listing.rows = [make_row(n, f"k{n:04d}") for n in range(1, 401)]
    bench.site.listing.rows_per_page = 1
    pages = NUMBERED + "    last_page = 400\n    shard_pages = 4\n"
    bench.write(pages, settings=WITH_LAG, lag=LAG)
    worst = []
    for frozen in (False, True):
        held = bench.site.behave(page=5, hold=True)
        crawl = bench.start()
        held.wait()
        if frozen:
            redis.freeze()
        bench.site.heal()
        assert crawl.wait().finish_reason == "finished"
        worst.append(crawl.stats["lag/worst"])
    redis.thaw()
    print(f"worst lag of the event loop: {worst[0]:.3f} s, with Redis frozen {worst[1]:.3f} s")
    assert worst[1] < 0.1


def test_stress_red_9_two_hundred_pushes_at_the_limit(lossy: tuple[Bench, Redis]) -> None:
    """An idle worker is woken each time, at the moment at which its wait ends by itself."""
    bench, redis = lossy
    bench.site.listing.rows = [make_row(n, f"k{n:04d}") for n in range(1, 211)]
    bench.site.listing.rows_per_page = 1
    bench.write(NUMBERED + "    last_page = 210\n    shard_pages = 1\n")
    slow = {"RESUME_LEASE": 3600, "RESUME_HEARTBEAT": 600}  # only a wake-up can be quick
    held = bench.site.behave(page=range(1, 6), hold=True)
    first = bench.start(home="first", RESUME_SHARDS=1, **slow)
    held.wait()
    wait_until(lambda: held.hits == 2)  # one may only wait for its last page
    park(bench)
    second = bench.start(home="second", RESUME_SHARDS=1, **slow)
    second.wait_until_logged("Working on run")
    wait_until(lambda: redis.client().pubsub_channels("resume:*wake"))
    time.sleep(60)
    assert not second.said("WARNING") and not second.said("ERROR")
    dice = random.Random(SEED)
    for page in range(6, 206):
        told = time.monotonic()
        push(bench, redis, page)
        wait_until(lambda page=page: page in bench.site.pages(), timeout=5, interval=0.01)
        time.sleep(max(0.0, LOOK + dice.uniform(-0.01, 0.01) - (time.monotonic() - told)))
    bench.site.heal()
    for crawl in (first, second):
        assert not crawl.said("WARNING") and not crawl.said("ERROR")
        assert crawl.stop().wait().code == 0
    assert sorted(bench.site.pages()) == [1, 2, *range(6, 206)]
    print("200 of 200 pushes were taken at once")


def park(bench: Bench) -> None:
    """Nothing that waits is due."""
    shard = bench.database.tables.task_shard
    with bench.database.transaction() as conn:
        late = {"due": 0, "next_run_at": datetime.datetime(2999, 1, 1)}
        conn.execute(shard.update().where(shard.c.status == "pending").values(late))


def push(bench: Bench, redis: Redis, number: int) -> None:
    """Let shard *number* fall due, and tell everyone."""
    shard = bench.database.tables.task_shard
    with bench.database.transaction() as conn:
        due = {"due": 1, "next_run_at": None}
        conn.execute(shard.update().where(shard.c.shard_no == number).values(due))
    (channel,) = redis.client().pubsub_channels("resume:*wake")
    redis.client().publish(channel, "the test")
