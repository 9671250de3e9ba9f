"""``scrapy resume db``."""

from __future__ import annotations

from pathlib import Path

from scrapy_resume.store.migrate import SCHEMA_VERSION
from tests.acceptance.harness import Bench
from tests.commands.conftest import Scrapy
from tests.store.worlds import World


def test_upgrade_makes_the_tables_and_check_then_finds_nothing(resume: Scrapy) -> None:
    check = resume("db", "check")
    assert check.code == 1
    assert "`scrapy resume db upgrade`" in check.out
    made = resume("db", "upgrade")
    assert made.code == 0
    assert made.out.endswith(f" are made, with schema {SCHEMA_VERSION}.\n")
    again = resume("db", "upgrade")
    assert again.code == 0
    assert again.out.endswith(f" have schema {SCHEMA_VERSION} already.\n")
    check = resume("db", "check")
    assert check.code == 0
    assert check.out.endswith(f" are as schema {SCHEMA_VERSION} has them.\n")
    assert resume("status").out == "no tasks yet\n"


def test_upgrade_makes_the_directory_of_the_default_file(scrapy: Scrapy) -> None:
    assert scrapy("resume", "db", "upgrade").code == 0
    assert Path(".scrapy/resume/resume.db").exists()


def test_the_check_as_json(resume: Scrapy, world: World) -> None:
    found = resume("db", "check", "--json")
    assert found.code == 0
    shown = world.db.redacted_url
    assert found.json == {
        "database": shown,
        "schema": SCHEMA_VERSION,
        "wanted_schema": SCHEMA_VERSION,
        "problems": [],
        "warnings": [],
        "findings": [],
    }
    world.sql("DROP TABLE resume_outbox")
    found = resume("db", "check", "--json")
    assert found.code == 1
    assert found.json["problems"] == ["the table resume_outbox is missing"]


def test_checking_makes_no_file(scrapy: Scrapy) -> None:
    found = scrapy("resume", "db", "check", "--json")
    assert (found.code, found.json["schema"]) == (1, None)
    assert list(Path.cwd().iterdir()) == []


def test_tables_of_the_projects_spiders_are_checked_too(bench: Bench) -> None:
    bench.write(
        """
        class Rows(Numbered):
            name = 'rows'
            item_table = ItemTable("products", key=["key"])


        class Others(Rows):
            name = 'others'
        """
    )
    assert bench.run_scrapy("resume", "db", "upgrade").wait().code == 0
    check = bench.run_scrapy("resume", "db", "check").wait()
    assert (check.code, check.log) == (
        1,
        'table products: it does not exist; create it first (mend: CREATE TABLE "products"'
        ' ("key" VARCHAR(190) NOT NULL, PRIMARY KEY ("key"))) [spiders others, rows]\n',
    )
    bench.write("raise RuntimeError('half an edit')", name="broken")
    check = bench.run_scrapy("resume", "db", "check").wait()
    assert check.code == 1
    assert "the spiders cannot be loaded: RuntimeError: half an edit" in check.log
