"""``scrapy resume`` called in this process, and worlds for it to look at."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from example_project.site import Site
from scrapy.cmdline import execute
from scrapy.settings import Settings

from tests.acceptance.forkserver import ForkServer
from tests.acceptance.harness import Bench
from tests.store.worlds import World
from tests.tables import database_with_tables


@dataclass(frozen=True)
class Outcome:
    """How a call of ``scrapy`` ended and what it printed."""

    code: Any
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Scrapy = Callable[..., Outcome]


@pytest.fixture
def scrapy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Scrapy:
    """Call ``scrapy WORDS`` outside of any project; keywords are settings."""
    for name in [name for name in os.environ if name.startswith(("RESUME_", "SCRAPY_"))]:
        monkeypatch.delenv(name)
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)

    def call(*words: str, **settings: Any) -> Outcome:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            execute(["scrapy", *words], settings=Settings(settings))
        printed = capsys.readouterr()
        return Outcome(ended.value.code, printed.out, printed.err)

    return call


@pytest.fixture
def resume(scrapy: Scrapy, database_url: str) -> Scrapy:
    """Call ``scrapy resume WORDS`` with each database in turn."""

    def call(*words: str, **settings: Any) -> Outcome:
        return scrapy("resume", *words, **{"RESUME_DATABASE_URL": database_url, **settings})

    return call


@pytest.fixture
def world(database_url: str) -> Iterator[World]:
    """The database of ``resume``, with tables and with short-hands to fill them."""
    db = database_with_tables(database_url)
    yield World(db)
    db.close()


@pytest.fixture
def site() -> Iterator[Site]:
    """12 pages of 10 rows."""
    with Site() as site:
        yield site


@pytest.fixture
def bench(tmp_path: Path, site: Site, forks: ForkServer | None) -> Iterator[Bench]:
    """A project on SQLite whose ``scrapy`` is a process of its own."""
    url = f"sqlite:///{tmp_path / 'bench.db'}"
    bench = Bench(tmp_path / "project", url, site, "resume_", forks)
    try:
        yield bench
    finally:
        site.heal()
        bench.end()
        print(bench.logs())  # shown when the test fails
