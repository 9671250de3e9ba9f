"""The package as a whole: what importing it costs and what it offers."""

from __future__ import annotations

import subprocess
import sys

import pytest

import scrapy_resume


def test_importing_the_package_imports_nothing_heavy() -> None:
    script = (
        "import sys, scrapy_resume; from scrapy_resume import Shard, NotAPage, SiteBlocked;"
        "print(*{'scrapy', 'twisted', 'sqlalchemy', 'redis', 'alembic'} & set(sys.modules))"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == ""


def test_a_crawl_without_redis_does_not_import_redis_py() -> None:
    script = "import sys, scrapy_resume.session; print('redis' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"


@pytest.mark.parametrize("name", scrapy_resume.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(scrapy_resume, name).__name__ == name
    assert name in dir(scrapy_resume)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        scrapy_resume.no_such_name  # noqa: B018
