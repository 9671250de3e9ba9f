"""The product's tables in a fresh database, for tests that are not about how they are made.

The migrations run once for each server and process; later databases get copies of what they
left, which takes a tenth of the time.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from scrapy_resume.store import migrate
from scrapy_resume.store.engine import Database

_Rows = list[tuple[Any, ...]]
_known: dict[tuple[str | None, int | None], Mapping[str, tuple[str, _Rows]]] = {}


def database_with_tables(url: str) -> Database:
    """Connect to the empty database at *url* and give it the tables. Close it when done."""
    if url.startswith("sqlite"):
        Path(url.removeprefix("sqlite:///")).write_bytes(_file())
        return Database.connect(url)
    db = Database.connect(url)
    server = db.engine.url.host, db.engine.url.port
    if server in _known:
        _copy(db, _known[server])
    else:
        migrate.ensure_schema(db)
        _known[server] = _found(db)
    return db


@cache
def _file() -> bytes:
    with TemporaryDirectory() as directory:
        path = Path(directory) / "resume.db"
        db = Database.connect(f"sqlite:///{path}")
        migrate.ensure_schema(db)
        db.close()
        return path.read_bytes()


def _found(db: Database) -> Mapping[str, tuple[str, _Rows]]:
    """The statement that makes each table, and the table's rows."""
    found = {}
    with db.read() as conn:
        for (name,) in conn.exec_driver_sql("SHOW TABLES").all():
            statement = conn.exec_driver_sql(f"SHOW CREATE TABLE `{name}`").one()[1]
            rows = conn.exec_driver_sql(f"SELECT * FROM `{name}`").all()
            found[name] = statement, [tuple(row) for row in rows]
    return found


def _copy(db: Database, tables: Mapping[str, tuple[str, _Rows]]) -> None:
    connection = db.engine.raw_connection()
    try:
        cursor = connection.cursor()
        for name, (statement, rows) in tables.items():
            cursor.execute(statement)
            for row in rows:
                cursor.execute(f"INSERT INTO `{name}` VALUES ({', '.join(['%s'] * len(row))})", row)
        connection.commit()
    finally:
        connection.close()
