"""What a database error means for the transaction it struck.

Drivers tell deadlocks, lost servers and refused values apart only by number. This is the
place that knows the numbers, of MySQL, MariaDB and SQLite alike; which words a refused row
gets is the business of :mod:`~scrapy_resume.store.items.rowerrors`.
"""

from __future__ import annotations

import re
import sqlite3
from typing import Literal

from sqlalchemy import exc as sa

Kind = Literal["retry", "reconnect", "row", "fatal"]

Cause = Literal["deadlocks", "lock_waits", "reconnects"]

# The transaction is repeated: lock wait timeout, deadlock, record changed since last read, a
# group that rolled it back, a statement that someone killed or that ran into a time limit,
# a table that was altered meanwhile.
_RETRY = frozenset({1205, 1213, 1020, 1317, 1412, 1637, 1969, 3024, 3101})
_LOCK_WAITS = frozenset({1205, 1317, 1412, 1637, 1969, 3024})
# The server has no connection, or no thread, left for us.
_FULL = frozenset({1040, 1135, 1203, 1226})
# The connection is dropped first: none left, server away or going away, broken packets,
# killed or timed out sessions, a server that became read-only, a Galera node not ready.
_RECONNECT = _FULL | frozenset(
    {0, 1047, 1053, 1077, 1079, 1080, 1129, 1152, *range(1154, 1162), 1184}
    | {1290, 1792, 1836, 1927, 2002, 2003, 2004, 2006, 2012, 2013, 2014, 2027, 2055, 3169, 4031}
)
# One row is at fault: too long, wrong character, out of range, not null, no default,
# foreign key, CHECK, unique, a key that its character set lacks, impossible date, bad JSON or
# shape, no partition for it, what a trigger or a generated column makes of it, no id left.
_ROW = frozenset(
    {
        167, 1022, 1048, 1062, 1118, 1138, 1153, 1169, 1172, 1216, 1217, 1242, 1263, 1264, 1265,
        1267, 1271, 1291, 1292, 1300, 1364, 1365, 1366, 1367, 1406, 1411, 1416, 1451, 1452, 1467,
        1526, 1557, 1586, 1643, 1644, 1690, 1748, 1761, 1762, 1859, 3037, 3140, 3141, 3144, 3146,
        3147, 3150, 3156, 3157, 3548, 3616, 3617, 3643, 3751, 3752, 3819, 3854, 3903, 3904, 3907,
        3988, 4025, 4038, 4078,
    }
)  # fmt: skip
_OF_SERVERS, _OF_PROXIES = range(5000), range(8000, 9100)  # which say so when a server is away
_REFUSED = frozenset({1044, 1045, 1049, 1130, 1142, 1143, 1227, 1251, 1275, 1698, 2061, 3118, 3159})
_SQLITE_REFUSED = frozenset({8, 14, 26})  # READONLY, CANTOPEN, NOTADB
_SQLITE_REFUSAL = re.compile("readonly database|unable to open|not a database")
_SQLITE_BUSY = frozenset({5, 6})  # SQLITE_BUSY, SQLITE_LOCKED
_SQLITE_ROW = frozenset({18, 19, 20, 25})  # TOOBIG, CONSTRAINT, MISMATCH, RANGE

_QUOTED_VALUE = re.compile(r"(?i)(\bvalue:?|\bentry|\bvalue is) '.*?'(?= for |\Z)", re.DOTALL)


def error_kind(exc: BaseException) -> Kind:
    """Class *exc*: repeat the transaction, repeat it on a new connection, blame a row, give up."""
    if isinstance(exc, sa.DBAPIError):
        if isinstance(exc.orig, sqlite3.Error):
            return _sqlite_kind(exc.orig)
        return "reconnect" if exc.connection_invalidated else _number_kind(exc.orig)
    if isinstance(exc, sa.TimeoutError):  # no connection of the pool came free
        return "reconnect"
    if isinstance(exc, sa.StatementError):  # a value that the driver cannot even send
        return "row"
    if isinstance(exc, (OverflowError, UnicodeError, TypeError, ValueError)):
        return "row"
    if isinstance(exc, sqlite3.Error):
        return _sqlite_kind(exc)
    return _number_kind(exc)


def cause(exc: BaseException) -> Cause:
    """What made a transaction fail that is worth repeating."""
    if error_kind(exc) == "reconnect":
        return "reconnects"
    number = error_number(exc)
    return "lock_waits" if number is None or number in _LOCK_WAITS else "deadlocks"


def is_full(exc: BaseException) -> bool:
    """Has the server no connection left for us? It will, when others are done."""
    return error_number(exc) in _FULL


def error_number(exc: BaseException | None) -> int | None:
    """The server's error number, if *exc* is or wraps a MySQL error."""
    exc = exc.orig if isinstance(exc, sa.DBAPIError) else exc
    if exc is None or not type(exc).__module__.startswith("pymysql"):
        return None
    number = exc.args[0] if exc.args else None
    return number if isinstance(number, int) and not isinstance(number, bool) else None


def is_made_up(exc: BaseException) -> bool:
    """Has the error a number that only a trigger can have given it (MYSQL_ERRNO)?"""
    number = error_number(exc)
    return not (number is None or number in _OF_SERVERS or number in _OF_PROXIES)


def refuses_us(exc: BaseException) -> bool:
    """Does the database say no: wrong password, no such database, no right, not a database?"""
    orig = exc.orig if isinstance(exc, sa.DBAPIError) else exc
    if isinstance(orig, sqlite3.Error):
        code = getattr(orig, "sqlite_errorcode", None)
        known = code is not None and code & 0xFF in _SQLITE_REFUSED
        return known or bool(_SQLITE_REFUSAL.search(str(orig)))
    return error_number(exc) in _REFUSED


def describe(exc: BaseException, limit: int = 200) -> str:
    """*exc* as one short line without parameters, and without the value a row was refused for."""
    orig = getattr(exc, "orig", None) or exc
    if isinstance(orig, UnicodeError):  # its arguments are the whole statement
        return "a text holds half of a surrogate pair, which is no character"
    parts = [str(part) for part in orig.args if not isinstance(part, int)] or [str(orig)]
    text = _QUOTED_VALUE.sub(r"\1 '…'", " ".join(" ".join(parts).split()))
    return text[:limit] or type(orig).__name__


def _number_kind(exc: BaseException | None) -> Kind:
    number = error_number(exc)
    if number in _RETRY:
        return "retry"
    if number in _RECONNECT:
        return "reconnect"
    if number in _ROW:
        return "row"
    # PyMySQL refuses NaN and dicts by itself, with a text instead of a number.
    itself = type(exc).__module__.startswith("pymysql") and number is None
    return "row" if itself and type(exc).__name__ == "ProgrammingError" else "fatal"


def _sqlite_kind(exc: sqlite3.Error) -> Kind:
    code = getattr(exc, "sqlite_errorcode", None)  # Python 3.11 on
    if code is not None and code & 0xFF in _SQLITE_BUSY:
        return "retry"
    if code is not None and code & 0xFF in _SQLITE_ROW:
        return "row"
    text = str(exc)
    if isinstance(exc, sqlite3.OperationalError):
        return "retry" if "locked" in text or "busy" in text else "fatal"
    binding = "binding" in text.lower()  # a type SQLite cannot bind
    if isinstance(exc, (sqlite3.IntegrityError, sqlite3.DataError)) or binding:
        return "row"
    return "fatal"
