"""Creating, upgrading and checking the tables.

The tables are made by their migrations alone, also the first time. Alembic is
imported only when there is something to migrate, since most starts find the
schema as it should be. Revisions are numbered, so older and newer can be told
apart without it. The protocol is the other half of the handshake: what workers say to
each other through the tables may change while the tables stay as they are.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from sqlalchemy import Column, MetaData, String, Table, inspect, select, text
from sqlalchemy.engine import Connection
from sqlalchemy.exc import SQLAlchemyError

from scrapy_resume import __version__
from scrapy_resume.exceptions import ConfigurationError, SchemaMismatch, StoreUnavailable
from scrapy_resume.store import meta
from scrapy_resume.store.engine import Database

SCHEMA_VERSION = "0005"
PROTOCOL_VERSION = 1  # of what workers say to each other through the tables

_SCRIPTS = Path(__file__).parent / "migrations"
_LOCK_WAIT = 60  # seconds that one process waits for another one's migration
_DDL_TIMEOUT = 3600.0

_one_at_a_time = threading.Lock()  # alembic's operations are global to the process


def ensure_schema(db: Database) -> None:
    """Create the tables if there are none; any number of processes may do so at once.

    Raises SchemaMismatch if they are older or newer than this version can use. Older ones
    that hold no run yet may be in the making, or left over from that: they are completed.
    """
    version = installed_version(db)
    if version is None or version < SCHEMA_VERSION:
        _bring_up(db, asked=False)
    else:
        still_fits(db, version)


def still_fits(db: Database, version: str | None = None) -> None:
    """Raise SchemaMismatch if the tables (of *version*, if it is known) are not for us to use.

    Reads two rows and changes nothing, so a worker may ask again while it runs.
    """

    def work(conn: Connection) -> str | None:
        found = version or _version(conn, db) or "0000"
        return _newer_protocol(conn, db) if found == SCHEMA_VERSION else _mismatch(conn, db, found)

    if problem := db.look(work):
        raise SchemaMismatch(problem)


def installed_version(db: Database) -> str | None:
    """The revision of the tables, None if there are none."""
    return db.look(lambda conn: _read_version(conn, db))


def upgrade(db: Database) -> None:
    """Bring the tables to this version. Raises SchemaMismatch if they are newer."""
    _bring_up(db, asked=True)


def _bring_up(db: Database, *, asked: bool) -> None:
    patient = Database.connect(
        db.engine.url, prefix=db.prefix, max_connections=1, network_timeout=_DDL_TIMEOUT
    )
    try:
        patient.run(lambda conn: _upgrade(conn, patient, asked))
    finally:
        patient.close()


def _upgrade(conn: Connection, db: Database, asked: bool) -> None:
    with _one_at_a_time, _migration_lock(conn, db):
        version = _read_version(conn, db) or ""
        in_use = version < SCHEMA_VERSION and not asked and _has_runs(conn, db)
        if in_use or version > SCHEMA_VERSION:
            raise SchemaMismatch(_mismatch(conn, db, version))
        if version != SCHEMA_VERSION:
            _migrate(conn, db)
        elif newer := _newer_protocol(conn, db):
            raise SchemaMismatch(newer)
        meta.write(conn, db, meta.PROTOCOL, str(PROTOCOL_VERSION))
        meta.write(conn, db, meta.PACKAGE, __version__)


def check(db: Database) -> list[str]:
    """What is wrong with the tables, one sentence each; an empty list if nothing is."""
    version = installed_version(db)
    if version is None:
        return [f"{db.redacted_url} has no tables yet; `scrapy resume db upgrade` creates them"]
    if version != SCHEMA_VERSION:
        return [db.look(lambda conn: _mismatch(conn, db, version))]
    return db.look(
        lambda conn: (
            [*_missing(conn, db), *_not_transactional(conn, db)]
            or list(filter(None, [_newer_protocol(conn, db)]))
        )
    )


def require_transactional(db: Database) -> None:
    """Raise ConfigurationError if one of the product's tables cannot undo a transaction."""
    for finding in db.look(lambda conn: _not_transactional(conn, db)):
        raise ConfigurationError(finding)


def _mismatch(conn: Connection, db: Database, version: str) -> str:
    found = f"the tables at {db.redacted_url} have schema {version}"
    if version < SCHEMA_VERSION:
        return f"{found}, older than {SCHEMA_VERSION}; run `scrapy resume db upgrade`"
    known = inspect(conn).has_table(db.tables.meta.name)
    package = meta.read(conn, db, meta.PACKAGE) if known else None
    needs = f"scrapy_resume {package} or newer" if package else "a newer scrapy_resume"
    return f"{found}, newer than {SCHEMA_VERSION}; this worker needs {needs}"


def _has_runs(conn: Connection, db: Database) -> bool:
    task = db.tables.task
    if not inspect(conn).has_table(task.name):
        return False
    return conn.execute(select(task.c.id).limit(1)).first() is not None


def _version_table(db: Database) -> str:
    return f"{db.prefix}alembic_version"


def _read_version(conn: Connection, db: Database) -> str | None:
    return _version(conn, db) if inspect(conn).has_table(_version_table(db)) else None


def _version(conn: Connection, db: Database) -> str | None:
    table = Table(_version_table(db), MetaData(), Column("version_num", String))
    return conn.execute(select(table.c.version_num)).scalar()


def _newer_protocol(conn: Connection, db: Database) -> str | None:
    """What refuses us, if the tables speak a protocol that we do not know."""
    spoken = meta.read(conn, db, meta.PROTOCOL)
    if spoken is None or int(spoken) <= PROTOCOL_VERSION:
        return None
    return (
        f"workers at {db.redacted_url} speak protocol {spoken}, newer than {PROTOCOL_VERSION};"
        f" this worker needs scrapy_resume {meta.read(conn, db, meta.PACKAGE)} or newer"
    )


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
        conn.exec_driver_sql("COMMIT")  # before others may look
    finally:
        with suppress(SQLAlchemyError):  # a connection that is lost has lost the lock
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
        return scripts._upgrade_revs(SCHEMA_VERSION, revision)

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
