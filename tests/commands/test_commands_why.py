"""``scrapy resume why``."""

from __future__ import annotations

import re
import shlex

import pytest

from scrapy_resume.commands.mends import missing
from scrapy_resume.page import ErrorKind, Shard
from scrapy_resume.store import acts, health, operations, quarantine, tasks, workers
from scrapy_resume.store.operations import Operation
from scrapy_resume.store.quarantine import QuarantineRecord
from scrapy_resume.store.records import Finish, Release
from tests.commands.conftest import Scrapy
from tests.store.worlds import World, failure, page

_RUN = "`scrapy resume run books`"
on_sqlite = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


def test_a_run_that_waits_for_anyone(resume: Scrapy, world: World) -> None:
    world.plan([Shard("a", 1, 10)])
    headline, shard, advice = resume("why", "books").out.splitlines()
    assert headline == (
        "Run 1 of books (id 1) is unfinished, and nobody works on it:"
        " 0 of 1 shards done, 0 pages and 0 items stored."
    )
    assert shard.startswith("Shard 1 (site, pages 1-10, nothing read up to now) waits since 2")
    assert shard.endswith(": planned; it may be claimed now, 0 of 10 tries spent.")
    assert advice == f"{_RUN} goes on with it, here or on another machine."


def test_a_shard_that_a_worker_holds(resume: Scrapy, world: World) -> None:
    task = world.plan([Shard("a", 1, None)])
    workers.register(
        world.db, worker="worker-of-one", instance="i1", host="crawler7", pid=4711,
        version="1", protocol=1, capacity=8,
    )  # fmt: skip
    (shard,) = world.claim(task, worker="worker-of-one", instance="i1", lease=1000)
    world.commit(page(shard, 1), page(shard, 3))
    headline, said, advice = resume("why", "books").out.splitlines()
    assert headline.startswith("Run 1 of books (id 1) is running: ")
    assert said.startswith(
        "Shard 1 (site, pages 1-, read up to 1 and 3, missing 2,4-) is held by worker worker-o"
        " (crawler7, pid 4711) for 16 min more unless it renews, until 2"
    )
    assert "; last written 2" in said
    assert advice.endswith("`scrapy resume status 1 --watch` follows them.")


def test_a_lease_that_has_ended(resume: Scrapy, world: World) -> None:
    world.claim(world.plan(), lease=-600)
    assert resume("why", "books", "--json").json["shards"][0]["mend"] == _RUN.strip("`")
    said = resume("why", "books").out.splitlines()[1]
    assert "held by worker w, whose lease ended 10 min ago; any crawl takes it over" in said


def test_a_shard_that_waits_after_an_error(resume: Scrapy, world: World) -> None:
    (shard,) = world.claim(world.plan([Shard("a", 1, 10)]))
    reason = "page 5: HttpError: 503"
    world.commit(
        page(shard, 1),
        failure(shard, 4),
        failure(shard, 5),
        Release(shard.id, shard.fencing_token, reason, "retryable", 630.0, True),
    )
    _, said, *pages, mend, advice = resume("why", "books").out.splitlines()
    assert said.startswith("Shard 1 (site, pages 1-10, read up to 1, missing 2-10) waits since")
    assert mend == "`scrapy resume retry 1 --shards 1` waits no longer for the next try."
    assert f": {reason}; the next try is due in 10 min (2" in said
    assert said.endswith(" UTC), 0 of 10 tries spent.")
    assert pages == ["  page 4 failed", "  page 5 failed: HttpError: 503 Service Unavailable"]
    assert advice.startswith("The next try is due in 10 min; then `scrapy resume run books`")


def test_a_blocked_sites_error_is_said_once(resume: Scrapy, world: World) -> None:
    (shard,) = world.claim(world.plan([Shard("a", 1, 10)]))
    reason = "page 2: the site is blocked: HTTP 403"
    world.commit(Release(shard.id, shard.fencing_token, reason, "blocked", 630.0, True))
    world.sql("UPDATE resume_task_shard SET last_error = 'HTTP 403'")
    assert resume("why", "books").out.count("HTTP 403") == 1
    world.sql("UPDATE resume_task_shard SET last_error = 'HTTP 429'")
    assert "  last error: HTTP 429" in resume("why", "books").out.splitlines()


def test_an_error_of_the_spiders_own_code(resume: Scrapy, world: World) -> None:
    (shard,) = world.claim(world.plan([Shard("a", 1, 10)]))
    held = Release(shard.id, shard.fencing_token, "page 2: KeyError: 'x'", "code", None, True)
    world.commit(failure(shard, 2, ErrorKind.CODE), held)
    said = resume("why", "books").out.splitlines()
    assert "it is tried again when a crawl starts" in said[1]
    assert said[-1] == f"Mend the spider's code, then {_RUN} reads what is held by its errors."


def test_a_run_that_is_over_with_a_failed_shard(resume: Scrapy, world: World) -> None:
    task = world.plan([Shard("a", 1, 2), Shard("b", 1, 2)])
    first, second = world.claim(task)
    world.commit(
        page(first, 1), page(first, 2), Finish(first.id, first.fencing_token, "done", "read")
    )
    world.commit(Finish(second.id, second.fencing_token, "failed", "a loop: page 2 is page 1"))
    tasks.finish_run(world.db, task.id)
    headline, said, mend, advice = resume("why", str(task.id)).out.splitlines()
    assert headline.startswith(
        "Run 1 of books (id 1) is over, incomplete: 1 shard not done: 1 failed"
    )
    assert "has failed since 2" in said
    assert said.endswith(": a loop: page 2 is page 1.")
    assert mend == "`scrapy resume retry 1 --shards 2` has what failed tried again."
    assert advice == f"This run is over; {_RUN} starts a new one."


def test_quarantined_records_are_counted_and_the_first_ten_listed(
    resume: Scrapy, world: World
) -> None:
    task = world.plan([Shard("a", 1, 1)])
    (shard,) = world.claim(task)
    rejects = tuple(
        QuarantineRecord(
            task.id, shard.id, 1, 1, "request", f"https://site/{n}", None, "HttpError", "500"
        )
        for n in range(12)
    )
    finish = Finish(shard.id, shard.fencing_token, "done", "read")
    world.commit(page(shard, 1, quarantine=rejects), finish)
    tasks.finish_run(world.db, task.id)
    headline, count, *listed, more, mend, advice = resume("why", "books").out.splitlines()
    assert "is over, complete_with_rejects: " in headline
    assert count == "12 in quarantine:"
    assert listed == [
        f"  record {n + 1}: request https://site/{n} (shard 1, page 1): HttpError: 500"
        for n in range(10)
    ]
    assert more == "  and 2 more"
    assert mend == (
        "`scrapy resume quarantine requeue --task 1` has the pages of what is in quarantine read"
        " again; `scrapy resume quarantine list 1` has all of it."
    )
    assert advice == f"Mend what the reasons say; {_RUN} starts a new run, which reads all again."


def test_pages_read_beyond_a_hole_at_the_beginning(resume: Scrapy, world: World) -> None:
    task = world.plan([Shard("a", 1, 5)])
    (shard,) = world.claim(task)
    world.commit(page(shard, 3))
    assert "(site, pages 1-5, read 3, missing 1-2,4-5) is held" in resume("why", "books").out


def test_cfg_2_a_refused_row_is_told_with_its_column_and_its_value_if_asked_for(
    resume: Scrapy, world: World
) -> None:
    task = world.plan([Shard("a", 1, 1)])
    (shard,) = world.claim(task)
    row = QuarantineRecord(
        task.id, shard.id, 1, 1, "row", None, "k7", "Unfit", "it is no number",
        column_name="price", value="dear", item_table="offer",
    )  # fmt: skip
    world.commit(page(shard, 1, quarantine=(row,)))
    told = (
        "  record 1: row k7 (shard 1, page 1): Unfit in column price of table offer:"
        " it is no number"
    )
    assert told in resume("why", "books").out.splitlines()
    assert f"{told}; its value: 'dear'" in resume("why", "books", "--values").out.splitlines()
    (listed,) = resume("why", "books", "--json").json["quarantine"]
    assert (listed["item_table"], listed["column_name"]) == ("offer", "price")
    assert "value" not in listed
    assert resume("why", "books", "--values", "--json").json["quarantine"][0]["value"] == "dear"


def test_a_run_that_nobody_has_planned(resume: Scrapy, world: World) -> None:
    world.open()
    headline, advice = resume("why", "books").out.splitlines()
    assert "is not planned yet, so nothing of it can be read: opened by a test." in headline
    assert advice.startswith(_RUN)


def test_many_shards_and_pages_are_cut_short(resume: Scrapy, world: World) -> None:
    task = world.plan([Shard(f"s{n}", 1, 100) for n in range(30)])
    (shard,) = world.claim(task, 1)
    world.commit(*(failure(shard, number) for number in range(1, 31)))
    said = resume("why", "books").out.splitlines()
    assert "And 10 more shards; --json has them all." in said
    assert "  and 10 more failed pages: 1-30" in said


def test_the_command_repeats_the_spiders_arguments(resume: Scrapy, world: World) -> None:
    tasks.open_run(
        world.db, name="books a", spider="books", args='{"q": "two words"}', run="auto", actor="a"
    )
    assert "scrapy resume run books -a 'q=two words'" in resume("why", "books a").out


def test_the_facts_as_json(resume: Scrapy, world: World) -> None:
    url = "https://me:pw@site/list?token=s3cret"
    task = world.plan([Shard(f"1:{url}", 1, 10, cursor={"url": url}), Shard("b", 1, 1)])
    first, second = world.claim(task)
    world.commit(page(first, 1), failure(first, 2))
    world.commit(page(second, 1), Finish(second.id, second.fencing_token, "done", "read"))
    outcome = resume("why", str(task.id), "--json")
    facts = outcome.json
    assert (facts["task_id"], facts["name"], facts["run_no"], facts["verdict"]) == (
        1, "books", 1, None,
    )  # fmt: skip
    assert facts["shard_counts"] == {
        "pending": 0,
        "running": 1,
        "paused": 0,
        "done": 1,
        "failed": 0,
    }
    (shard,) = facts["shards"]
    assert (shard["shard_no"], shard["cur_page"], shard["failed_pages"]) == (1, 1, "2")
    assert shard["last_error"] == "page 2: HttpError: 503 Service Unavailable"
    assert (facts["quarantined"], facts["unresolved"], facts["quarantine"]) == (0, 0, [])
    assert (shard["missing"], shard["mend"]) == ("2-10", None)
    assert facts["advice"]
    assert "s3cret" not in outcome.out
    assert "pw" not in outcome.out


def test_what_is_resolved_is_told_no_more(resume: Scrapy, world: World) -> None:
    task = world.plan([Shard("a", 1, 1)])
    loose = QuarantineRecord(task.id, None, None, None, "item", None, "k7", "ValueError", "no")
    quarantine.set_aside(world.db, [loose, loose])
    acts.resolve(world.db, [1], "not wanted", actor="a test", reason="so it is")
    said = resume("why", "books").out.splitlines()
    assert "1 in quarantine:" in said
    assert "  record 2: item k7 (of no page): ValueError: no" in said
    assert said[-2].startswith("`scrapy resume quarantine resolve --task 1 --resolution TEXT`")
    acts.resolve(world.db, [2], "not wanted", actor="a test", reason="so it is")
    assert "quarantine" not in resume("why", "books").out


def test_a_paused_run(resume: Scrapy, world: World) -> None:
    task = world.plan([Shard("a", 1, 3), Shard("b", 1, 3)])
    acts.pause(world.db, task.id, actor="alice@desk", reason="the site is being moved")
    headline, *shards, act, mend, advice = resume("why", "books").out.splitlines()
    assert re.fullmatch(r"2.* UTC: pause by alice@desk: the site is being moved\.", act)
    assert headline.startswith("Run 1 of books (id 1) is paused: 0 of 2 shards done")
    assert len(shards) == 2
    assert ": paused by alice@desk: the site is being moved." in shards[0]
    assert mend == "`scrapy resume unpause 1` ends the pause."
    assert advice == "It is paused; nothing of it is read until its pause is ended."
    facts = resume("why", "books", "--json").json
    assert {one["mend"] for one in facts["shards"]} == {"scrapy resume unpause 1"}


@pytest.mark.parametrize(
    ("state", "obstacle", "command", "does"),
    [
        ("paused", "paused", "unpause --site 'a site'", "ends the pause of"),
        ("blocked", "blocked until 2", "health set 'a site' healthy", "tries"),
    ],
)
def test_a_site_that_is_held(
    resume: Scrapy, world: World, state: str, obstacle: str, command: str, does: str
) -> None:
    world.plan([Shard("a", 1, 3, site="a site"), Shard("b", 1, 3, site="b")])
    health.set_site(
        world.db, "a site", state, actor="alice@desk", reason="they asked us to",
        seconds=None if state == "paused" else 900.0,
    )  # fmt: skip
    _, held, free, mend, _ = resume("why", "books").out.splitlines()
    assert f"; its site is {obstacle}" in held
    assert ": they asked us to, 0 of 10 tries spent." in held
    assert "it may be claimed now" in free
    assert mend == f"`scrapy resume {command}` {does} a site at once."
    first, second = resume("why", "books", "--json").json["shards"]
    assert (first["mend"], second["mend"]) == (
        f"scrapy resume {command}",
        "scrapy resume run books",
    )
    # Once its time is over, a crawl takes it, or tries it first if it was blocked.
    world.sql("UPDATE resume_site_health SET until = '2020-01-01 00:00:00.000000'")
    out = resume("why", "books").out
    assert ("its site is blocked (to be tried): they asked us to" in out) is (state == "blocked")
    assert f"scrapy resume {command}" not in out
    assert resume("why", "books", "--json").json["shards"][0]["mend"] == "scrapy resume run books"


def test_what_is_mended_alike_is_told_once(resume: Scrapy, world: World) -> None:
    task = world.plan([Shard(f"s{n}", 1, 9) for n in range(1, 7)])
    held = {one.shard_no: one for one in world.claim(task)}
    for number in (1, 2, 4):
        one = held[number]
        world.commit(Finish(one.id, one.fencing_token, "failed", "page 1: HTTP 500"))
    for number in (3, 5):
        one = held[number]
        world.commit(Release(one.id, one.fencing_token, "HTTP 503", "retryable", 900.0, True))
    said = resume("why", "books").out.splitlines()
    assert "`scrapy resume retry 1 --shards 1-2,4` has what failed tried again." in said
    assert "`scrapy resume retry 1 --shards 3,5` waits no longer for the next try." in said
    mends = {
        one["shard_no"]: one["mend"] for one in resume("why", "books", "--json").json["shards"]
    }
    assert mends[4] == "scrapy resume retry 1 --shards 4"
    assert mends[5] == "scrapy resume retry 1 --shards 5"
    assert mends[6] is None  # a worker holds it


def test_the_latest_acts_are_told_each_once(resume: Scrapy, world: World) -> None:
    task = world.plan([Shard("a", 1, 9)])
    who = {"actor": "alice@desk", "reason": "so it is"}
    for _ in range(3):
        acts.pause(world.db, task.id, **who)
        acts.unpause(world.db, task.id, **who)
    (shard,) = world.claim(task)
    rows = [
        QuarantineRecord(task.id, shard.id, 1, 1, "row", None, str(n), "Unfit", "no")
        for n in range(3)
    ]
    world.commit(page(shard, 1, quarantine=tuple(rows)))
    acts.resolve(world.db, [1, 2, 3], "not wanted", actor="bob@desk", reason="they are old")
    operations.note(world.db, Operation("salvage", "worker w", "not an operator's", task.id))
    told = resume("why", "books", "--json").json["acts"]
    assert [one["kind"] for one in told] == ["resolve", "unpause", "pause", "unpause", "pause"]
    assert told[0]["at"].endswith("Z")
    assert (told[0]["actor"], told[0]["reason"]) == ("bob@desk", "they are old")
    assert resume("why", "books").out.count("resolve by bob@desk: they are old.") == 1


@on_sqlite
def test_every_command_that_would_mend_does_something(resume: Scrapy, world: World) -> None:
    """What is told to be typed is understood, and not refused."""
    task = world.plan([Shard(f"s{n}", 1, 9, site=f"site{n}") for n in range(1, 5)])
    held = {one.shard_no: one for one in world.claim(task)}
    failed = Finish(held[1].id, held[1].fencing_token, "failed", "page 1: HTTP 500")
    waits = Release(held[2].id, held[2].fencing_token, "HTTP 503", "retryable", 900.0, True)
    parked = Release(held[3].id, held[3].fencing_token, "parked", "blocked", 900.0)
    row = QuarantineRecord(task.id, held[2].id, 2, 1, "row", None, "k", "Unfit", "no")
    free = Release(held[4].id, held[4].fencing_token, "given back")
    world.commit(page(held[2], 1, quarantine=(row,)), failed, waits, parked, free)
    who = {"actor": "a test", "reason": "so it is"}
    health.set_site(world.db, "site3", "blocked", seconds=900.0, **who)
    health.pause_site(world.db, "site4", **who)
    commands = re.findall(r"`scrapy (resume [^`]+)`", resume("why", "books").out)
    commands = [command for command in commands if " run " not in command]
    assert len(commands) == 6
    for command in commands:
        assert resume(*shlex.split(command)[1:]).code == 0, command
    acts.pause(world.db, task.id, **who)
    assert resume("unpause", str(task.id)).code == 0
    assert not re.findall(r"`scrapy resume (?!run)", resume("why", "books").out)


@pytest.mark.parametrize(
    ("first", "last", "cur", "ahead", "text"),
    [
        (1, 10, 3, "", "4-10"),
        (1, 10, 3, "5-6,9", "4,7-8,10"),
        (1, 10, 3, "5-10", "4"),
        (1, 10, 10, "", ""),
        (1, None, 3, "", "4-"),
        (1, None, 3, "5-6,9", "4,7-8,10-"),
        (0, 0, -1, "", "0"),
        (1, 10**12, 0, "2", f"1,3-{10**12}"),
    ],
)
def test_missing_pages(first: int, last: int | None, cur: int, ahead: str, text: str) -> None:
    shard = {"first_page": first, "last_page": last, "cur_page": cur, "ahead": ahead}
    assert missing(shard) == text


def test_a_long_list_of_missing_pages_is_cut_short(resume: Scrapy, world: World) -> None:
    (shard,) = world.claim(world.plan([Shard("a", 1, 1000)]))
    world.commit(*(page(shard, number) for number in range(2, 500, 2)))
    said = resume("why", "books").out.splitlines()[1]
    assert re.search(r", read (\d+,)+…, missing (\d+,)+…\) is held by", said)
    assert len(said) < 700


def test_an_unknown_task(resume: Scrapy, world: World) -> None:
    world.plan()
    outcome = resume("why", "boks")
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err == ("scrapy resume: there is no task 'boks'; did you mean 'books' (id 1)?\n")
