"""The operator's verbs on a run: what they do, refuse, ask for and leave on record."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from scrapy_resume.page import Shard
from scrapy_resume.store import acts, leases, tasks
from scrapy_resume.store.records import Finish, Release
from scrapy_resume.store.tasks import Task
from tests.commands.conftest import Scrapy
from tests.commands.operators import ACTOR, everything, records, refused
from tests.store.worlds import World, failure, page

WHY = ("--reason", "they asked us to")
DANGEROUS = ("retry", "restart", "backfill", "reset")
on_sqlite = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
VERBS = ("pause", "unpause", "cancel", *DANGEROUS)
ASKED = "Type the id of the task to go on: "


class Terminal(io.StringIO):
    """Somebody who types."""

    def isatty(self) -> bool:
        return True


def begun(world: World) -> Task:
    """Two shards that wait."""
    return world.plan([Shard("a", 1, 3), Shard("b", 4, 6)])


def paused(world: World) -> Task:
    task = begun(world)
    acts.pause(world.db, task.id, actor="a test", reason="to begin with")
    return task


def over(world: World) -> Task:
    """A run that is over: its first shard is done, its second one failed at page 5."""
    task = begun(world)
    first, second = sorted(world.claim(task), key=lambda one: one.shard_no)
    done = Finish(first.id, first.fencing_token, "done", "read")
    world.commit(*(page(first, number) for number in (1, 2, 3)), done)
    gone = Finish(second.id, second.fencing_token, "failed", "page 5: HTTP 500")
    world.commit(page(second, 4), page(second, 6), failure(second, 5), gone)
    return tasks.finish_run(world.db, task.id)


def worked_on(world: World) -> Task:
    task = begun(world)
    world.claim(task, lease=1000)
    return task


BEFORE: dict[str, Callable[[World], Task]] = {
    "pause": begun, "unpause": paused, "cancel": begun, "retry": over, "restart": over,
    "backfill": over, "reset": over,
}  # fmt: skip


def words(verb: str, task: Task | str, *more: str) -> list[str]:
    """The verb's line, with what it cannot do without."""
    which = task if isinstance(task, str) else str(task.id)
    return [verb, which, *(["--pages", "2-3"] if verb == "backfill" else []), *more]


def confirmed(verb: str, task: Task, *more: str) -> list[str]:
    """The same, confirmed where it has to be."""
    return words(verb, task, *(["--confirm", str(task.id)] if verb in DANGEROUS else []), *more)


def shards(world: World) -> dict[int, tuple[str, int]]:
    rows = world.sql("SELECT shard_no, status, cur_page FROM resume_task_shard")
    return {row.shard_no: (row.status, row.cur_page) for row in rows}


def run_of(world: World, task: Task) -> Task:
    return tasks.find_tasks(world.db, task.id)[0]


# What they do


@pytest.mark.parametrize("verb", VERBS)
def test_an_act_is_said_and_on_record(resume: Scrapy, world: World, verb: str) -> None:
    task = BEFORE[verb](world)
    known = len(records(world))
    outcome = resume(*confirmed(verb, task, *WHY))
    assert (outcome.code, outcome.err) == (0, "")
    lines = outcome.out.splitlines()
    assert lines
    assert all(line[0].isupper() or line[0].isdigit() for line in lines)
    assert all(line.endswith(".") for line in lines)
    acted = records(world)[known:]
    assert acted
    assert set(acted) == {(verb, ACTOR, "they asked us to")}


@on_sqlite
@pytest.mark.parametrize("verb", VERBS)
def test_an_act_as_json(resume: Scrapy, world: World, verb: str) -> None:
    task = BEFORE[verb](world)
    outcome = resume(*confirmed(verb, task, "--json"))
    done = outcome.json
    assert {name: done[name] for name in ("task_id", "name", "run_no", "kind", "dry_run")} == {
        "task_id": task.id, "name": "books", "run_no": 1, "kind": verb, "dry_run": False,
    }  # fmt: skip
    assert done["task_ids"] == [task.id]
    assert done["counts"]
    assert done["sentences"]
    assert records(world)[-1] == (verb, ACTOR, "no reason given")


@pytest.mark.parametrize("verb", VERBS)
def test_a_dry_run_says_it_and_changes_nothing(resume: Scrapy, world: World, verb: str) -> None:
    task = BEFORE[verb](world)
    before = everything(world)
    dry = resume(*words(verb, task, "--dry-run", *WHY))  # needs no confirmation
    assert (dry.code, dry.err) == (0, "")
    *sentences, last = dry.out.splitlines()
    assert last == "Nothing was changed (--dry-run)."
    assert resume(*words(verb, task, "--dry-run", "--json", *WHY)).json["dry_run"] is True
    assert everything(world) == before
    assert resume(*confirmed(verb, task, *WHY)).out.splitlines() == sentences


def test_pause_and_unpause(resume: Scrapy, world: World) -> None:
    task = begun(world)
    world.claim(task, 1, lease=1000)
    said = resume("pause", "books", *WHY).out
    assert "Run 1 of books is paused by " in said
    assert "1 waiting shard is paused." in said
    assert "1 running shard is paused by its owner once its pages in flight are stored." in said
    assert run_of(world, task).desired == "pause"
    assert world.claim(task) == []
    assert "1 paused shard may be claimed." in resume("unpause", "books").out
    assert len(world.claim(task)) == 1


def test_cancel_ends_a_run(resume: Scrapy, world: World) -> None:
    task = begun(world)
    assert resume("cancel", "books", *WHY).out.endswith("Run 1 of books is over.\n")
    now = run_of(world, task)
    assert (now.status, now.verdict) == ("failed", "nothing_read")
    assert {status for status, _ in shards(world).values()} == {"failed"}


def test_retry_of_a_whole_run_reopens_it_for_what_is_missing(resume: Scrapy, world: World) -> None:
    task = over(world)
    said = resume("retry", "books", "--confirm", str(task.id)).out
    assert "Run 1 of books, which was incomplete, is unfinished again" in said
    assert "1 failed shard is tried again." in said
    assert run_of(world, task).finished_at is None
    assert shards(world) == {1: ("done", 3), 2: ("pending", 4)}


@on_sqlite
@pytest.mark.parametrize("some", [("--shards", "2"), ("--pages", "5-9"), ("--shards", "1,2")])
def test_retry_of_some_needs_no_confirmation(
    resume: Scrapy, world: World, some: tuple[str, str]
) -> None:
    over(world)
    assert resume("retry", "books", *some).code == 0
    assert shards(world)[2] == ("pending", 4)


def test_retry_of_what_waits_makes_it_due(resume: Scrapy, world: World) -> None:
    (shard,) = world.claim(world.plan())
    world.commit(Release(shard.id, shard.fencing_token, "page 1: 503", "retryable", 900.0, True))
    assert "1 waiting shard is tried at once." in resume("retry", "books", "--shards", "1").out
    assert (world.shard(shard.id).due, world.shard(shard.id).attempt_count) == (1, 0)


def test_restart_has_everything_read_again(resume: Scrapy, world: World) -> None:
    task = over(world)
    items = world.items()
    resume("restart", "books", "--confirm", str(task.id))
    assert shards(world) == {1: ("pending", 0), 2: ("pending", 3)}
    assert world.items() == items


def test_backfill_has_some_pages_read_again_after_fresh_work(resume: Scrapy, world: World) -> None:
    task = over(world)
    said = resume("backfill", "books", "--pages", "2-3", "--confirm", str(task.id)).out
    assert "2 pages are read again" in said
    assert shards(world) == {1: ("pending", 1), 2: ("failed", 4)}
    (lane,) = world.sql("SELECT lane FROM resume_task_shard WHERE shard_no = 1")
    assert lane == (1,)


def test_reset_names_what_it_erases(resume: Scrapy, world: World) -> None:
    task = over(world)
    dry = resume("reset", "books", "--dry-run").out
    assert "2 shards are erased." in dry
    assert "The checkpoints of 5 pages are erased." in dry
    items = world.items()
    resume("reset", "books", "--confirm", str(task.id))
    assert shards(world) == {}
    assert run_of(world, task).status == "planning"
    assert world.items() == items


def test_a_name_means_the_newest_run_and_an_id_that_run(resume: Scrapy, world: World) -> None:
    old = over(world)
    new = world.plan([Shard("a", 1, 3)])
    assert (old.id, new.id) == (1, 2)
    assert resume("pause", "books", "--json").json["task_id"] == 2
    said = refused(resume("retry", "1", "--shards", "2"))
    assert "run 2 of books (task 2) is unfinished" in said


# What they refuse


@on_sqlite
def test_a_task_that_there_is_not(resume: Scrapy, world: World) -> None:
    over(world)
    before = everything(world)
    for verb in VERBS:
        assert refused(resume(*words(verb, "99", *WHY))) == (
            "there is no task '99'; `scrapy resume status` lists them"
        )
        assert refused(resume(*words(verb, "boks", *WHY))) == (
            "there is no task 'boks'; did you mean 'books' (id 1)?"
        )
    assert everything(world) == before


def test_where_there_is_no_database_yet(scrapy: Scrapy, sqlite_url: str) -> None:
    for verb in VERBS:
        outcome = scrapy("resume", *words(verb, "books"), RESUME_DATABASE_URL=sqlite_url)
        assert refused(outcome) == "there is no task 'books'; there are no tasks yet"


@on_sqlite
@pytest.mark.parametrize(
    ("verb", "state", "said"),
    [
        ("pause", paused, "run 1 of books is paused already"),
        ("pause", over, "run 1 of books is over (incomplete)"),
        ("unpause", begun, "run 1 of books is not paused"),
        ("unpause", over, "run 1 of books is over"),
        ("cancel", over, "run 1 of books is over"),
        ("retry", begun, "run 1 of books has no failed or waiting shard"),
        ("restart", worked_on, "is being read by worker w; pause the run first"),
        ("backfill", worked_on, "is being read by worker w; pause the run first"),
        ("reset", worked_on, "is being read by worker w; pause the run first"),
        ("reset", World.open, "run 1 of books has no plan yet"),
        ("restart", World.open, "run 1 of books is being planned"),
        ("backfill", World.open, "run 1 of books is being planned"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_state_that_does_not_allow_it(
    resume: Scrapy, world: World, verb: str, state: Callable[[World], Task], said: str
) -> None:
    task = state(world)
    before = everything(world)
    assert said in refused(resume(*confirmed(verb, task, *WHY)))
    assert everything(world) == before


@on_sqlite
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("retry", "books", "--shards", "7"), "no failed or waiting shard among 7"),
        (("retry", "books", "--pages", "1-3"), "no failed or set aside page among 1-3"),
    ],
    ids=" ".join,
)
def test_what_is_not_there_or_not_meant(
    resume: Scrapy, world: World, words: tuple[str, ...], said: str
) -> None:
    over(world)
    before = everything(world)
    assert said in refused(resume(*words))
    assert everything(world) == before


# What they ask for


@on_sqlite
def test_what_is_not_confirmed_is_not_done(resume: Scrapy, world: World) -> None:
    task = over(world)
    before = everything(world)
    for verb in DANGEROUS:
        start = f"the {verb} of run 1 of books is not confirmed: "
        said = refused(resume(*words(verb, "books", *WHY)))
        assert said == f"{start}add --confirm {task.id}"
        for wrong in ("2", "", "books"):
            said = refused(resume(*words(verb, str(task.id), "--confirm", wrong, *WHY)))
            assert said == f"{start}its id is {task.id}, and --confirm says {wrong or 'nothing'}"
    assert everything(world) == before


@on_sqlite
@pytest.mark.parametrize("verb", DANGEROUS)
def test_the_id_is_typed(
    resume: Scrapy, world: World, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    over(world)
    before = everything(world)
    preview = resume(*words(verb, "books", "--dry-run", *WHY)).out.splitlines()[:-1]
    for typed in ("2\n", "books\n", "\n", ""):
        monkeypatch.setattr(sys, "stdin", Terminal(typed))
        outcome = resume(*words(verb, "books", "--json", *WHY))
        assert (outcome.code, outcome.out) == (1, "")
        first, *told, last = outcome.err.splitlines()
        assert first == f"The {verb} of run 1 of books would do this:"
        assert told == preview
        assert last == (
            "Type the id of the task to go on: scrapy resume:"
            f" the {verb} of run 1 of books is not confirmed: that is not its id"
        )
    assert everything(world) == before
    monkeypatch.setattr(sys, "stdin", Terminal("1\n"))
    outcome = resume(*words(verb, "books", "--json", *WHY))
    assert (outcome.code, outcome.json["sentences"]) == (0, preview)
    assert records(world)[-1] == (verb, ACTOR, "they asked us to")


@on_sqlite
def test_the_id_is_typed_on_a_real_terminal(
    world: World, database_url: str, tmp_path: Path
) -> None:
    over(world)
    ours, theirs = pty.openpty()
    line = [sys.executable, "-m", "scrapy", "resume", "restart", "books", *WHY]
    with subprocess.Popen(
        line, cwd=tmp_path, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, env={**os.environ, "RESUME_DATABASE_URL": database_url},
    ) as process:  # fmt: skip
        os.close(theirs)
        assert process.stderr is not None
        err = ""
        while not err.endswith(ASKED) and (read := process.stderr.read(1)):
            err += read
        os.write(ours, b"1\n")
        out, rest = process.communicate(timeout=200)
    os.close(ours)
    assert process.returncode == 0, err + rest
    assert err.endswith(ASKED)
    assert out.startswith("Run 1 of books, which was incomplete, is unfinished again")
    assert shards(world) == {1: ("pending", 0), 2: ("pending", 3)}


@on_sqlite
def test_who_thinks_better_of_it_has_changed_nothing(
    resume: Scrapy, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupted(Terminal):
        def readline(self, size: int | None = -1, /) -> str:  # type: ignore[override]
            raise KeyboardInterrupt

    over(world)
    before = everything(world)
    monkeypatch.setattr(sys, "stdin", Interrupted())
    assert resume("reset", "books").code == 130
    assert everything(world) == before


def test_what_is_refused_anyway_is_not_asked_for(
    resume: Scrapy, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    worked_on(world)
    monkeypatch.setattr(sys, "stdin", Terminal("1\n"))
    assert "pause the run first" in refused(resume("restart", "books"))


@on_sqlite
def test_what_is_not_dangerous_asks_nothing(
    resume: Scrapy, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(world)
    monkeypatch.setattr(sys, "stdin", Terminal(""))
    assert [resume(verb, "books").code for verb in ("pause", "unpause", "cancel")] == [0, 0, 0]


# Mistakes on the line


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("cancel", "required: TASK"),
        ("backfill books", "required: --pages"),
        ("backfill books --pages 1,5", "'1,5' is not one range such as 6-12"),
        ("backfill books --pages 9-1", "'9-1' is not a list such as 1,4-6"),
        ("retry books --shards", "expected one argument"),
        ("retry books --shards x", "'x' is not a list such as 1,4-6"),
        ("retry books --pages ,", "no number is given"),
        ("retry books --shards 1-1000000000", "at most 100000 at once"),
        ("pause books --for 2h", "--for is for a --site; a task is paused until it is unpaused"),
        ("pause books --confirm 1", "unrecognized arguments: --confirm"),
        ("cancel books --reason", "expected one argument"),
    ],
)
def test_a_mistake_on_the_line(scrapy: Scrapy, line: str, said: str) -> None:
    outcome = scrapy("resume", *line.split())
    assert (outcome.code, outcome.out) == (2, "")
    assert said in outcome.err


def test_a_worker_learns_of_a_pause_by_its_heartbeat(resume: Scrapy, world: World) -> None:
    task = worked_on(world)
    held = {row.id: 1 for row in world.sql("SELECT id FROM resume_task_shard")}
    resume("pause", "books")
    renewal = leases.renew(world.db, instance="w1", shards=held, lease=15, task_id=task.id)
    assert renewal.desired == "pause"
