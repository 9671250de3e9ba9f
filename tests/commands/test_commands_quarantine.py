"""``scrapy resume quarantine``: what was set aside is seen, put back to work and resolved."""

from __future__ import annotations

import pytest

from scrapy_resume.page import Shard
from scrapy_resume.store import acts, quarantine, tasks
from scrapy_resume.store.quarantine import QuarantineRecord
from scrapy_resume.store.records import Finish
from scrapy_resume.store.tasks import Task
from tests.commands.conftest import Scrapy
from tests.commands.operators import ACTOR, everything, records, refused
from tests.store.worlds import World, page

WHY = ("--reason", "the site was mended")
on_sqlite = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


@pytest.fixture
def over(world: World) -> Task:
    """A run that is over: pages 1 to 4 are read, with records 1 to 3 of its pages 1, 1 and 3,
    and record 4, which belongs to no page."""
    task = world.plan([Shard("a", 1, 4)])
    (shard,) = world.claim(task)

    def aside(number: int, what: str) -> QuarantineRecord:
        address = f"https://site/{what}?token=s3cret"
        return QuarantineRecord(
            task.id, shard.id, 1, number, "request", address, None, "HttpError", "HTTP 500", 3
        )

    world.commit(
        page(shard, 1, quarantine=(aside(1, "a"), aside(1, "b"))),
        page(shard, 2),
        page(shard, 3, quarantine=(aside(3, "c"),)),
        page(shard, 4),
        Finish(shard.id, shard.fencing_token, "done", "read"),
    )
    loose = QuarantineRecord(task.id, None, None, None, "item", None, "k7", "ValueError", "no")
    quarantine.set_aside(world.db, [loose])
    return tasks.finish_run(world.db, task.id)


def unresolved(world: World) -> list[int]:
    return [row["id"] for row in quarantine.find(world.db, None, resolved=False)]


def test_what_is_set_aside_is_listed(resume: Scrapy, world: World, over: Task) -> None:
    head, *lines = resume("quarantine", "list").out.splitlines()
    assert head.split() == [
        *("id", "task", "shard", "page", "kind", "what", "error", "since", "resolution")
    ]
    assert [line.split()[:5] for line in lines[:3]] == [
        ["1", "1", "1", "1", "request"],
        ["2", "1", "1", "1", "request"],
        ["3", "1", "1", "3", "request"],
    ]
    assert "https://site/a" in lines[0]
    assert "HttpError: HTTP 500" in lines[0]
    assert lines[3].split()[:4] == ["4", "1", "item", "k7"]
    assert resume("quarantine", "list", "books").out.splitlines() == [head, *lines]
    assert resume("quarantine", "list", "--limit", "2").out.splitlines()[2:] == [
        lines[1],
        "the first 2; --limit shows more",
    ]


def test_what_is_resolved_is_listed_if_asked_for(resume: Scrapy, world: World, over: Task) -> None:
    acts.resolve(world.db, [1], "sold out", actor="a test", reason="so it is")
    listed = [row["id"] for row in resume("quarantine", "list", "--json").json["quarantine"]]
    assert listed == [2, 3, 4]
    rows = resume("quarantine", "list", "--all", "--json").json["quarantine"]
    assert [(row["id"], row["resolution"]) for row in rows[:2]] == [(1, "sold out"), (2, None)]
    assert rows[0]["resolved_at"].endswith("Z")


def test_another_task_has_nothing_in_it(resume: Scrapy, world: World, over: Task) -> None:
    world.plan([Shard("a", 1, 1)], name="other")
    assert resume("quarantine", "list", "other").out == "Nothing is in quarantine.\n"


def test_one_record_is_shown_whole(resume: Scrapy, world: World, over: Task) -> None:
    lines = resume("quarantine", "show", "3").out.splitlines()
    assert lines[:6] == [
        "record: 3", "task: 1", "shard: 1", "page: 3", "kind: request",
        "address: https://site/c?token=…",
    ]  # fmt: skip
    assert "error: HttpError" in lines
    assert "it says: HTTP 500" in lines
    assert "attempts: 3" in lines
    shown = resume("quarantine", "show", "3", "--json").json
    (listed,) = [
        row for row in resume("quarantine", "list", "--json").json["quarantine"] if row["id"] == 3
    ]
    assert shown == listed


def test_requeue_has_the_pages_read_again(resume: Scrapy, world: World, over: Task) -> None:
    outcome = resume("quarantine", "requeue", "1", *WHY)
    assert outcome.code == 0
    assert "1 page is read again" in outcome.out
    assert unresolved(world) == [3, 4]  # 2 is of the same page
    assert tasks.find_tasks(world.db, over.id)[0].finished_at is None
    (shard,) = world.claim(over)
    assert (shard.position.cur_page, str(shard.position.ahead)) == (0, "2-4")
    assert set(records(world)) == {("requeue", ACTOR, "the site was mended")}


def test_requeue_of_all_that_a_task_has(resume: Scrapy, world: World, over: Task) -> None:
    done = resume("quarantine", "requeue", "--task", "books", "--json").json
    assert (done["ids"], done["kind"], done["counts"]["pages"]) == ([1, 2, 3], "requeue", 2)
    assert unresolved(world) == [4]
    said = refused(resume("quarantine", "requeue", "--task", "books"))
    assert said == "run 1 of books has nothing in quarantine that could be read again"


def test_resolve_says_what_became_of_them(resume: Scrapy, world: World, over: Task) -> None:
    outcome = resume("quarantine", "resolve", "1,3-4", "--resolution", "not for sale", *WHY)
    assert outcome.out == "3 records are resolved.\n"
    assert unresolved(world) == [2]
    assert quarantine.find(world.db, over.id)[0]["resolution"] == "not for sale"
    assert records(world) == [("resolve", ACTOR, "the site was mended")] * 3
    done = resume("quarantine", "resolve", "--task", "1", "--resolution", "x", "--json").json
    assert (done["ids"], unresolved(world)) == ([2], [])


@on_sqlite
@pytest.mark.parametrize("act", ["requeue", "resolve"])
def test_a_dry_run_changes_nothing(resume: Scrapy, world: World, over: Task, act: str) -> None:
    before = everything(world)
    line = ("quarantine", act, "1-3", *(["--resolution", "x"] if act == "resolve" else []))
    *sentences, last = resume(*line, "--dry-run").out.splitlines()
    assert last == "Nothing was changed (--dry-run)."
    assert everything(world) == before
    assert resume(*line).out.splitlines() == sentences


@on_sqlite
def test_what_is_refused(resume: Scrapy, world: World, over: Task) -> None:
    acts.resolve(world.db, [2], "sold out", actor="a test", reason="so it is")
    before = everything(world)
    closed = "record 2 is closed already: sold out"
    for line, said in (
        ("show 9", "there is no record 9 in quarantine; `scrapy resume quarantine list` has them"),
        ("requeue 9", "there is no record 9 in quarantine"),
        ("requeue 1,2", closed),
        ("requeue 4", "record 4 belongs to no page"),
        ("resolve 9 --resolution x", "there is no record 9 in quarantine"),
        ("resolve 2 --resolution x", closed),
        ("resolve 1 --resolution requeued", "in words of your own"),
        ("list boks", "there is no task 'boks'; did you mean 'books' (id 1)?"),
        ("requeue --task boks", "there is no task 'boks'"),
    ):
        assert said in refused(resume("quarantine", *line.split()))
    assert everything(world) == before


@on_sqlite
def test_what_a_worker_reads_is_not_put_back(resume: Scrapy, world: World, over: Task) -> None:
    resume("quarantine", "requeue", "1")
    world.claim(over, lease=1000)
    before = everything(world)
    said = refused(resume("quarantine", "requeue", "3"))
    assert said.endswith("is being read by worker w; pause the run first: scrapy resume pause 1")
    assert everything(world) == before


def test_where_nothing_is_nothing_is_made(scrapy: Scrapy, sqlite_url: str) -> None:
    def call(*words: str) -> str:
        return refused(scrapy("resume", "quarantine", *words, RESUME_DATABASE_URL=sqlite_url))

    listed = scrapy("resume", "quarantine", "list", "--json", RESUME_DATABASE_URL=sqlite_url)
    assert listed.json == {"quarantine": []}
    for line in ("show 1", "requeue 1", "resolve 1 --resolution x"):
        assert "there are no tasks yet" in call(*line.split())


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("", "required: ACT"),
        ("show", "required: ID"),
        ("show x", "'x' is no whole number from 1"),
        ("list --limit 0", "'0' is no whole number from 1"),
        ("requeue", "one of the arguments IDS --task is required"),
        ("requeue 1 --task books", "not allowed with"),
        ("requeue x", "'x' is not a list such as 1,4-6"),
        ("resolve 1", "required: --resolution"),
    ],
)
def test_a_mistake_on_the_line(scrapy: Scrapy, line: str, said: str) -> None:
    outcome = scrapy("resume", "quarantine", *line.split())
    assert (outcome.code, outcome.out) == (2, "")
    assert said in outcome.err
