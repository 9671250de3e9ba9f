"""``scrapy resume db``: the tables, made, upgraded and checked."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from scrapy.spiderloader import get_spider_loader
from scrapy.utils.project import inside_project

from scrapy_resume.commands.database import file_of, is_missing_file, opened, resume_settings
from scrapy_resume.commands.screen import print_json, show
from scrapy_resume.commands.verbs import FAILED
from scrapy_resume.exceptions import ConfigurationError
from scrapy_resume.itemrows import ItemRows
from scrapy_resume.store import items, migrate

if TYPE_CHECKING:
    from scrapy.settings import Settings

    from scrapy_resume.settings import ResumeSettings
    from scrapy_resume.store.items import ItemTable


_MOST = 3  # spiders that are named of a table


def run(settings: Settings, opts: argparse.Namespace) -> int:
    """Upgrade or check; a check that finds something has the exit code 1."""
    ours = resume_settings(settings)
    if opts.act == "upgrade":
        return _upgrade(ours)
    found = _check(settings, ours)
    if opts.json:
        print_json(found)
    else:
        show(_lines(found))
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


def _check(settings: Settings, ours: ResumeSettings) -> dict[str, Any]:
    shown, schema = ours.redacted_database_url, None
    warnings: list[str] = []
    details: list[dict[str, Any]] = []
    if is_missing_file(ours):
        problems = [f"{shown} does not exist yet; `scrapy resume db upgrade` or a crawl makes it"]
    else:
        users, tables, problems = _item_tables(settings, ours)
        with opened(ours) as db:
            schema = migrate.installed_version(db)
            findings = items.inspect(db, tables, ours.item_checks)
            said = {finding: f"{finding}{_of(users, finding.table)}" for finding in findings}
            problems = [*migrate.check(db), *problems, *(said[f] for f in findings if f.refuse)]
            warnings = [said[finding] for finding in findings if not finding.refuse]
            details = [asdict(one) | {"declared_by": users.get(one.table, [])} for one in findings]
    return {
        "database": shown,
        "schema": schema,
        "wanted_schema": migrate.SCHEMA_VERSION,
        "problems": problems,
        "warnings": warnings,
        "findings": details,
    }


def _item_tables(
    settings: Settings, ours: ResumeSettings
) -> tuple[dict[str, list[str]], list[ItemTable], list[str]]:
    """Which spiders declare which tables, these tables, and what is wrong with that."""
    users: dict[str, list[str]] = {}
    tables: list[ItemTable] = []
    problems: list[str] = []
    if not inside_project():
        return users, tables, problems
    try:
        loader = get_spider_loader(settings)
        for name in loader.list():
            try:
                for table in ItemRows(loader.load(name), ours).tables:
                    tables += [] if table in tables else [table]
                    users.setdefault(table.name, []).append(name)
            except ConfigurationError as error:
                problems.append(f"spider {name}: {error}")
    except Exception as error:  # a spider's module may raise anything
        return {}, [], [f"the spiders cannot be loaded: {type(error).__name__}: {error}"]
    return {table: sorted(names) for table, names in users.items()}, tables, problems


def _of(users: dict[str, list[str]], table: str) -> str:
    """Whose items go to *table*, as the end of a finding."""
    names = users.get(table, [])
    rest = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
    what = "spider" if len(names) == 1 else "spiders"
    return f" [{what} {', '.join(names[:_MOST])}{rest}]" if names else ""


def _lines(found: dict[str, Any]) -> list[str]:
    lines = [*found["problems"], *(f"warning: {text}" for text in found["warnings"])]
    if not found["problems"]:
        lines.append(f"The tables at {found['database']} are as schema {found['schema']} has them.")
    return lines
