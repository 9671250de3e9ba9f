"""Mistakes and outages: one line on stderr, exit code 1, no traceback, no secret."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from scrapy_resume.store import repeats
from scrapy_resume.store.migrate import SCHEMA_VERSION
from tests.commands.conftest import Outcome, Scrapy
from tests.services import MariaDB, free_port
from tests.store.worlds import World

_LOOKS = [
    ("status",), ("status", "--json"), ("why", "books"), ("db", "check"), ("health", "show"),
    ("quarantine", "list"), ("pause", "books"), ("restart", "books"), ("pause", "--site", "site"),
]  # fmt: skip


def one_line(outcome: Outcome) -> str:
    """What it said, once it is known to be one line and nothing else."""
    assert (outcome.code, outcome.out) == (1, ""), outcome
    (line,) = outcome.err.splitlines()
    assert line.startswith("scrapy resume: ")
    return line


@pytest.mark.parametrize("words", _LOOKS, ids=" ".join)
def test_a_setting_that_cannot_be(scrapy: Scrapy, words: tuple[str, ...]) -> None:
    said = one_line(scrapy("resume", *words, RESUME_LEASE="soon"))
    assert said == "scrapy resume: RESUME_LEASE is 'soon'; allowed is a number from 0.25 to 3600"


def test_the_suite_may_be_switched_off(resume: Scrapy, world: World) -> None:
    world.plan()
    assert "books" in resume("status", RESUME_ENABLED=False).out


@pytest.mark.parametrize("words", _LOOKS, ids=" ".join)
def test_a_wrong_password(scrapy: Scrapy, mariadb: MariaDB, words: tuple[str, ...]) -> None:
    mariadb.execute("CREATE USER IF NOT EXISTS 'locked'@'%' IDENTIFIED BY 'right'")
    url = f"mysql+pymysql://locked:wr0ng@{mariadb.host}:{mariadb.port}/test"
    said = one_line(scrapy("resume", *words, RESUME_DATABASE_URL=url))
    assert "refuses us" in said
    assert "wr0ng" not in said


def test_a_server_that_is_away(scrapy: Scrapy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeats.time, "sleep", lambda seconds: None)
    url = f"mysql+pymysql://me:s3cret@127.0.0.1:{free_port()}/crawl"
    said = one_line(scrapy("resume", "status", RESUME_DATABASE_URL=url))
    assert "mysql+pymysql://me:***@127.0.0.1" in said
    assert "s3cret" not in said


def test_a_file_that_is_no_database(scrapy: Scrapy, tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("not a database, but a text of some length\n" * 100)
    said = one_line(scrapy("resume", "status", RESUME_DATABASE_URL=f"sqlite:///{file}"))
    assert f"{file} refuses us: file is not a database" in said


@pytest.mark.parametrize(
    ("version", "said"),
    [
        ("0000", f"older than {SCHEMA_VERSION}; run `scrapy resume db upgrade`"),
        ("9999", f"newer than {SCHEMA_VERSION}; this worker needs scrapy_resume 7.5 or newer"),
    ],
    ids=["older", "newer"],
)
@pytest.mark.parametrize("words", [one for one in _LOOKS if one[0] != "db"], ids=" ".join)
def test_tables_of_another_version(
    resume: Scrapy, world: World, version: str, said: str, words: tuple[str, ...]
) -> None:
    world.sql("UPDATE resume_alembic_version SET version_num = :v", v=version)
    world.sql("UPDATE resume_meta SET value = '7.5' WHERE name = 'package'")
    assert said in one_line(resume(*words))


def test_a_reader_that_has_seen_enough_is_no_traceback(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "scrapy", "resume", "status"],
        cwd=tmp_path, stdout=writer, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")
