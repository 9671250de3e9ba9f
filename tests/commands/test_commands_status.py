"""``scrapy resume status``."""

from __future__ import annotations

import os
import pty
import sys
from pathlib import Path

import pytest

from scrapy_resume.commands import status
from scrapy_resume.page import Shard
from scrapy_resume.store import migrate
from scrapy_resume.store.engine import Database
from scrapy_resume.store.records import Finish
from tests.commands.conftest import Scrapy
from tests.store.worlds import World, failure, page

_TASK_KEYS = {
    "task_id", "name", "spider", "args", "run_no", "status", "reason", "verdict", "pages",
    "items", "dropped", "quarantined", "shards", "watermarks", "workers", "health",
}  # fmt: skip
_MARK_KEYS = {
    "shard_no", "first_page", "last_page", "cur_page", "ahead", "failed_pages", "status",
    "reason", "worker", "lease_until", "fencing_token", "attempt_count",
}  # fmt: skip


def test_there_are_no_tasks_yet_and_looking_makes_nothing(
    resume: Scrapy, database_url: str, tmp_path: Path
) -> None:
    assert resume("status").out == "no tasks yet\n"
    assert resume("status", "--json").json == {"tasks": []}
    outcome = resume("status", "books")
    assert outcome.code == 1
    assert outcome.err == "scrapy resume: there is no task 'books'; there are no tasks yet\n"
    assert not list(tmp_path.rglob("*.db"))
    if database_url.startswith("mysql"):
        db = Database.connect(database_url)
        with db.read() as conn:
            assert conn.exec_driver_sql("SHOW TABLES").all() == []
        db.close()


def test_an_empty_home_stays_empty(scrapy: Scrapy) -> None:
    assert scrapy("resume", "status").out == "no tasks yet\n"
    assert list(Path.cwd().iterdir()) == []


def test_one_json_object_of_the_documented_shape(resume: Scrapy, world: World) -> None:
    task = world.plan([Shard("a", 1, 10), Shard("b", 11, None, cursor={"token": "s3cret"})])
    (first, second) = world.claim(task, worker="w" * 32)
    world.commit(page(first, 1), page(first, 3), failure(first, 5))
    world.commit(Finish(second.id, second.fencing_token, "failed", "it is over"))
    found = resume("status", "--json").json
    assert set(found) == {"tasks"}
    (one,) = found["tasks"]
    assert set(one) >= _TASK_KEYS
    assert (one["task_id"], one["name"], one["run_no"]) == (task.id, "books", 1)
    assert (one["pages"], one["items"]) == (2, 4)
    assert one["shards"] == {"pending": 0, "running": 1, "paused": 0, "done": 0, "failed": 1}
    marks = one["watermarks"]
    assert all(set(mark) == _MARK_KEYS for mark in marks)
    assert [(mark["cur_page"], mark["ahead"], mark["failed_pages"]) for mark in marks] == [
        (1, "3", "5"),
        (10, "", ""),
    ]
    assert (marks[1]["last_page"], marks[1]["reason"]) == (None, "it is over")
    assert marks[0]["lease_until"].endswith("Z")
    assert "s3cret" not in resume("status", "--json").out


def test_a_task_by_name_has_all_its_runs_and_by_id_one(resume: Scrapy, world: World) -> None:
    old = world.plan()
    new = world.open("new")
    world.plan(name="books category=7")

    def ids(which: str) -> list[int]:
        return [task["task_id"] for task in resume("status", which, "--json").json["tasks"]]

    assert ids("books") == [new.id, old.id]
    assert ids(str(old.id)) == [old.id]


def test_an_id_comes_before_a_name_of_digits(resume: Scrapy, world: World) -> None:
    first = world.plan()
    other = world.plan(name=str(first.id))
    (found,) = resume("status", str(first.id), "--json").json["tasks"]
    assert found["task_id"] == first.id
    numeric = world.plan(name="4711")
    (found,) = resume("status", "4711", "--json").json["tasks"]
    assert found["task_id"] == numeric.id != other.id


@pytest.mark.parametrize(
    ("which", "hint"),
    [
        ("book", "did you mean 'books' (id 1) or 'books category=7' (id 2)?"),
        ("boosk", "did you mean 'books' (id 1)?"),
        ("99", "`scrapy resume status` lists them"),
    ],
)
def test_an_unknown_task_is_one_line_with_those_that_come_close(
    resume: Scrapy, world: World, which: str, hint: str
) -> None:
    world.plan()
    world.plan(name="books category=7")
    outcome = resume("status", which)
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err == f"scrapy resume: there is no task {which!r}; {hint}\n"


def test_people_get_tables_that_are_plain_in_a_pipe(resume: Scrapy, world: World) -> None:
    task = world.plan([Shard("a", 1, 10), Shard("b", 11, None), Shard("c", 1, 3)])
    (first,) = world.claim(task, 1, worker="0123456789abcdef")
    world.commit(page(first, 1), page(first, 3), failure(first, 5))
    (_, third) = world.claim(task)
    world.commit(Finish(third.id, third.fencing_token, "failed", "the list\x1b[31m is\na loop"))
    lines = resume("status", "books").out.splitlines()
    assert lines[:2] == [
        "id  name   run  status   done  pages  items  dropped  quarantined",
        " 1  books    1  running   0/3      2      4        0            0",
    ]
    head, *shards = lines[lines.index("Shards of books, run 1") + 1 :][:4]
    assert tuple(head.split()) == status._SHARD_COLUMNS
    assert [line.split() for line in shards] == [
        ["3", "1-3", "0", "failed", "the", "list", "[31m", "is", "a", "loop"],
        ["1", "1-10", "1", "3", "5", "running", "claimed", "01234567"],
        ["2", "11-", "10", "running", "claimed", "w"],
    ]
    assert "\x1b" not in "".join(lines)


def test_a_run_of_many_shards_shows_those_that_need_a_look(resume: Scrapy, world: World) -> None:
    task = world.plan(60)
    shard = world.claim(task)[-1]
    world.commit(Finish(shard.id, shard.fencing_token, "failed", "no luck"))
    lines = resume("status", str(task.id)).out.splitlines()
    assert lines[lines.index("Shards of books, run 1") + 2].split()[0] == "60"
    assert "and 10 more shards; --json has them all" in lines


def test_watching_looks_again_until_ctrl_c(
    resume: Scrapy, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.plan()
    naps = []

    def sleep(seconds: float) -> None:
        naps.append(seconds)
        if len(naps) == 2:
            raise KeyboardInterrupt
        world.plan(name="other")

    monkeypatch.setattr(status.time, "sleep", sleep)
    outcome = resume("status", "--watch")
    assert (outcome.code, naps) == (0, [2.0, 2.0])
    assert (outcome.out.count("books"), outcome.out.count("other")) == (2, 1)


def test_watching_outlasts_a_database_that_is_away(
    resume: Scrapy, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.plan()
    looks = iter([status.StoreUnavailable("it is away"), {"tasks": []}, KeyboardInterrupt()])

    def look(*_: object) -> object:
        seen = next(looks)
        if isinstance(seen, BaseException):
            raise seen
        return seen

    monkeypatch.setattr(status, "_look", look)
    monkeypatch.setattr(status.time, "sleep", lambda seconds: None)
    outcome = resume("status", "--watch")
    assert (outcome.code, outcome.out) == (0, "it is away\nno tasks yet\n")


def test_watching_on_a_terminal(sqlite_url: str) -> None:
    db = Database.connect(sqlite_url)
    migrate.ensure_schema(db)
    World(db).plan()
    db.close()
    setting = f"RESUME_DATABASE_URL={sqlite_url}"
    pid, terminal = pty.fork()
    if pid == 0:
        words = ["-m", "scrapy", "resume", "status", "--watch", "-s", setting]
        os.execv(sys.executable, [sys.executable, *words])
    shown = b""
    while b"books" not in shown:
        shown += os.read(terminal, 4096)
    os.write(terminal, b"\x03")
    try:
        while os.read(terminal, 4096):
            pass
    except OSError:  # the terminal's other end is closed
        pass
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
