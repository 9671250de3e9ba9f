"""Reads the facts of a table from the catalogue of whichever database it is in."""

from __future__ import annotations

from sqlalchemy.engine import Connection

from scrapy_resume.store.engine import Database
from scrapy_resume.store.items import catalogmysql, catalogsqlite
from scrapy_resume.store.items.tablefacts import TableFacts


def look(conn: Connection, db: Database, table: str) -> TableFacts | None:
    """The facts of *table* as it is now; None if there is no such table."""
    if db.dialect == "sqlite":
        return catalogsqlite.look(conn, table)
    return catalogmysql.look(conn, table)
