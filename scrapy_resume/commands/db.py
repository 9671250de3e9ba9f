"""``scrapy resume db``: the tables, made, upgraded and checked."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from scrapy_resume.commands.database import file_of, is_missing_file, opened, resume_settings
from scrapy_resume.commands.screen import print_json, show
from scrapy_resume.commands.verbs import FAILED
from scrapy_resume.store import migrate

if TYPE_CHECKING:
    from scrapy.settings import Settings

    from scrapy_resume.settings import ResumeSettings


def run(settings: Settings, opts: argparse.Namespace) -> int:
    """Upgrade or check; a check that finds something has the exit code 1."""
    ours = resume_settings(settings)
    if opts.act == "upgrade":
        return _upgrade(ours)
    found = _check(ours)
    if opts.json:
        print_json(found)
    else:
        show([*found["problems"], *_summary(found)])
    return FAILED if found["problems"] else 0


def _upgrade(settings: ResumeSettings) -> int:
    file = file_of(settings)
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
    with opened(settings) as db:
        before = migrate.installed_version(db)
        migrate.upgrade(db)
        shown = db.redacted_url
    now = migrate.SCHEMA_VERSION
    if before == now:
        show([f"The tables at {shown} have schema {now} already."])
    elif before is None:
        show([f"The tables at {shown} are made, with schema {now}."])
    else:
        show([f"The tables at {shown} went from schema {before} to {now}."])
    return 0


def _check(settings: ResumeSettings) -> dict[str, Any]:
    shown, schema = settings.redacted_database_url, None
    if is_missing_file(settings):
        problems = [f"{shown} does not exist yet; `scrapy resume db upgrade` or a crawl makes it"]
    else:
        with opened(settings) as db:
            schema = migrate.installed_version(db)
            problems = migrate.check(db)
    return {
        "database": shown,
        "schema": schema,
        "wanted_schema": migrate.SCHEMA_VERSION,
        "problems": problems,
    }


def _summary(found: dict[str, Any]) -> list[str]:
    if found["problems"]:
        return []
    return [f"The tables at {found['database']} are as schema {found['schema']} has them."]
