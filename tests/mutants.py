"""Take one safeguard after the other out of the package; a test must notice each time.

``python tests/mutants.py [NAME…]`` (``make mutants``) works on a copy of the checkout, and
exits with an error if a mutant survives or does not fit the code any more.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import mutants_acts
import mutants_items
import mutants_journal
import mutants_refusals
import mutants_replay
import mutants_runs
import mutants_sites
import mutants_stop

ROOT = Path(__file__).parents[1]
COPIED = ("scrapy_resume", "tests", "example_project", "setup.cfg", "pyproject.toml")
ACCEPTANCE = "tests/acceptance/"
LIMIT = 300  # seconds until the tests of a mutant count as hung


@dataclass(frozen=True)
class Mutant:
    """*changes* are (file, text that is there once, text instead); *tests* are pytest ids."""

    name: str
    changes: tuple[tuple[str, str, str], ...]
    tests: tuple[str, ...]


_IN_PARTS = """\
        conn.exec_driver_sql("COMMIT")
        conn.exec_driver_sql("BEGIN")
"""

_BY_SELECT = """\
    shard = db.tables.task_shard
    row = conn.execute(select(shard).where(shard.c.id == shard_id)).first()
    if row is None or (row.fencing_token, row.status) != (token, "running"):
        return False
    if folded.pages and row.version != before.version:
        return False
    faults.point("commit.fenced")
    conn.execute(statement, parameters)
    return True
"""

MUTANTS = (
    Mutant(
        "the fence is a plain SELECT",
        (
            ("store/groups.py", '        faults.point("commit.fenced")\n', ""),
            (
                "store/fences.py",
                "from scrapy_resume.store.engine",
                "from scrapy_resume import faults\nfrom scrapy_resume.store.engine",
            ),
            (
                "store/fences.py",
                "    return bool(conn.execute(statement, parameters).rowcount)\n",
                _BY_SELECT,
            ),
            (  # the UPDATE itself checks nothing
                "store/fences.py",
                'shard.c.fencing_token == bindparam("b_token"),\n'
                '        shard.c.status == "running",\n',
                'shard.c.fencing_token >= bindparam("b_token"),\n',
            ),
            (
                "store/fences.py",
                'shard.c.version == bindparam("b_version")',
                'shard.c.version >= bindparam("b_version")',
            ),
            (
                "store/fences.py",
                'shard.c.failed_pages == bindparam("b_failed")',
                "shard.c.failed_pages.is_not(None)"
                ' | (shard.c.failed_pages == bindparam("b_failed"))',
            ),
        ),
        ("test_fleet.py::test_a_fleet_goes_through_everything",),
    ),
    Mutant(
        "leases are judged by each process's own clock",
        (
            (
                "store/engine.py",
                "now: datetime = conn.execute(_UTC_NOW).scalar_one()",
                "now: datetime = clock.utc_now()",
            ),
        ),
        ("test_red_clocks.py::test_red_4_live_shards_stay_with_their_owners",),
    ),
    Mutant(
        "an idle process leaves while others hold shards",
        (
            (
                "prospects.py",
                "if outlook.leased_elsewhere or (outlook.capped and runs):",
                "if outlook.capped and runs:",
            ),
        ),
        ("test_red.py::test_red_10_idle_workers_stay_until_the_last_shard_is_done",),
    ),
    Mutant(
        "nobody renews while a callback keeps the event loop busy",
        (
            (
                "heartbeat.py",
                "if silent <= self._loop.settings.loop_patience:",
                "if silent <= self._interval:",
            ),
        ),
        ("test_red.py::test_red_2_a_callback_longer_than_the_lease_harms_nothing",),
    ),
    Mutant(
        "a holder that is not sure of its leases goes on asking the site",
        (
            (
                "ledger.py",
                "            while self.unsure() and not page.closed:\n"
                "                await _pause()\n",
                "",
            ),
        ),
        ("test_workers.py::test_red_3_a_lost_shards_requests_are_not_asked_for",),
    ),
    Mutant(
        "a neighbour that died is waited for",
        (("reaper.py", "recovered = await self._recover()", "recovered = 0"),),
        (
            "test_workers.py::test_a_neighbour_on_the_same_machine_is_recovered_without_waiting"
            "_for_its_lease[sqlite]",
        ),
    ),
    Mutant(
        "a held lock is no sign of life",
        (("reaper.py", "            alive=alive, lease=lease,\n", "            lease=lease,\n"),),
        ("test_workers.py::test_a_frozen_neighbour_holds_its_slot_and_has_one_more_lease",),
    ),
    Mutant(
        "nobody ends a run whose last owner died",
        (("reaper.py", " + await run(finishing.finish_ended, db)", ""),),
        ("test_workers.py::test_a_run_whose_last_owner_died_is_declared_over_by_others[sqlite]",),
    ),
    Mutant(
        "a worker does not look whether the tables changed",
        (("reaper.py", "        await run(migrate.still_fits, db)\n", ""),),
        ("test_workers.py::test_tables_upgraded_under_a_running_worker_end_it_politely[sqlite]",),
    ),
    Mutant(
        "two may be alone in a run",
        (
            (
                "store/attendance.py",
                "existing(conn, db, task_id, lock=True)",
                "existing(conn, db, task_id)",
            ),
        ),
        (
            "../store/test_attendance.py::test_of_those_who_ask_at_the_same_moment_one_is_alone"
            "[mariadb]",
        ),
    ),
    Mutant(
        "news that come while the database is asked are lost",
        (
            (
                "claimer.py",
                "min(later, self._asked + SHORTEST) if self._news else later",
                "later",
            ),
        ),
        ("../unit/test_claimer.py::test_news_that_come_while_the_database_is_asked_are_not_lost",),
    ),
    Mutant(
        "Redis is asked in the event loop",
        (
            (
                "queuelink.py",
                "        entries = await self._thread.ask("
                "None, lambda: self._queue.take(request, limit, intake))\n",
                "        try:\n"
                "            entries = self._queue.take(request, limit, intake)\n"
                "        except Exception as error:\n"
                "            entries = self._thread.presence.fail(error) and None or None\n",
            ),
        ),
        ("test_red_away.py::test_red_8_redis_is_a_black_hole",),
    ),
    Mutant(
        "the fence does not look at the token",
        (
            (
                "store/fences.py",
                'shard.c.fencing_token == bindparam("b_token")',
                'shard.c.fencing_token >= bindparam("b_token")',
            ),
            (
                "store/fences.py",
                "if row is None or row.fencing_token != token:",
                "if row is None:",
            ),
        ),
        ("test_owner.py::test_a_late_page_of_a_former_owner_is_refused[sqlite]",),
    ),
    Mutant(
        "the checkpoint is committed in a transaction of its own, items follow",
        (
            (
                "store/groups.py",
                '        faults.point("commit.fenced")\n',
                _IN_PARTS + '        faults.point("commit.fenced")\n',
            ),
        ),
        ("test_gauntlet.py::test_killed_at[commit.fenced-sqlite]",),
    ),
    Mutant(
        "items are committed first, the checkpoint follows",
        (
            (
                "store/groups.py",
                '        faults.point("commit.begin")\n        now = self._db.now(conn)\n',
                "        now = self._db.now(conn)\n"
                "        rows = [\n"
                "            row for records in self._shards.values() for one in records\n"
                "            for row in getattr(one, 'rows', ())\n"
                "        ]\n"
                "        self._writer.write(conn, rows, now=now)\n"
                + _IN_PARTS
                + '        faults.point("commit.begin")\n',
            ),
        ),
        ("test_gauntlet.py::test_killed_at[commit.begin-sqlite]",),
    ),
    Mutant(
        "the watermark jumps over a hole",
        (("watermark.py", "if ahead.ranges[0][0] == cur_page + 1:", "if ahead:"),),
        ("test_res.py::test_res_5_a_later_page_is_stored_before_an_earlier_one[sqlite]",),
    ),
    Mutant(
        "the ledger does not know a retry",
        (
            (
                "arrivals.py",
                "return replaced.page, replaced.is_list, replaced",
                "return None, False, None",
            ),
        ),
        (
            "test_details.py::test_a_list_page_is_not_done_while_a_detail_of_it_is_pending"
            "[sqlite-retried]",
        ),
    ),
    Mutant(
        "fingerprints count before their page is committed",
        (
            (
                "duplicates.py",
                "return page.page.attempt == 1 and not page.repair and self._is_committed(print_)",
                "known = self._is_committed(print_)\n"
                "        self._committed[print_] = None\n"
                "        return known",
            ),
        ),
        (
            "test_details.py::test_a_request_is_no_duplicate_of_a_page_that_was_never_stored[sqlite]",
        ),
    ),
    Mutant(
        "the pipeline takes rows without end while the database is slow",
        (("batches.py", "elif not self._queue and not self._full:", "elif True:"),),
        (
            "test_pipeline_alone.py::test_a_kill_loses_two_batches_at_most_and_a_stuck_database_stops"
            "_the_downloads[sqlite]",
        ),
    ),
    Mutant(
        "downloads go on while items wait for room",
        (("wraps.py", "lambda: crowded() or needs_backout()", "needs_backout"),),
        (
            "test_pipeline_alone.py::test_a_kill_loses_two_batches_at_most_and_a_stuck_database_stops"
            "_the_downloads[sqlite]",
        ),
    ),
    Mutant(
        "a server that became read-only keeps its connection",
        (("store/errors.py", "| {1290, 1792, 1836, ", "| {"),),
        ("test_txn.py::test_txn_5_a_server_that_is_read_only_for_a_while",),
    ),
    Mutant(
        "the other connections of the pool outlive a failover",
        (
            (
                "store/connections.py",
                "        context.is_disconnect = True",
                "        context.is_disconnect = True\n"
                "        context.invalidate_pool_on_disconnect = False",
            ),
        ),
        ("../store/test_txn.py::test_txn_5_the_other_connections_of_the_pool_are_given_up_too",),
    ),
    Mutant(
        "a run that read nothing is complete",
        (("verdict.py", "if pages == 0:", "if pages < 0:"),),
        (
            "test_runs.py::test_a_plan_of_nothing_is_nothing_read",
            "test_pag.py::test_pag_3_a_404_on_the_first_page_is_nothing_read[open]",
        ),
    ),
    Mutant(
        "a callback that raised counts as read",
        (
            (
                "visits.py",
                "        self.fail(exc)\n        if isinstance(exc, (NotAPage",
                "        self.error = exc\n        if isinstance(exc, (NotAPage",
            ),
        ),
        (
            "test_res.py::test_res_3_a_callback_that_raises_leaves_its_page_undone[sqlite-after]",
            "test_details.py::test_a_detail_callback_that_raises_is_a_record",
        ),
    ),
    Mutant(
        "an empty body is a page",
        (("pageflow.py", "if response.status == 200 and not response.body:", "if False:"),),
        ("test_pag.py::test_a_body_of_no_bytes_is_no_proof_of_an_end",),
    ),
    Mutant(
        "items are not copied",
        (
            (
                "visits.py",
                "return thing.copy() if ",
                "return thing if True else thing.copy() if ",
            ),
        ),
        ("test_spiders.py::test_an_item_object_that_the_spider_fills_again_is_copied_on_arrival",),
    ),
    Mutant(
        "a page leaves its slot before it is stored",
        (
            (
                "pageflow.py",
                "        self.act(shard, shard.walk.closed(end))\n        self.doubts.told",
                "        self.act(shard, shard.walk.closed(end))\n"
                "        shard.walk.in_flight.discard(number)\n        self.doubts.told",
            ),
        ),
        ("test_gauntlet.py::test_the_pages_in_flight_are_bounded[sqlite]",),
    ),
    Mutant(
        "a request to Redis whose reply was lost takes other shards",
        (("lua/take.lua", "if known[1] == request then", "if false then"),),
        ("../queue/test_shardqueue.py::test_the_same_request_gets_the_same_answer",),
    ),
    Mutant(
        "what Redis handed out to a dead worker never comes back",
        (("lua/take.lua", "'-inf', now, 'LIMIT'", "'-inf', -1, 'LIMIT'"),),
        ("../queue/test_shardqueue.py::test_what_is_not_settled_in_time_is_offered_again",),
    ),
    Mutant(
        "a filler goes on after FLUSHALL",
        (("lua/offer.lua", "~= ARGV[1] then return 0 end", "~= ARGV[1] then return 1 end"),),
        ("../queue/test_shardqueue.py::test_flushall_tells_the_filler_to_stop",),
    ),
    Mutant(
        "a full Redis is believed to be back since it answers",
        (
            (
                "shardqueue.py",
                "self._client.ask(lambda: self._redis.set(",
                "str(lambda: self._redis.set(",
            ),
        ),
        ("../queue/test_queuelink.py::test_red_6_a_full_redis_is_done_without",),
    ),
    Mutant(
        "calls of redis-py have no time limit",
        (("redisclient.py", "TIMEOUT = 2.0", "TIMEOUT = 200.0"),),
        ("../queue/test_queuelink.py::test_red_8_closing_while_redis_is_frozen",),
    ),
    Mutant(
        "a retry is a duplicate of what another worker committed",
        (("duplicates.py", "return page.page.attempt == 1 and", "return"),),
        ("../queue/test_sharing.py::test_red_11_what_another_worker_committed_is_a_duplicate",),
    ),
    Mutant(
        "a shard that is ours on record, but not with us, is left to itself",
        (("work.py", "if found.running and leases", "if False and leases"),),
        ("test_fleet_attacked.py::test_a_claim_that_was_stored_unseen_is_given_back",),
    ),
    Mutant(
        "the rest of a start() passes for the whole of it",
        (("planner.py", "elif self._start_read:", "elif False:"),),
        ("test_fleet_attacked.py::test_a_start_that_was_read_in_part_plans_no_run",),
    ),
    Mutant(
        "an earlier claim's pages wait when its shard is claimed anew",
        (("pageflow.py", "if shard.id in self.shards:", "if False:"),),
        ("../unit/test_pageflow.py",),
    ),
)
MUTANTS += tuple(
    Mutant(*one)
    for more in (
        mutants_items,
        mutants_acts,
        mutants_runs,
        mutants_journal,
        mutants_replay,
        mutants_sites,
        mutants_refusals,
        mutants_stop,
    )
    for one in more.MUTANTS
)


def copy_to(directory: Path) -> None:
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            ignored = shutil.ignore_patterns("__pycache__", ".scrapy")
            shutil.copytree(source, directory / name, ignore=ignored)
        else:
            shutil.copy(source, directory / name)


def apply(mutant: Mutant, directory: Path) -> str | None:
    """Change the copy; says what does not fit, if anything."""
    for name, there, instead in mutant.changes:
        path = directory / "scrapy_resume" / name
        text = path.read_text()
        if text.count(there) != 1:
            return f"{name} has {text.count(there)} times: {there!r}"
        path.write_text(text.replace(there, instead))
    return None


def test(directory: Path, ids: Sequence[str]) -> tuple[int, str]:
    """The exit code of pytest, and its last line."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
        "-m",
        "not mutant",
    ]
    command += [ACCEPTANCE + one for one in ids]
    try:
        done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        return 1, f"the tests did not end in {LIMIT} s"
    lines = done.stdout.strip().splitlines() or [done.stderr[-200:]]
    return done.returncode, lines[-1]


def judge(mutant: Mutant) -> bool:
    """Is the mutant killed? Prints one line."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutant-") as name:
        directory = Path(name)
        copy_to(directory)
        problem = apply(mutant, directory)
        code, last = (2, problem) if problem else test(directory, mutant.tests)
    verdict = {0: "SURVIVED", 1: "killed"}.get(code, "BROKEN")
    print(f"{verdict:9} {time.monotonic() - begun:5.1f} s  {mutant.name}", flush=True)
    if verdict == "BROKEN":
        print(f"          {last}")
    return verdict == "killed"


def main(wanted: Sequence[str]) -> int:
    chosen = [one for one in MUTANTS if not wanted or any(w in one.name for w in wanted)]
    with tempfile.TemporaryDirectory(prefix="mutant-") as name:
        copy_to(Path(name))
        code, last = test(Path(name), sorted({one for m in chosen for one in m.tests}))
    if code:
        print(f"The tests fail without any mutant: {last}")
        return 1
    print(f"Without a mutant: {re.sub('[= ]+', ' ', last).strip()}")
    killed = [judge(mutant) for mutant in chosen]
    print(f"{sum(killed)} of {len(killed)} mutants killed")
    return 0 if killed and all(killed) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
