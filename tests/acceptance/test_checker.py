"""The public checker itself: it finds what is wrong, and only that."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from example_project.site import Site

from scrapy_resume.exceptions import ConfigurationError
from scrapy_resume.testing import Observer, check, stored_items
from tests.acceptance.forkserver import ForkServer
from tests.acceptance.harness import NUMBERED, ROOT, Bench
from tests.acceptance.test_res import ONE_BY_ONE, PICKY, WITH_PICKY

KEYS = [f"k{number:03d}" for number in range(1, 121)]
SERVED = {page: KEYS[10 * page - 10 : 10 * page] for page in range(1, 13)}

Change = Callable[..., str]


@pytest.fixture(scope="module")
def crawled(tmp_path_factory: pytest.TempPathFactory, forks: ForkServer | None) -> dict[str, Path]:
    """The files of an unfinished run and of a finished one with a reject and a dropped item."""
    files: dict[str, Path] = {}
    for name, fault in (("unfinished", "commit.after:7:kill"), ("finished", "")):
        home = tmp_path_factory.mktemp(name)
        files[name] = home / "resume.db"
        with Site() as site:
            bench = Bench(home / "project", f"sqlite:///{files[name]}", site, "resume_", forks)
            bench.write(NUMBERED, settings=WITH_PICKY, pipelines=PICKY)
            bench.crawl(RESUME_FAULT=fault, RESUME_SHARDS=1, **ONE_BY_ONE)
    return files


@pytest.fixture(params=["unfinished", "finished"])
def change(request: pytest.FixtureRequest, tmp_path: Path, crawled: dict[str, Path]) -> Change:
    """Changes a copy with SQL, without the constraints; returns its address."""
    path = tmp_path / "copy.db"
    for suffix in ("", "-wal"):
        source = Path(f"{crawled[request.param]}{suffix}")
        if source.exists():
            shutil.copy(source, f"{path}{suffix}")

    def execute(*statements: str) -> str:
        connection = sqlite3.connect(path)
        connection.execute("PRAGMA ignore_check_constraints=ON")
        for statement in statements:
            connection.execute(statement)
        connection.commit()
        connection.close()
        return f"sqlite:///{path}"

    return execute


def test_what_a_crawl_leaves_is_sound(change: Change) -> None:
    assert check(change(), served=SERVED) == []
    assert check(change(), served=list(SERVED.items())) == []


@pytest.mark.parametrize(
    ("statement", "invariant", "said"),
    [
        ("DELETE FROM resume_item WHERE item_key = 'k012'", "I1", "'k012'"),
        (
            "DELETE FROM resume_item WHERE item_key IN ('k012', 'k013')",
            "I1",
            "'k013'",
        ),
        ("UPDATE resume_task_shard SET page_count = page_count + 1", "I3", "pages where"),
        ("UPDATE resume_task_shard SET quarantined_count = 9", "I3", "in quarantine where"),
        ("UPDATE resume_task SET verdict = 'complete', reason = 'x'", "I3", "complete"),
        ("UPDATE resume_task_shard SET failed_pages = '2' WHERE shard_no = 1", "I3", "failed"),
        ("UPDATE resume_task_shard SET ahead = '1-' WHERE shard_no = 1", "I3", "not a list"),
        ("UPDATE resume_task_shard SET cur_page = 2 WHERE shard_no = 1", "I3", "pages where"),
        ("UPDATE resume_item SET page = 13 WHERE item_key = 'k001'", "I5", "not committed"),
        ("UPDATE resume_task_shard SET version = 0", "I5", "version 0"),
        ("UPDATE resume_task_shard SET lease_until = NULL, worker = 'x'", "I5", "is"),
        ("UPDATE resume_task_shard SET fencing_token = 0", "I6", "token is 0"),
        ("UPDATE resume_task_shard SET reason = ''", "I7", "no reason"),
    ],
)
def test_one_look_finds(change: Change, statement: str, invariant: str, said: str) -> None:
    found = check(change(statement), served=SERVED)
    assert any(one.invariant == invariant and said in one.text for one in found), found
    assert all(one.task == 1 for one in found)


@pytest.mark.parametrize(
    ("statement", "invariant"),
    [
        ("UPDATE resume_task_shard SET cur_page = 3, page_count = 3 WHERE shard_no = 1", "I4"),
        ("DELETE FROM resume_task_shard WHERE shard_no = 1", "I4"),
        ("UPDATE resume_task_shard SET version = version - 1 WHERE shard_no = 1", "I4"),
        ("UPDATE resume_task_shard SET version = version + 1 WHERE shard_no = 1", "I5"),
        ("UPDATE resume_item SET payload = '{}' WHERE item_key = 'k001'", "I5"),
        ("UPDATE resume_task_shard SET fencing_token = fencing_token - 1", "I6"),
        (
            "UPDATE resume_task_shard SET instance = 'another', worker = 'x', status = 'running',"
            " lease_until = '2030-01-01 00:00:00.000000'",
            "I6",
        ),
        ("UPDATE resume_task_shard SET status = 'paused' WHERE shard_no = 1", "I7"),
    ],
)
def test_two_looks_find(change: Change, statement: str, invariant: str) -> None:
    observer = Observer(change(), served=SERVED)
    assert observer.look() == []
    change(statement)
    found = observer.look()
    assert invariant in {one.invariant for one in found}, found
    assert observer.violations == found
    assert (observer.looks, observer.tasks) == (2, 1)


def test_an_act_on_record_explains_it(change: Change) -> None:
    observer = Observer(change())
    observer.look()
    change(
        "DELETE FROM resume_item",
        "DELETE FROM resume_quarantine",
        "UPDATE resume_task_shard SET cur_page = first_page - 1, page_count = 0, ahead = '',"
        " status = 'pending', due = 1, worker = NULL, instance = NULL, lease_until = NULL,"
        " next_run_at = NULL, quarantined_count = 0, version = 0",
        "UPDATE resume_task SET status = 'running', verdict = NULL, finished_at = NULL",
        "INSERT INTO resume_operation (kind, task_id, actor, reason, at) VALUES"
        " ('restart', 1, 'me', 'to see', '2030-01-01 00:00:00.000000')",
    )
    assert observer.look() == []


def test_salvaged_items_come_before_their_page_and_replace_nothing(change: Change) -> None:
    observer = Observer(change())
    observer.look()
    salvage = (
        "INSERT INTO resume_operation (kind, task_id, shard_no, actor, reason, at) VALUES"
        " ('salvage', 1, 1, 'me', 'another has its shard', '2030-01-01 00:00:00.000000')",
        "INSERT INTO resume_item SELECT source, 'k999', payload, task_id, 1, 99, fetched_at,"
        " first_seen_at, updated_at FROM resume_item WHERE item_key = 'k001'",
    )
    change(salvage[1])
    assert {one.invariant for one in check(change())} == {"I5"}
    change("DELETE FROM resume_item WHERE item_key = 'k999'", *salvage)
    assert observer.look() == []
    change("UPDATE resume_item SET payload = '{}' WHERE item_key = 'k001'")
    assert {one.invariant for one in observer.look()} == {"I5"}
    change("UPDATE resume_task_shard SET cur_page = 3, page_count = 3 WHERE shard_no = 1")
    assert "I4" in {one.invariant for one in observer.look()}


def test_a_users_own_table_can_be_looked_at(change: Change) -> None:
    url = change("CREATE TABLE book (isbn TEXT)", *_books())
    assert check(url, served=SERVED, table="book", key="isbn") == []
    url = change("DELETE FROM book WHERE isbn = 'k012'")
    found = check(url, served=SERVED, table="book", key="isbn")
    assert [(one.invariant, one.page) for one in found][:1] == [("I1", 2)]
    with pytest.raises(ConfigurationError, match="title"):
        check(url, table="book", key="title")


def _books() -> Iterator[str]:
    for key in KEYS:
        yield f"INSERT INTO book VALUES ('{key}')"


def test_served_pages_can_be_told_by_shard(change: Change) -> None:
    url = change()
    assert check(url, served={"1-4": SERVED, "5-8": {5: SERVED[5]}}) == []
    found = check(url, served={"1-4": {1: ["elsewhere"], 2: ["nowhere"]}})
    assert {one.shard for one in found} == {1}
    assert len(stored_items(url)) == len(stored_items(url, source="rows")) > 0
    assert stored_items(url, source="another") == {}


def test_a_database_without_tables_has_nothing_to_violate(tmp_path: Path) -> None:
    assert check(f"sqlite:///{tmp_path / 'empty.db'}") == []


def test_the_command(change: Change, tmp_path: Path) -> None:
    served = tmp_path / "served.json"
    served.write_text(json.dumps(SERVED))

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "scrapy_resume.testing", *words]
        return subprocess.run(command, capture_output=True, text=True, cwd=ROOT)

    good = run(change(), "--served", str(served), "--watch", "0.3")
    assert good.returncode == 0, good.stderr
    assert "0 violations" in good.stdout and "1 tasks" in good.stdout
    url = change("DELETE FROM resume_item WHERE page = 2")
    bad = run(url, "--served", str(served))
    assert (bad.returncode, "I1: 'k011'" in bad.stdout) == (1, True)
    mistake = run("nonsense://")
    assert (mistake.returncode, "Traceback" in mistake.stderr) == (2, False)
