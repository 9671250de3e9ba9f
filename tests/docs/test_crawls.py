"""The pages followed to the letter, with real processes that crawl the local site.

The quickstart, the test that the page on testing shows, and every spider of all pages
go at once, since each of them mostly waits for processes to start.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from example_project.site import Site

from tests.docs.pages import ROOT, applied, block, blocks

QUICKSTART, TESTING = "docs/quickstart.md", "docs/how-to/testing.md"
HERE = "http://127.0.0.1:8008"
BOOKS = "https://books.toscrape.com/"
TIMEOUT = 180.0  # seconds

# How many rows each spider of the pages stores, by table.
STORED = {
    "README books": {"resume_item": 60},
    "quickstart books": {"resume_item": 60},
    "chain characters": {"resume_item": 112},
    "chain careful": {"resume_item": 112},
    "numbered-pages rows": {"resume_item": 120},
    "numbered-pages blocks": {"resume_item": 192},
    "cursors api": {"resume_item": 192},
    "cursors feed": {"resume_item": 120},
    "login members": {"resume_item": 120},
    "item-tables products": {"product": 120, "resume_item": 0},
    "item-tables offers": {"offer": 120, "resume_item": 120},
    "item-tables prices": {"price": 120, "resume_item": 0},
    "secrets shop": {"resume_item": 30},
    "components slow": {"resume_item": 30},
    "health search": {"resume_item": 120},
}


def environment() -> dict[str, str]:
    """As a user has it: the commands on the path, nothing of ours set."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("RESUME_", "SCRAPY_"))}
    path = os.pathsep.join([str(Path(sys.executable).parent), kept.get("PATH", "")])
    return {**kept, "PATH": path, "PYTHONPATH": str(ROOT), "SHOP_PASSWORD": "open sesame"}


def sh(commands: str, where: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run *commands* as they stand on a page."""
    return subprocess.run(
        ["bash", "-ec", commands], cwd=where, env={**environment(), **env}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=TIMEOUT,
    )  # fmt: skip


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The project of the quickstart, in more of a hurry, and the site it crawls."""
    directory = tmp_path_factory.mktemp("walk")
    sh(block(QUICKSTART, "sh", "startproject").text, directory)
    package = directory / "shop" / "shop"
    settings = (package / "settings.py").read_text()
    assert "ADDONS = {}\n" in settings
    settings = settings.replace("ADDONS = {}\n", block(QUICKSTART, "python", "ADDONS").text)
    (package / "settings.py").write_text(f"{settings}\nDOWNLOAD_DELAY = 0\n")
    with Site() as site:
        spider = block(QUICKSTART, "python", "class BooksSpider").text.replace(HERE, site.url)
        (package / "spiders" / "books.py").write_text(spider)
        yield directory / "shop"


@pytest.fixture(scope="module")
def beside() -> Iterator[ThreadPoolExecutor]:
    """Threads for what goes on beside the quickstart."""
    with ThreadPoolExecutor() as pool:
        yield pool


@pytest.fixture(scope="module", autouse=True)
def tested(
    beside: ThreadPoolExecutor, project: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Future[Path]]:
    """The test that the page on testing shows, run inside the project."""
    directory = tmp_path_factory.mktemp("tested")
    shown: dict[str, Any] = {}
    exec(block(TESTING, "python", "def test_").text, shown)

    def run() -> Path:
        shown["test_a_killed_crawl_goes_on"](directory)
        return directory

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(project)
        for name, value in environment().items():
            patch.setenv(name, value)
        yield (future := beside.submit(run))
        future.exception(TIMEOUT)


@pytest.fixture(scope="module", autouse=True)
def crawled(
    beside: ThreadPoolExecutor, tmp_path_factory: pytest.TempPathFactory
) -> Future[tuple[Path, Any]]:
    """What became of every spider of the pages, and where."""
    directory = tmp_path_factory.mktemp("crawled")
    return beside.submit(lambda: (directory, crawl_all(directory)))


# The quickstart


def words(line: str) -> list[str]:
    return re.split(r" {2,}", line.strip())


def test_the_quickstart(project: Path) -> None:
    crawl = "exec scrapy crawl books -L INFO"
    killed = sh(crawl, project, RESUME_FAULT="commit.after:1:kill")
    assert killed.returncode == -signal.SIGKILL, killed.stdout

    looked = sh("scrapy resume status books", project).stdout
    for line in block(QUICKSTART, "", "Workers").text.splitlines():
        if line.startswith(("id ", "Run ", "Shards", "shard ", "Workers", "worker ")):
            assert words(line) in map(words, looked.splitlines())

    went_on = sh(crawl, project)
    assert went_on.returncode == 0
    assert "Working on run 1 of task 'books'" in went_on.stdout
    assert block(QUICKSTART, "", "is complete").text.strip() in went_on.stdout
    for line in block(QUICKSTART, "", "finish_reason").text.splitlines():
        assert line.partition(":")[0] in went_on.stdout

    items = sh(block(QUICKSTART, "sh", "SELECT COUNT").text, project).stdout.splitlines()
    assert items[0] == "(60,)" and HERE.rpartition(":")[0] in items[1]


# The page on testing


def test_the_page_on_testing(tested: Future[Path]) -> None:
    made = tested.result(TIMEOUT) / "killed"
    for code in (block(TESTING, "python", "served ="), block(TESTING, "python", "Observer(")):
        exec(code.text.replace("sqlite:///.scrapy/resume", f"sqlite:///{made}"), {})


# Every spider


def spiders() -> dict[str, str]:
    """The source of every spider, by page and name."""
    sources = {}
    for shown in blocks("python", "diff"):
        text = applied(shown.text) if shown.language == "diff" else shown.text
        if (name := re.search(r'^    name = "(\w+)"$', text, re.MULTILINE)) is not None:
            sources[f"{Path(shown.page).stem} {name[1]}"] = text
    return sources


def test_every_spider_is_known() -> None:
    assert spiders().keys() == STORED.keys()


def test_every_spider_crawls_the_site(crawled: Future[tuple[Path, Any]]) -> None:
    directory, outcomes = crawled.result(TIMEOUT)
    assert outcomes == {home(name): ["finished", "complete"] for name in STORED}
    for name, tables in STORED.items():
        database = directory / home(name) / "resume.db"
        assert {table: count(database, table) for table in tables} == tables, name


def crawl_all(directory: Path) -> Any:
    with Site() as site, members_only() as members:
        for name, source in spiders().items():
            url = members.url if name == "login members" else site.url
            text = source.replace(HERE, url).replace(BOOKS, f"{url}/books/")
            (directory / home(name)).mkdir()
            (directory / home(name) / "spider.py").write_text(text)
        make_tables(directory)
        outcomes = run_all(directory)
        assert len([r for r in members.requests if r.path == "/login"]) >= 2
    return outcomes


@contextmanager
def members_only() -> Iterator[Site]:
    """A site whose list wants a session, which lasts for a few pages."""
    with Site() as site:
        login = "/login?next=/list"
        site.behave(path="/list", unless_cookie="session", views=5, redirect=login)
        yield site


def make_tables(directory: Path) -> None:
    """Follow the page on item tables, in a project of its own."""
    project = directory / "project"
    project.mkdir()
    (project / "scrapy.cfg").write_text("[settings]\ndefault = shop\n")
    (project / "shop.py").touch()
    done = sh(block("docs/how-to/item-tables.md", "sh", "CREATE TABLE product").text, project)
    assert done.returncode == 0, done.stdout
    made = project / ".scrapy" / "resume" / "resume.db"
    for name in ("products", "offers", "prices"):
        shutil.copy(made, directory / f"item-tables-{name}")
    with closing(sqlite3.connect(directory / "item-tables-offers" / "resume.db")) as offers:
        offers.execute("CREATE TABLE offer (sku TEXT NOT NULL PRIMARY KEY, price TEXT)")
    with closing(sqlite3.connect(directory / "item-tables-prices" / "resume.db")) as prices:
        columns = "id INTEGER PRIMARY KEY, sku VARCHAR(20) NOT NULL UNIQUE, price VARCHAR(20)"
        prices.execute(f"CREATE TABLE price ({columns})")


def run_all(directory: Path) -> Any:
    script = Path(__file__).with_name("crawl_all.py")
    done = subprocess.run(
        [sys.executable, str(script), str(directory)], cwd=directory, env=environment(),
        capture_output=True, text=True, timeout=TIMEOUT,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout.splitlines()[-1])


def home(name: str) -> str:
    return name.replace(" ", "-")


def count(database: Path, table: str) -> int:
    with closing(sqlite3.connect(database)) as connection:
        found: int = connection.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0]
    return found
