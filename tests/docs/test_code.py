"""What the pages show as Python is Python, and their spiders crawl the local site."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from example_project.site import Site

from tests.docs.pages import ROOT, Block, applied, block, blocks, sides

HERE = "http://127.0.0.1:8008"
BOOKS = "https://books.toscrape.com/"

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
    "secrets shop": {"resume_item": 30},
    "components slow": {"resume_item": 30},
}


def spiders() -> dict[str, str]:
    """The source of every spider, by page and name."""
    sources = {}
    for shown in blocks("python", "diff"):
        text = applied(shown.text) if shown.language == "diff" else shown.text
        if (name := re.search(r'^    name = "(\w+)"$', text, re.MULTILINE)) is not None:
            sources[f"{Path(shown.page).stem} {name[1]}"] = text
    return sources


@pytest.mark.parametrize("shown", [*blocks("python")], ids=str)
def test_python_is_python(shown: Block) -> None:
    tree = ast.parse(shown.text)
    names = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
    if "ResumeSpiderMixin" in names:
        assert "from scrapy_resume import" in shown.text, "it cannot be copied as it is"


def test_the_front_page_changes_three_lines() -> None:
    shown = block("README.md", "diff").text
    taken, added = sides(shown)
    assert (len(list(taken)), len(list(added))) == (2, 3)
    ast.parse(applied(shown, old=True))
    assert "resume" not in applied(shown, old=True)


@contextmanager
def members_only() -> Iterator[Site]:
    """A site whose list wants a session, which lasts for a few pages."""
    with Site() as site:
        login = "/login?next=/list"
        site.behave(path="/list", unless_cookie="session", views=5, redirect=login)
        yield site


def test_every_spider_crawls_the_site(tmp_path: Path) -> None:
    sources = spiders()
    assert sources.keys() == STORED.keys()
    with Site() as site, members_only() as members:
        for name, source in sources.items():
            url = members.url if name == "login members" else site.url
            home = tmp_path / name.replace(" ", "-")
            home.mkdir()
            text = source.replace(HERE, url).replace(BOOKS, f"{url}/books/")
            (home / "spider.py").write_text(text)
        make_tables(tmp_path)
        outcomes = crawl_all(tmp_path)
        assert len([r for r in members.requests if r.path == "/login"]) >= 2
    assert {name: tuple(end) for name, end in outcomes.items()} == {
        name.replace(" ", "-"): ("finished", "complete") for name in STORED
    }
    for name, tables in STORED.items():
        database = tmp_path / name.replace(" ", "-") / "resume.db"
        assert {table: count(database, table) for table in tables} == tables, name


def make_tables(directory: Path) -> None:
    """Follow the page on item tables to the letter, in a project of its own."""
    project = directory / "project"
    project.mkdir()
    (project / "scrapy.cfg").write_text("[settings]\ndefault = shop\n")
    (project / "shop.py").touch()
    commands = block("docs/how-to/item-tables.md", "sh", "CREATE TABLE product").text
    subprocess.run(["bash", "-ec", commands], cwd=project, env=environment(), check=True)
    made = project / ".scrapy" / "resume" / "resume.db"
    shutil.copy(made, directory / "item-tables-products")
    shutil.copy(made, directory / "item-tables-offers")
    with closing(sqlite3.connect(directory / "item-tables-offers" / "resume.db")) as offers:
        offers.execute("CREATE TABLE offer (sku TEXT NOT NULL PRIMARY KEY, price TEXT)")


def crawl_all(directory: Path) -> dict[str, list[str]]:
    script = Path(__file__).with_name("crawl_all.py")
    command = [sys.executable, str(script), str(directory)]
    done = subprocess.run(
        command, cwd=directory, env=environment(), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0 and done.stderr == "", done.stderr
    outcomes: dict[str, list[str]] = json.loads(done.stdout.splitlines()[-1])
    return outcomes


def environment() -> dict[str, str]:
    """As a user has it: the commands on the path, nothing of ours set."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("RESUME_", "SCRAPY_"))}
    path = os.pathsep.join([str(Path(sys.executable).parent), kept.get("PATH", "")])
    return {**kept, "PATH": path, "PYTHONPATH": str(ROOT), "SHOP_PASSWORD": "open sesame"}


def count(database: Path, table: str) -> int:
    with closing(sqlite3.connect(database)) as connection:
        found: int = connection.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0]
    return found
