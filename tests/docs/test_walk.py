"""The quickstart and the page on testing, followed to the letter with real processes."""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from example_project.site import Site

from tests.docs.pages import block
from tests.docs.test_code import HERE, environment

QUICKSTART, TESTING = "docs/quickstart.md", "docs/how-to/testing.md"


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


@pytest.fixture(scope="module", autouse=True)
def tested(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Future[Path]]:
    """The test that the page shows, run inside the project while the other walk goes on."""
    directory = tmp_path_factory.mktemp("tested")
    shown: dict[str, Any] = {}
    exec(block(TESTING, "python", "def test_").text, shown)

    def run() -> Path:
        shown["test_a_killed_crawl_goes_on"](directory)
        return directory

    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(1) as pool:
        patch.chdir(project)
        for name, value in environment().items():
            patch.setenv(name, value)
        yield pool.submit(run)


def sh(commands: str, where: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run *commands* as they stand on a page."""
    return subprocess.run(
        ["bash", "-c", commands], cwd=where, env={**environment(), **env}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60,
    )  # fmt: skip


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
    assert items[0] == "(60,)" and "http://127.0.0.1" in items[1]


def test_the_page_on_testing(tested: Future[Path]) -> None:
    made = tested.result(60) / "killed"
    for code in (block(TESTING, "python", "served ="), block(TESTING, "python", "Observer(")):
        exec(code.text.replace("sqlite:///.scrapy/resume", f"sqlite:///{made}"), {})
