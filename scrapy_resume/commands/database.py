"""The database as the verbs see it: opened for one look, and never created by looking."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from scrapy_resume.address import DatabaseAddress
from scrapy_resume.exceptions import ConfigurationError
from scrapy_resume.settings import ResumeSettings
from scrapy_resume.store import migrate, tasks
from scrapy_resume.store.engine import Database
from scrapy_resume.store.errors import describe

if TYPE_CHECKING:
    from scrapy.settings import Settings

    from scrapy_resume.store.tasks import Task


def resume_settings(settings: Settings) -> ResumeSettings:
    """Our settings, also where RESUME_ENABLED is False: one may look at what there is.

    Raises ConfigurationError.
    """
    switched_on = settings.copy()
    switched_on.set("RESUME_ENABLED", True, priority="cmdline")
    return ResumeSettings.from_settings(switched_on)


@contextmanager
def opened(settings: ResumeSettings) -> Iterator[Database]:
    """The database. Every error of it becomes a ResumeError with one sentence."""
    db = Database.connect(settings.database_url, prefix=settings.table_prefix, max_connections=1)
    try:
        yield db
    except Exception as error:
        if type(error).__module__.startswith("sqlalchemy."):
            _say(db, error)
        raise
    finally:
        db.close()


@contextmanager
def looked_at(settings: ResumeSettings) -> Iterator[Database | None]:
    """The database if it has our tables, else None; makes neither a file nor a table.

    Raises SchemaMismatch for tables that this version cannot read.
    """
    if is_missing_file(settings):
        yield None
        return
    with opened(settings) as db:
        if migrate.installed_version(db) is None:
            yield None
        else:
            migrate.still_fits(db)
            yield db


def file_of(settings: ResumeSettings) -> Path | None:
    """The file that is the database; None for a server."""
    address = DatabaseAddress.parse(settings.database_url)
    return Path(address.database) if address.driver == "sqlite" else None


def is_missing_file(settings: ResumeSettings) -> bool:
    """Is the database an SQLite file that does not exist?"""
    file = file_of(settings)
    return file is not None and not file.exists()


def find_task(db: Database | None, which: str) -> Task:
    """The task with the id *which*, else the newest run of the task named so.

    Raises ConfigurationError, with the names that come close.
    """
    found = tasks.find_tasks(db, which) if db else []
    exact = [task for task in found if str(task.id) == which]
    if found:
        return (exact or found)[0]
    every = {task.name: task.id for task in reversed(tasks.find_tasks(db, None))} if db else {}
    close = [name for name in every if which.lower() in name.lower()]
    close = (close or difflib.get_close_matches(which, every, cutoff=0.5))[:3]
    if not every:
        hint = "there are no tasks yet"
    elif close:
        hint = "did you mean " + " or ".join(f"{name!r} (id {every[name]})" for name in close) + "?"
    else:
        hint = "`scrapy resume status` lists them"
    raise ConfigurationError(f"there is no task {which!r}; {hint}")


def _say(db: Database, error: Exception) -> None:
    """Raise what the database's *error* means for a person."""
    try:
        db.repeats(1).after(error)
    except type(error):
        raise ConfigurationError(f"{db.redacted_url} cannot be used: {describe(error)}") from error
