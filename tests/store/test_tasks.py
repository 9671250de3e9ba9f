"""Opening runs: what ``RESUME_RUN`` means, alone and at the same moment."""

from __future__ import annotations

import threading

import pytest

from scrapy_resume.exceptions import ConfigurationError, RunRefused
from scrapy_resume.page import ErrorKind
from scrapy_resume.store import operations, tasks
from scrapy_resume.store.checkpoints import Finish
from scrapy_resume.store.engine import Database
from tests.store.worlds import World, failure, page


def finish_all(world: World, task: tasks.Task, status: str = "done") -> tasks.Task:
    for one in world.claim(task):
        world.commit(page(one, 1), Finish(one.id, one.fencing_token, status, "so it is"))
    return tasks.finish_run(world.db, task.id)


def test_auto_resumes_the_unfinished_run_else_begins_one(world: World) -> None:
    first = world.open()
    assert (first.run_no, first.status, first.desired) == (1, "planning", "run")
    assert world.open() == first
    task = world.plan(2)
    assert task.id == first.id
    over = finish_all(world, task)
    assert (over.status, over.verdict) == ("done", "complete")
    assert world.open().run_no == 2
    assert [task.run_no for task in tasks.find_tasks(world.db, "books")] == [2, 1]


def test_after_failed_shards_a_new_run_begins(world: World) -> None:
    over = finish_all(world, world.plan(2), "failed")
    assert (over.status, over.verdict) == ("failed", "incomplete")
    assert world.open().run_no == 2


def test_resume_wants_an_unfinished_run(world: World) -> None:
    with pytest.raises(RunRefused, match="no unfinished run"):
        world.open("resume")
    first = world.open()
    assert world.open("resume") == first


def test_new_supersedes_a_run_nobody_works_on(world: World) -> None:
    old = world.plan(3)
    new = world.open("new")
    assert new.run_no == 2
    (_, ended) = tasks.find_tasks(world.db, "books")
    assert (ended.id, ended.status, ended.verdict) == (old.id, "failed", "nothing_read")
    assert ended.reason == "superseded by run 2"
    statuses = world.sql("SELECT DISTINCT status, reason FROM resume_task_shard")
    assert statuses == [("failed", "superseded by run 2")]
    ((_, act),) = operations.find(world.db, old.id)
    assert (act.kind, act.actor) == ("supersede", "a test")


def test_new_is_refused_while_a_shard_is_leased_or_somebody_plans(world: World) -> None:
    task = world.plan(2)
    world.claim(task, 1)
    with pytest.raises(RunRefused, match="worked on by w until"):
        world.open("new")
    other = world.open(name="films")
    assert tasks.claim_planning(world.db, other.id, worker="p", instance="i", lease=15)
    with pytest.raises(RunRefused, match="worked on by p until"):
        world.open("new", name="films")


def test_new_lets_a_run_that_was_read_to_its_end_be_complete(world: World) -> None:
    task = world.plan(1)
    (one,) = world.claim(task)
    world.commit(page(one, 1), Finish(one.id, one.fencing_token, "done", "read"))
    world.open("new")  # its process died before it declared the run over
    assert tasks.find_tasks(world.db, task.id)[0].verdict == "complete"


def test_a_named_run_is_that_run_whatever_its_state(world: World) -> None:
    named = world.open("2024-05-01")
    assert (named.run_no, named.run_name) == (1, "2024-05-01")
    assert world.open("2024-05-01") == named
    assert world.open("auto") == named
    over = finish_all(world, world.plan(1))
    again = world.open("2024-05-01")
    assert (again.id, again.verdict, again.finished_at) == (named.id, "complete", over.finished_at)
    assert world.open("2024-05-02").run_no == 2


def test_another_name_supersedes_like_new(world: World) -> None:
    world.open("monday")
    assert world.open("tuesday").run_no == 2


@pytest.mark.parametrize("run", ["auto", "new", "a-name"])
def test_processes_that_open_at_the_same_moment(database_url: str, world: World, run: str) -> None:
    opened: list[tasks.Task] = []
    errors: list[BaseException] = []
    barrier = threading.Barrier(4)

    def open_run() -> None:
        db = Database.connect(database_url)
        try:
            barrier.wait()
            opened.append(World(db).open(run))
        except BaseException as exc:
            errors.append(exc)
        finally:
            db.close()

    threads = [threading.Thread(target=open_run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    (open_runs,) = world.sql("SELECT COUNT(*) FROM resume_task WHERE open_name = 'books'")
    assert open_runs[0] == 1
    if run != "new":
        assert {task.run_no for task in opened} == {1}


def test_a_name_too_long_is_refused_not_cut(world: World) -> None:
    with pytest.raises(ConfigurationError, match="191 characters; allowed are 190"):
        world.open(name="x" * 191)


def test_spider_names_of_any_kind(world: World) -> None:
    for name in ("news:daily 1/2", "größe", "a ", "a", "A", "100%", "x'y\"z`"):
        assert world.open(name=name).run_no == 1
        assert tasks.find_tasks(world.db, name)[0].name == name


def test_tasks_are_found_by_name_or_number(world: World) -> None:
    first, second = world.open(name="one"), world.open(name="2")
    assert [task.id for task in tasks.find_tasks(world.db, None)] == [second.id, first.id]
    assert [task.name for task in tasks.find_tasks(world.db, str(first.id))] == ["one"]
    assert [task.id for task in tasks.find_tasks(world.db, first.id)] == [first.id]
    assert tasks.find_tasks(world.db, "none") == []
    with pytest.raises(ConfigurationError, match="no task 4711"):
        tasks.finish_run(world.db, 4711)


def test_a_run_is_not_over_before_every_shard_is_final(world: World) -> None:
    unplanned = world.open()
    assert tasks.finish_run(world.db, unplanned.id).finished_at is None
    task = world.plan(2)
    one, two = world.claim(task)
    world.commit(Finish(one.id, one.fencing_token, "done", "read"))
    assert tasks.finish_run(world.db, task.id).finished_at is None
    world.commit(page(two, 1), Finish(two.id, two.fencing_token, "done", "read"))
    over = tasks.finish_run(world.db, task.id)
    assert over.verdict == "complete"
    assert tasks.finish_run(world.db, task.id) == over, "the verdict is written once"


def test_a_plan_without_shards_read_nothing(world: World) -> None:
    over = tasks.finish_run(world.db, world.plan([]).id)
    assert (over.status, over.verdict) == ("done", "nothing_read")


def test_the_verdict_of_an_unfinished_run_is_read_from_its_rows(world: World) -> None:
    task = world.plan(2)
    one, two = world.claim(task)
    world.commit(page(one, 1))
    assert tasks.read_verdict(world.db, task.id)[0].value == "incomplete"
    world.commit(failure(one, 2, ErrorKind.BLOCKED))
    assert tasks.read_verdict(world.db, task.id)[0].value == "incomplete", "the other may go on"
    world.commit(failure(two, 1, ErrorKind.BLOCKED))
    assert tasks.read_verdict(world.db, task.id)[0].value == "blocked"
