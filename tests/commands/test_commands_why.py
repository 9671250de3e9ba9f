"""``scrapy resume why``."""

from __future__ import annotations

from scrapy_resume.page import ErrorKind, Shard
from scrapy_resume.store import tasks, workers
from scrapy_resume.store.quarantine import QuarantineRecord
from scrapy_resume.store.records import Finish, Release
from tests.commands.conftest import Scrapy
from tests.store.worlds import World, failure, page

_RUN = "`scrapy resume run books`"


def test_a_run_that_waits_for_anyone(resume: Scrapy, world: World) -> None:
    world.plan([Shard("a", 1, 10)])
    headline, shard, advice = resume("why", "books").out.splitlines()
    assert headline == (
        "Run 1 of books (id 1) is running: 0 of 1 shards done, 0 pages and 0 items stored."
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
    _, said, advice = resume("why", "books").out.splitlines()
    assert said.startswith(
        "Shard 1 (site, pages 1-, read up to 1 and 3) is held by worker worker-o (crawler7,"
        " pid 4711) for 16 min more unless it renews, until 2"
    )
    assert "; last written 2" in said
    assert advice.endswith("`scrapy resume status 1 --watch` follows them.")


def test_a_lease_that_has_ended(resume: Scrapy, world: World) -> None:
    world.claim(world.plan(), lease=-600)
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
    _, said, *pages, advice = resume("why", "books").out.splitlines()
    assert f": {reason}; the next try is due in 10 min (2" in said
    assert said.endswith(" UTC), 0 of 10 tries spent.")
    assert pages == ["  page 4 failed", "  page 5 failed: HttpError: 503 Service Unavailable"]
    assert advice.startswith("The next try is due in 10 min; then `scrapy resume run books`")


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
    headline, said, advice = resume("why", str(task.id)).out.splitlines()
    assert headline.startswith(
        "Run 1 of books (id 1) is over, incomplete: 1 shard not done: 1 failed"
    )
    assert "has failed since 2" in said
    assert said.endswith(": a loop: page 2 is page 1.")
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
    headline, count, *listed, more, advice = resume("why", "books").out.splitlines()
    assert "is over, complete_with_rejects: " in headline
    assert count == "12 in quarantine:"
    assert listed == [
        f"  request https://site/{n} (shard 1, page 1): HttpError: 500" for n in range(10)
    ]
    assert more == "  and 2 more"
    assert advice == f"Mend what the reasons say; {_RUN} starts a new run, which reads all again."


def test_pages_read_beyond_a_hole_at_the_beginning(resume: Scrapy, world: World) -> None:
    task = world.plan([Shard("a", 1, 5)])
    (shard,) = world.claim(task)
    world.commit(page(shard, 3))
    assert "(site, pages 1-5, of which 3 read) is held" in resume("why", "books").out


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
    told = "  row k7 (shard 1, page 1): Unfit in column price of table offer: it is no number"
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
    assert (facts["quarantined"], facts["quarantine"]) == (0, [])
    assert facts["advice"]
    assert "s3cret" not in outcome.out
    assert "pw" not in outcome.out


def test_an_unknown_task(resume: Scrapy, world: World) -> None:
    world.plan()
    outcome = resume("why", "boks")
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err == ("scrapy resume: there is no task 'boks'; did you mean 'books' (id 1)?\n")
