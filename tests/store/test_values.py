"""One value rule for every database: tests/store/valuetable.py on each of them."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scrapy_resume.store.engine import Database
from scrapy_resume.store.items import catalog
from scrapy_resume.store.items.columnrules import Unfit, column_rule
from scrapy_resume.store.items.plaincolumns import glance
from scrapy_resume.store.items.tablefacts import ColumnFacts
from tests.services import MariaDB
from tests.store.valuetable import EVERYWHERE, MYSQL_ONLY, SQLITE_ONLY, Case, Refused


@pytest.fixture(scope="module")
def both_dbs(
    mariadb: MariaDB, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Database, Database]]:
    """A database of each kind for all the tests of this file, SQLite first."""
    mariadb.execute("CREATE DATABASE resume_values CHARACTER SET utf8mb4")
    file = tmp_path_factory.mktemp("values") / "values.db"
    databases = (
        Database.connect(f"sqlite:///{file}"),
        Database.connect(mariadb.url("resume_values")),
    )
    yield databases
    for database in databases:
        database.close()
    mariadb.execute("DROP DATABASE resume_values")


@pytest.fixture(params=["sqlite", "mariadb"])
def values_db(request: pytest.FixtureRequest, both_dbs: tuple[Database, Database]) -> Database:
    """Each of them in turn."""
    return both_dbs[request.param == "mariadb"]


def _by_type(cases: list[Case]) -> dict[str, list[Case]]:
    grouped = itertools.groupby(
        sorted(cases, key=lambda case: case.declared), lambda case: case.declared
    )
    return {declared: list(group) for declared, group in grouped}


_EVERYWHERE = _by_type(EVERYWHERE)
_OF = {"mysql": _by_type(MYSQL_ONLY), "sqlite": _by_type(SQLITE_ONLY)}


class Column:
    """A table with one column of a type, filled by its rule."""

    def __init__(self, db: Database, declared: str) -> None:
        self.db = db
        self.coerced: list[str] = []
        with db.transaction() as conn:
            conn.exec_driver_sql("DROP TABLE IF EXISTS v")
            conn.exec_driver_sql(f"CREATE TABLE v (k INT NOT NULL PRIMARY KEY, v {declared})")
        with db.read() as conn:
            facts = catalog.look(conn, db, "v")
        assert facts is not None
        self.facts = facts.columns["v"]
        self.rule = column_rule(self.facts, db.dialect, lambda _, why: self.coerced.append(why))

    def outcome(self, value: Any) -> tuple[Any, bool]:
        """What the rule makes of *value*, a Refused or what is sent, and whether it says so."""
        self.coerced.clear()
        try:
            return self.rule(value), bool(self.coerced)
        except Unfit as error:
            return Refused(error.reason), bool(self.coerced)

    def store(self, sent: list[Any]) -> list[Any]:
        """Send values as the writer does, in one statement, without a warning; read them back."""
        if not sent:
            return []
        mark = "?" if self.db.dialect == "sqlite" else "%s"
        with self.db.transaction() as conn:
            conn.exec_driver_sql("DELETE FROM v")
            conn.exec_driver_sql(f"INSERT INTO v VALUES ({mark}, {mark})", list(enumerate(sent)))
            if self.db.dialect == "mysql":
                assert conn.exec_driver_sql("SHOW WARNINGS").all() == []
        dated = self.facts.type.lower().startswith(("date", "time"))
        shown = "CAST(v AS CHAR)" if dated and self.db.dialect == "mysql" else "v"
        with self.db.read() as conn:
            return list(conn.exec_driver_sql(f"SELECT {shown} FROM v ORDER BY k").scalars())


def _alike(declared: str, one: Any, other: Any) -> bool:
    if declared == "JSON":  # SQLite has a number where MySQL has its text
        return str(one) == str(other)
    if declared == "FLOAT" and one is not None:  # of 32 bits, and of 6 digits when it is read
        return math.isclose(one, other, rel_tol=1e-5, abs_tol=1e-45)
    return _same(other, one)


def _same(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, (bool, int, float, Decimal)) and not isinstance(found, str):
        found = int.from_bytes(found, "big") if isinstance(found, bytes) else found
        if isinstance(found, float) or isinstance(wanted, float):
            return float(found) == float(wanted)
        return bool(Decimal(found) == Decimal(wanted))
    return type(found) is type(wanted) and bool(found == wanted)


def _check(db: Database, declared: str, cases: list[Case]) -> None:
    column = Column(db, declared)
    sent, kept = [], []
    for case in cases:
        outcome, coerced = column.outcome(case.value)
        shown = f"{declared}: {str(case.value)[:60] if not isinstance(case.value, int) else ''}"
        if isinstance(case.stored, Refused):
            assert isinstance(outcome, Refused), f"{shown} is not refused"
            assert case.stored in outcome, shown
            assert not coerced
        else:
            assert not isinstance(outcome, Refused), f"{shown} is refused: {outcome}"
            assert coerced is case.coerced, shown
            sent.append(outcome)
            kept.append(case)
    for case, found in zip(kept, column.store(sent), strict=True):
        assert _same(found, case.stored), f"{declared}: {case.value!r} became {found!r}"[:200]


@pytest.mark.parametrize("declared", sorted(_EVERYWHERE))
def test_val_2_4_5_each_database_stores_the_same_or_refuses(
    values_db: Database, declared: str
) -> None:
    _check(values_db, declared, _EVERYWHERE[declared])


def test_types_that_one_database_has_alone(values_db: Database) -> None:
    for declared, cases in _OF[values_db.dialect].items():
        _check(values_db, declared, cases)


@pytest.mark.parametrize("declared", sorted(_EVERYWHERE))
@pytest.mark.parametrize("dialect", ["sqlite", "mysql"])
def test_none_is_null_only_where_the_column_may_be(declared: str, dialect: str) -> None:
    assert column_rule(ColumnFacts("v", declared), dialect)(None) is None
    with pytest.raises(Unfit, match="column v: it may not be NULL"):
        column_rule(ColumnFacts("v", declared, nullable=False), dialect)(None)


def test_a_generated_column_takes_nothing() -> None:
    with pytest.raises(Unfit, match="the database makes its value") as caught:
        column_rule(ColumnFacts("total", "INT", generated=True), "mysql")(5)
    assert caught.value.column == "total"


def test_a_set_is_sent_in_the_order_of_its_declaration() -> None:
    rule = column_rule(ColumnFacts("v", "set('e','d','c','b','a','f')"), "mysql")
    assert rule("a,b,c,d,e,f") == "e,d,c,b,a,f"


_TEXTS = st.one_of(
    st.text(max_size=12),
    st.from_regex(r"[+-]?[0-9]{1,20}(\.[0-9]{0,8})?([eE][+-]?[0-9]{1,3})?", fullmatch=True),
    st.from_regex(
        r"[0-2]\d{3}-[01]\d-\d\d([T ][0-2]\d:\d\d(:\d\d(\.\d{1,9})?)?Z?)?", fullmatch=True
    ),
    st.from_regex(r"-?\d{1,3}:\d\d(:\d\d)?([+-]\d\d:\d\d)?", fullmatch=True),
    st.recursive(st.none() | st.integers() | st.text(max_size=3), st.lists, max_leaves=5).map(
        json.dumps
    ),
)
_ANYTHING = st.one_of(
    _TEXTS, st.integers(), st.integers(-300, 300), st.floats(), st.floats(-1000, 1000), st.none(),
    st.decimals(), st.decimals(-1000, 1000, places=3), st.binary(max_size=5), st.dates(),
    st.times(), st.datetimes(timezones=st.none() | st.timezones()), st.timedeltas(), st.booleans(),
)  # fmt: skip


@pytest.mark.parametrize("declared", sorted(_EVERYWHERE))
def test_whatever_a_rule_lets_through_is_stored_alike(
    declared: str, both_dbs: tuple[Database, Database]
) -> None:
    sqlite, mariadb = (Column(db, declared) for db in both_dbs)

    @settings(max_examples=6, deadline=None, database=None, derandomize=True)
    @given(st.lists(_ANYTHING, min_size=80, max_size=80))
    def stored_alike(values: list[Any]) -> None:
        sent: list[tuple[Any, Any]] = []
        for value in values:
            one, other = sqlite.outcome(value), mariadb.outcome(value)
            if isinstance(one[0], Refused) and "SQLite" in one[0]:
                continue  # it has 15 digits and less integers, and says so
            assert isinstance(one[0], Refused) is isinstance(other[0], Refused), value
            assert one[1] is other[1], value
            if not isinstance(one[0], Refused):
                sent.append((one[0], other[0]))
        stored = sqlite.store([one for one, _ in sent]), mariadb.store([two for _, two in sent])
        for one, other, (given_, _) in zip(*stored, sent, strict=True):
            assert _alike(declared, one, other), f"{given_!r}: {one!r} and {other!r}"

    stored_alike()


_BOUNDS = [2**7, 2**15, 2**31, 2**63, 2**64, 3.402823466e38, 1e39, 1.7976931348623157e308]
_EDGES: list[Any] = [
    *(sign * (bound + step) for bound in _BOUNDS for sign in (1, -1) for step in (0, -1, 1)),
    *(0, 0.5, -0.0, math.nan, math.inf, -math.inf, True, None, b"a", Decimal(1)),
    *("", "a", "abc", "abcdef", "ab ", "é ", "12", "x" * 255, "x" * 256, "é" * 128, "é" * 127),
    *("\ud83d", "\ude0e", "x\0", "😎", "é" * 40000, date(2024, 1, 1)),
]
_GLANCED = [
    *(ColumnFacts("v", declared) for declared in (*_EVERYWHERE, "TEXT", "INTEGER", "REAL")),
    ColumnFacts("v", "TINYTEXT", charset="utf8mb3"),
    ColumnFacts("v", "TEXT", charset="latin1"),
    ColumnFacts("v", "VARCHAR(9)", charset="ascii"),
    ColumnFacts("v", "INT", nullable=False),
    ColumnFacts("v", "INT", generated=True),
]


@pytest.mark.parametrize("dialect", ["sqlite", "mysql"])
@pytest.mark.parametrize("facts", _GLANCED, ids=lambda facts: f"{facts.type} {facts.charset}")
def test_what_a_glance_lets_through_its_rule_would_not_change(
    facts: ColumnFacts, dialect: str
) -> None:
    look, rule = glance(facts, dialect), column_rule(facts, dialect)
    if look is None:
        return
    for pair in itertools.product(_EDGES, repeat=2):
        if look(pair):
            assert all(rule(value) is value for value in pair)
