"""What the server and its engines may spoil: rollbacks that undo only a part, cut values."""

from __future__ import annotations

import re
from collections.abc import Iterator

from sqlalchemy import text
from sqlalchemy.engine import Connection

from scrapy_resume.store.engine import Database
from scrapy_resume.store.items import catalogmysql
from scrapy_resume.store.items.findings import Finding, quoted
from scrapy_resume.store.items.tablefacts import TableFacts

_STRICT = {"STRICT_TRANS_TABLES", "STRICT_ALL_TABLES"}


def of_server(conn: Connection, db: Database, *, with_items: bool) -> Iterator[Finding]:
    """The engines of the product's own tables, and the mode of other sessions."""
    ours = {table.name for table in db.tables.metadata.sorted_tables}
    for name, engine in catalogmysql.forgetful(conn).items():
        if name in ours:
            yield _engine(name, engine)
    mode = str(conn.execute(text("SELECT @@GLOBAL.sql_mode")).scalar())
    if with_items and not _STRICT & set(mode.split(",")):
        what = "sessions of others are not strict and may cut its values; those of crawls are"
        mend = "SET GLOBAL sql_mode = CONCAT(@@GLOBAL.sql_mode, ',STRICT_TRANS_TABLES')"
        yield Finding("strict_mode", "*", None, what, mend)


def of_table(conn: Connection, facts: TableFacts) -> Iterator[Finding]:
    """An engine that cannot undo a transaction."""
    if facts.engine is not None and not catalogmysql.undoable(facts.engine):
        yield _engine(facts.name, facts.engine)


def of_triggers(conn: Connection, db: Database, facts: TableFacts) -> Iterator[Finding]:
    """Triggers: what they do is done again when a transaction is repeated, if not undone."""
    if not facts.triggers:
        return
    forgetful = catalogmysql.forgetful(conn) if db.dialect == "mysql" else {}
    for trigger in facts.triggers:
        what = f"its trigger {trigger.name} runs at every attempt to store a row"
        yield Finding("trigger", facts.name, None, what)
        words = {word.lower() for word in re.findall(r"[^\s`'\"().,;=]+", trigger.text)}
        for name, engine in forgetful.items():
            if name.lower() in words:
                why = f"the trigger {trigger.name} of {facts.name} names it, and "
                yield _engine(name, engine, why)


def _engine(table: str, engine: str, why: str = "") -> Finding:
    what = f"{why}its engine is {engine}; only InnoDB can undo a transaction"
    mend = f"ALTER TABLE {quoted('mysql', table)} ENGINE=InnoDB"
    return Finding("engine", table, None, what, mend)
