"""Creating, upgrading and checking the tables.

The tables are made by their migrations alone, also the first time. Alembic is
imported only when there is something to migrate, since most starts find the
schema as it should be. Revisions are numbered, so older and newer can be told
apart without it.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Column, MetaData, String, Table, inspect, select, text
from sqlalchemy.engine import Connection

from scrapy_resume.exceptions import SchemaMismatch, StoreUnavailable
from scrapy_resume.store.engine import Database

SCHEMA_VERSION = "0001"
PROTOCOL_VERSION = 1  # of what workers say to each other through the tables

_SCRIPTS = Path(__file__).parent / "migrations"
_LOCK_WAIT = 60  # seconds that one process waits for another one's migration
_DDL_TIMEOUT = 3600.0

_one_at_a_time = threading.Lock()  # alembic's operations are global to the process


def ensure_schema(db: Database) -> None:
    """Create the tables if there are none; any number of processes may do so at once.

    Raises SchemaMismatch if they are older or newer than this version can use.
    """
    version = installed_version(db)
    if version is None:
        upgrade(db)
    elif version != SCHEMA_VERSION:
        raise SchemaMismatch(_mismatch(db, version))


def installed_version(db: Database) -> str | None:
    """The revision of the tables, None if there are none."""
    return db.look(lambda conn: _read_version(conn, db))


def upgrade(db: Database) -> None:
    """Bring the tables to this version. Raises SchemaMismatch if they are newer."""
    patient = Database.connect(
        db.engine.url, prefix=db.prefix, max_connections=1, network_timeout=_DDL_TIMEOUT
    )
    try:
        with _one_at_a_time, patient.transaction() as conn, _migration_lock(conn, patient):
            version = _read_version(conn, patient)
            if version is not None and version > SCHEMA_VERSION:
                raise SchemaMismatch(_mismatch(patient, version))
            if version != SCHEMA_VERSION:
                _migrate(conn, patient)
    finally:
        patient.close()


def check(db: Database) -> list[str]:
    """What is wrong with the tables, one sentence each; an empty list if nothing is."""
    version = installed_version(db)
    if version is None:
        return [f"{db.redacted_url} has no tables yet; `scrapy resume db upgrade` creates them"]
    if version != SCHEMA_VERSION:
        return [_mismatch(db, version)]
    return db.look(lambda conn: [*_missing(conn, db), *_not_transactional(conn, db)])


def _mismatch(db: Database, version: str) -> str:
    found = f"the tables at {db.redacted_url} have schema {version}"
    if version < SCHEMA_VERSION:
        return f"{found}, older than {SCHEMA_VERSION}; run `scrapy resume db upgrade`"
    return f"{found}, newer than {SCHEMA_VERSION}; this worker needs a newer scrapy_resume"


def _version_table(db: Database) -> str:
    return f"{db.prefix}alembic_version"


def _read_version(conn: Connection, db: Database) -> str | None:
    name = _version_table(db)
    if not inspect(conn).has_table(name):
        return None
    table = Table(name, MetaData(), Column("version_num", String))
    return conn.execute(select(table.c.version_num)).scalar()


@contextmanager
def _migration_lock(conn: Connection, db: Database) -> Iterator[None]:
    if db.dialect == "sqlite":  # BEGIN IMMEDIATE is the lock, and SQLite's DDL is transactional
        yield
        return
    # The server has one space of lock names, of 64 characters, for all its databases.
    place = hashlib.sha256(f"{db.engine.url.database}/{db.prefix}".encode()).hexdigest()[:32]
    name = {"name": f"scrapy_resume:migrate:{place}", "wait": _LOCK_WAIT}
    if conn.execute(text("SELECT GET_LOCK(:name, :wait)"), name).scalar() != 1:
        raise StoreUnavailable(
            f"another process has been migrating {db.redacted_url} for {_LOCK_WAIT} s"
        )
    try:
        yield
    finally:
        conn.execute(text("SELECT RELEASE_LOCK(:name)"), name)


def _migrate(conn: Connection, db: Database) -> None:
    logging.getLogger("alembic").setLevel(logging.WARNING)  # it would log ten lines at INFO
    from alembic.config import Config
    from alembic.migration import MigrationContext
    from alembic.operations import Operations
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(_SCRIPTS).replace("%", "%%"))
    scripts = ScriptDirectory.from_config(config)

    def steps(revision: Any, context: Any) -> Any:
        return scripts._upgrade_revs("head", revision)

    context = MigrationContext.configure(
        conn, opts={"version_table": _version_table(db), "prefix": db.prefix, "fn": steps}
    )
    with Operations.context(context):
        context.run_migrations()


def _missing(conn: Connection, db: Database) -> list[str]:
    inspector = inspect(conn)
    findings = []
    for table in db.tables.metadata.sorted_tables:
        if not inspector.has_table(table.name):
            findings.append(f"the table {table.name} is missing")
            continue
        there = {column["name"] for column in inspector.get_columns(table.name)}
        findings += [
            f"the table {table.name} has no column {column.name}"
            for column in table.columns
            if column.name not in there
        ]
    return findings


def _not_transactional(conn: Connection, db: Database) -> list[str]:
    if db.dialect == "sqlite":
        return []
    rows = conn.execute(
        text(
            "SELECT table_name, engine FROM information_schema.tables"
            " WHERE table_schema = DATABASE() AND engine <> 'InnoDB'"
        )
    )
    ours = {table.name for table in db.tables.metadata.sorted_tables}
    return [
        f"the table {name} has the engine {engine}; only InnoDB can undo a transaction"
        for name, engine in rows
        if name in ours
    ]
