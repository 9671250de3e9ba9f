"""What errors mean: to be repeated, of one row, or for good; and how they are worded."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterable

import pymysql
import pytest
from sqlalchemy import exc as sa

from scrapy_resume.exceptions import InjectedFault, LeaseLost, StoreUnavailable
from scrapy_resume.store import repeats
from scrapy_resume.store.errors import (
    cause,
    describe,
    error_kind,
    is_full,
    is_made_up,
    refuses_us,
)
from scrapy_resume.store.repeats import Repeats


def wrapped(error: Exception) -> sa.DBAPIError:
    return sa.OperationalError("SELECT 1", {"secret": "c4nary"}, error, hide_parameters=True)


@pytest.mark.parametrize(
    ("kind", "numbers"),
    [
        ("retry", [1205, 1213, 1020, 1317, 1412, 1637, 1969, 3024, 3101]),
        ("reconnect", [2006, 2013, 1290, 1792, 1836, 1040, 2003, 1053, 1927, 4031, 0]),
        ("reconnect", [1135, 1203, 1226, 1156, 1157, 1159, 1161]),
        ("row", [1406, 1366, 1264, 1048, 1364, 1452, 3819, 4025, 1292, 1265, 1062, 1690, 1153]),
        ("row", [1526, 1216, 1643, 1748, 3037, 1271]),
        ("fatal", [1064, 1146, 1054, 1045, 1049, 1142, 1071, 9999]),
    ],
)
def test_kinds_by_number(kind: str, numbers: list[int]) -> None:
    for number in numbers:
        error = pymysql.err.OperationalError(number, "text")
        assert (number, error_kind(error)) == (number, kind)
        assert (number, error_kind(wrapped(error))) == (number, kind)


@pytest.mark.parametrize("number", [9999, 32000, 45000 - 65536, 1644, 1146, 9001])
def test_numbers_that_only_a_trigger_gives(number: int) -> None:
    error = wrapped(pymysql.err.OperationalError(number, "text"))
    assert is_made_up(error) is (number not in (1644, 1146, 9001))
    assert not is_made_up(ValueError(number))


@pytest.mark.parametrize(
    ("expected", "numbers"),
    [
        ("deadlocks", [1213, 1020, 3101]),
        ("lock_waits", [1205, 1317, 1412, 1969]),
        ("reconnects", [2006, 1290, 1040, 0]),
    ],
)
def test_causes_by_number(expected: str, numbers: list[int]) -> None:
    for number in numbers:
        assert (number, cause(pymysql.err.OperationalError(number, "x"))) == (number, expected)


def consume(steps: Iterable[None]) -> None:
    for _ in steps:
        pass


@pytest.mark.parametrize("number", [1040, 1213, 2006])
def test_what_may_be_tried_once_is_not_repeated(number: int) -> None:
    error = wrapped(pymysql.err.OperationalError(number, "no"))
    with pytest.raises(StoreUnavailable) as caught:
        Repeats("mysql://h/d", 1, lambda: math.inf).after(error)
    assert caught.value.__cause__ is error
    assert sum(caught.value.repeats.values()) == 1


def test_a_full_server_is_waited_for_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    now, waits = [0.0], list[float]()
    monkeypatch.setattr("scrapy_resume.clock.monotonic", lambda: now[0])

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        now[0] += seconds

    monkeypatch.setattr(repeats.time, "sleep", sleep)
    tried = Repeats("mysql://h/d", 8, lambda: math.inf)
    full = wrapped(pymysql.err.OperationalError(1040, "Too many connections"))
    with pytest.raises(StoreUnavailable):
        consume(tried.after(full) for _ in range(1000))
    assert repeats.FULL_FOR < now[0] < repeats.FULL_FOR + repeats.LONGEST_WAIT
    assert max(waits) <= repeats.LONGEST_WAIT
    assert waits[0] <= 0.1  # they grow


def test_a_busy_file_counts_as_a_lock_wait() -> None:
    assert cause(wrapped(sqlite3.OperationalError("database is locked"))) == "lock_waits"


@pytest.mark.parametrize(
    ("number", "full"), [(1040, True), (1203, True), (1226, True), (2006, False)]
)
def test_a_full_server(number: int, full: bool) -> None:
    assert is_full(wrapped(pymysql.err.OperationalError(number, "x"))) is full


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
