"""Is a user's table fit for upserts? Looked at when a crawl starts, before the first request.

An upsert is only as right as its unique index: with a nullable key every pass inserts
again, with a second unique index a row may overwrite an unrelated one, without an
engine that can undo, items and checkpoint disagree after a crash.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from sqlalchemy.engine import Connection

from scrapy_resume.exceptions import ConfigurationError
from scrapy_resume.store.engine import Database
from scrapy_resume.store.items import indexfindings, serverfindings, tablefindings
from scrapy_resume.store.items.catalog import look
from scrapy_resume.store.items.findings import Finding, actions
from scrapy_resume.store.items.table import ItemTable

__all__ = ["Finding", "inspect", "require"]


def inspect(
    db: Database, tables: Iterable[ItemTable], checks: Mapping[str, str] | None = None
) -> list[Finding]:
    """Compare the real tables with what *tables* declare; *checks* as RESUME_ITEM_CHECKS.

    Raises ConfigurationError for *checks* that cannot be.
    """
    every, wanted = list(tables), actions(checks or {})

    def found(conn: Connection) -> list[Finding]:
        return [one for finding in _look(conn, db, every) if (one := finding.as_wanted(wanted))]

    return db.look(found)


def require(
    db: Database, tables: Iterable[ItemTable], checks: Mapping[str, str] | None = None
) -> list[Finding]:
    """Raise ConfigurationError if a table is unfit; returns the findings that only warn."""
    findings = inspect(db, tables, checks)
    bad = [finding for finding in findings if finding.refuse]
    if bad:
        raise ConfigurationError("; ".join(map(str, bad)))
    return findings


def _look(conn: Connection, db: Database, tables: list[ItemTable]) -> Iterator[Finding]:
    if db.dialect == "mysql":
        yield from serverfindings.of_server(conn, db, with_items=bool(tables))
    for declared in tables:
        facts = look(conn, db, declared.name)
        if facts is None:
            yield tablefindings.missing_table(conn, db, declared)
            continue
        yield from tablefindings.of_names(db, declared, facts)
        if declared.key and not facts.is_view:
            if all(name in facts.columns for name in declared.key):
                yield from indexfindings.of_indexes(db, declared, facts)
            yield from tablefindings.of_columns(conn, db, declared, facts)
        if db.dialect == "mysql":
            yield from serverfindings.of_table(conn, facts)
        yield from serverfindings.of_triggers(conn, db, facts)
