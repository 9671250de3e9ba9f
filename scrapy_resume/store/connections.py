"""How a new connection is prepared, checked and given up, by dialect.

Every session speaks UTC, utf8mb4 and strict mode whatever the server's defaults.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from sqlalchemy import event
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import InvalidatePoolError

from scrapy_resume import clock
from scrapy_resume.store.address import BUSY_TIMEOUT
from scrapy_resume.store.errors import error_kind, error_number

LOCK_WAIT_TIMEOUT = 5  # seconds MySQL waits for a row lock
IDLE_CHECK = 2.0  # seconds unused after which a connection is pinged before its next use
STATEMENT_BYTES = 1_000_000  # of one statement at most
# And 0 is an id like any other: the server would count up in its place, a new row each time.
_STRICT = (
    "STRICT_TRANS_TABLES,STRICT_ALL_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE,"
    "ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION,NO_AUTO_VALUE_ON_ZERO"
)


def listen(engine: Engine, packet_size: Callable[[int], None]) -> None:
    """Have *engine* prepare its connections; *packet_size* is told max_allowed_packet (bytes)."""
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
        return

    def prepare(dbapi_connection: Any, record: Any) -> None:
        packet_size(_prepare_mysql(dbapi_connection))

    event.listen(engine, "begin", _begin_mysql)
    event.listen(engine, "do_connect", _connect_mysql)
    event.listen(engine, "connect", prepare)
    event.listen(engine, "checkin", _note_use)
    event.listen(engine, "checkout", _ping_if_idle)
    event.listen(engine, "handle_error", _discard)


def _prepare_sqlite(dbapi_connection: Any, record: Any) -> None:
    cursor = dbapi_connection.cursor()
    try:
        _switch_to_wal(cursor)
        cursor.execute("PRAGMA synchronous=FULL")
        cursor.execute("PRAGMA foreign_keys=ON")
    finally:
        cursor.close()


def _switch_to_wal(cursor: Any) -> None:
    # The switch itself does not honour the busy timeout when two processes do it at once.
    deadline = clock.monotonic() + BUSY_TIMEOUT
    while True:
        try:
            cursor.execute("PRAGMA journal_mode=WAL")
            return
        except Exception as exc:
            if error_kind(exc) != "retry" or clock.monotonic() > deadline:
                raise
            time.sleep(0.02)


def _begin_sqlite(conn: Connection) -> None:
    conn.exec_driver_sql(conn.get_execution_options().get("resume_begin", "BEGIN IMMEDIATE"))


def _begin_mysql(conn: Connection) -> None:
    if conn.get_execution_options().get("resume_begin") == "BEGIN":  # reads see one moment
        conn.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")


def _connect_mysql(dialect: Any, record: Any, args: Any, params: dict[str, Any]) -> Any:
    try:
        return _open(dialect, args, params)
    except Exception as exc:
        # The server wants TLS, or its login method does while it has not seen us yet.
        if not params.get("ssl_disabled") or not (
            error_number(exc) == 3159 or "cryptography" in str(exc)
        ):
            raise
        return _open(dialect, args, {**params, "ssl_disabled": False})


def _open(dialect: Any, args: Any, params: dict[str, Any]) -> Any:
    # The driver waits for the greeting of a frozen server as long as for any other answer.
    timeout = params["read_timeout"]
    greeting = {**params, "read_timeout": min(timeout, params["connect_timeout"])}
    connection = dialect.connect(*args, **greeting)
    connection._read_timeout = timeout
    return connection


def _prepare_mysql(dbapi_connection: Any) -> int:
    from scrapy_resume.store import cursors  # loads the driver, which SQLite does without

    cursor = dbapi_connection.cursor()
    try:
        cursor.execute("SELECT @@max_allowed_packet, VERSION()")
        packet, version = cursor.fetchone()
        dbapi_connection.cursorclass = cursors.sized(min(STATEMENT_BYTES, packet // 2))
        # A process frozen inside a transaction must not keep its row locks for ever. MySQL knows
        # no limit of its own for that; there wait_timeout ends it.
        idle = ", idle_transaction_timeout=15" if "mariadb" in version.lower() else ""
        cursor.execute(
            f"SET SESSION time_zone='+00:00', sql_mode='{_STRICT}',"
            f" innodb_lock_wait_timeout={LOCK_WAIT_TIMEOUT}, wait_timeout=60{idle}"
        )
        cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
        return int(packet)
    finally:
        cursor.close()


def _note_use(dbapi_connection: Any, record: Any) -> None:
    record.info["resume_used"] = clock.monotonic()


def _ping_if_idle(dbapi_connection: Any, record: Any, proxy: Any) -> None:
    used = record.info.get("resume_used")
    if used is None or clock.monotonic() - used < IDLE_CHECK:
        return
    try:
        dbapi_connection.ping(reconnect=False)
    except Exception as exc:
        # What closed this one has probably closed the others too, or moved the server.
        raise InvalidatePoolError from exc


def _discard(context: Any) -> None:
    # SQLAlchemy then closes the other connections of the pool before their next use as well:
    # after a failover they lead to the former server too.
    if error_kind(context.original_exception) == "reconnect":
        context.is_disconnect = True
