"""What is logged of refused rows."""

from __future__ import annotations

import logging

import pytest

from scrapy_resume.refusallog import RefusalLog
from scrapy_resume.store.quarantine import QuarantineRecord


def record(error_class: str, error: str, kind: str = "row", column: str = "c") -> QuarantineRecord:
    return QuarantineRecord(
        1, 1, 1, 1, kind, None, "k", error_class, error, item_table="t", column_name=column
    )


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    assert {one.levelno for one in caplog.records} <= {logging.WARNING}
    return [one.getMessage() for one in caplog.records]


def test_each_kind_is_said_once_and_counted_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    log = RefusalLog()
    for n in range(1000):
        log.rows([record("Unfit", f"it has {n} characters"), record("Unfit", "", kind="item")])
    log.rows([record("NoValue", "none")])
    first = [
        "table t, column c: rows are refused: Unfit: it has 0 characters; said once",
        "table t, column c: rows are refused: NoValue: none; said once",
    ]
    assert said(caplog) == first
    log.close()
    log.close()
    assert said(caplog) == [*first, "table t, column c: 1000 rows were refused: Unfit"]


def test_the_text_of_a_trigger_may_hold_a_value(caplog: pytest.LogCaptureFixture) -> None:
    RefusalLog().rows([record("Trigger", "no s3cret allowed")])
    assert said(caplog) == ["table t, column c: rows are refused: Trigger; said once"]


def test_any_number_of_unknown_fields_is_no_flood(caplog: pytest.LogCaptureFixture) -> None:
    log = RefusalLog()
    for n in range(500):
        log.rows([record("UnknownField", "there is no such column", column=f"f{n}")])
    assert len(said(caplog)) == 51
    assert said(caplog)[-1] == "further tables and columns: rows are refused; said once"
    log.close()
    assert said(caplog)[-1] == "further tables and columns: 450 rows were refused"
