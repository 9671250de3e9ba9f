"""What errors mean: to be repeated, of one row, or for good; and how they are worded."""

from __future__ import annotations

import sqlite3

import pymysql
import pytest
from sqlalchemy import exc as sa

from scrapy_resume.exceptions import InjectedFault, LeaseLost
from scrapy_resume.store.engine import error_kind
from scrapy_resume.store.errors import describe, refuses_us


def wrapped(error: Exception) -> sa.DBAPIError:
    return sa.OperationalError("SELECT 1", {"secret": "c4nary"}, error, hide_parameters=True)


@pytest.mark.parametrize(
    ("kind", "numbers"),
    [
        ("retry", [1205, 1213, 1020]),
        ("reconnect", [2006, 2013, 1290, 1792, 1836, 1040, 2003, 1053, 1927, 4031, 0]),
        ("row", [1406, 1366, 1264, 1048, 1364, 1452, 3819, 4025, 1292, 1265, 1062, 1690, 1153]),
        ("fatal", [1064, 1146, 1054, 1045, 1049, 1142, 1071, 9999]),
    ],
)
def test_kinds_by_number(kind: str, numbers: list[int]) -> None:
    for number in numbers:
        error = pymysql.err.OperationalError(number, "text")
        assert (number, error_kind(error)) == (number, kind)
        assert (number, error_kind(wrapped(error))) == (number, kind)


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("row", pymysql.err.ProgrammingError("nan can not be used with MySQL")),
        ("row", OverflowError("Python int too large to convert to SQLite INTEGER")),
        ("row", UnicodeEncodeError("utf-8", "\ud83d", 0, 1, "surrogates not allowed")),
        ("row", TypeError("dict can not be used as parameter")),
        ("row", sa.StatementError("m", "s", {}, ValueError("x"))),
        ("retry", sqlite3.OperationalError("database is locked")),
        ("fatal", sqlite3.OperationalError("no such table: x")),
        ("row", sqlite3.IntegrityError("NOT NULL constraint failed: x.y")),
        ("row", sqlite3.InterfaceError("Error binding parameter 0 - probably unsupported type.")),
        ("row", sqlite3.DataError("string or blob too big")),
        ("reconnect", sa.TimeoutError("QueuePool limit")),
        ("fatal", InjectedFault("x")),
        ("fatal", LeaseLost(1205, 1)),
        ("fatal", KeyError(1205)),
        ("fatal", RuntimeError(2013)),
    ],
)
def test_kinds_of_other_errors(kind: str, error: Exception) -> None:
    assert error_kind(error) == kind
    if isinstance(error, sqlite3.Error):
        assert error_kind(wrapped(error)) == kind


def test_real_errors_of_sqlite() -> None:
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT CHECK (b <> 'bad'))")
    for statement, values in (
        ("INSERT INTO t VALUES (1, ?)", ("bad",)),
        ("INSERT INTO t VALUES ('x', ?)", ("y",)),
        ("INSERT INTO t VALUES (1, ?)", (["list"],)),
        ("INSERT INTO t VALUES (1, ?)", (2**70,)),
        ("INSERT INTO t VALUES (1, ?)", ("\ud83d",)),
    ):
        kind = "stored"
        try:
            connection.execute(statement, values)
        except Exception as error:
            kind = error_kind(error)
        assert (values, kind) == (values, "row")


def test_who_refuses_us() -> None:
    assert refuses_us(wrapped(pymysql.err.OperationalError(1045, "Access denied")))
    assert refuses_us(wrapped(sqlite3.OperationalError("unable to open database file")))
    assert not refuses_us(wrapped(pymysql.err.OperationalError(2003, "no route")))
    assert not refuses_us(ValueError(1045))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Incorrect integer value: 'c4nary' for column `d`.`t`.`n` at row 1",
         "Incorrect integer value: '…' for column `d`.`t`.`n` at row 1"),
        ("Duplicate entry 'c4nary' for key 'PRIMARY'", "Duplicate entry '…' for key 'PRIMARY'"),
        ("Incorrect string value: '\\xF0\\x9F' for column 'a' at row 2",
         "Incorrect string value: '…' for column 'a' at row 2"),
        ("Data too long for column 'title' at row 1", "Data too long for column 'title' at row 1"),
        ("two\nlines", "two lines"),
    ],
)  # fmt: skip
def test_errors_are_one_short_line_without_values(text: str, said: str) -> None:
    assert describe(wrapped(pymysql.err.DataError(1366, text))) == said
    assert len(describe(pymysql.err.DataError(1366, "x" * 5000))) == 200
    assert describe(RuntimeError()) == "RuntimeError"
