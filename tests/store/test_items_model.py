"""Random pages of random items against a model that stores them one by one in a dict.

Whatever the order, the repetitions, the grouping into transactions and the size of a
statement are: the tables of SQLite and MariaDB hold what the model holds, and the same
items are refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, event, given, settings
from hypothesis import strategies as st

from scrapy_resume.itemrows import ItemRows
from scrapy_resume.store import migrate
from scrapy_resume.store.engine import Database
from scrapy_resume.store.items import ItemTable, ItemWriter
from tests.acceptance.shelf import EXACT
from tests.services import MariaDB

TABLE = """\
CREATE TABLE {name} (
    a INT NOT NULL, b VARCHAR(3) {collation} NOT NULL, title VARCHAR(5) {exact},
    price INT CHECK (price >= 0), seen DATETIME(6), note VARCHAR(5) {exact} DEFAULT 'd',
    must INT NOT NULL {must}, PRIMARY KEY ({key}){more}
)
"""
DEFAULT = "DEFAULT 3"
TABLES = {
    "narrow": ("a", DEFAULT, ""),
    "wide": ("a, b", "", ""),
    "half": ("a, b", DEFAULT, ""),
    "twofold": ("a", DEFAULT, ", UNIQUE (b)"),
    "loose": ("b", DEFAULT, ""),
}
"""The columns of the key, whether an item needs ``must``, and a second unique index.

In the loose table ``x`` and ``X`` are one key; which of them a row has is as it was stored first.
"""
LOOSE = {"sqlite": "COLLATE NOCASE", "mysql": "COLLATE utf8mb4_general_nopad_ci"}

BAD = object()
ZONE = timezone(timedelta(hours=2))

# What an item may say in each column, and what the column then holds.
COLUMNS: dict[str, list[tuple[Any, Any]]] = {
    "a": [(1, 1), (2, 2), (3, 3), ("2", 2), (2**40, BAD), ("x", BAD), (None, BAD)],
    "b": [("x", "x"), ("X", "X"), ("y", "y"), ("y ", "y "), ("long", BAD), (None, BAD)],
    "title": [("t", "t"), ("üüüüü", "üüüüü"), ("too long", BAD), (["a"], '["a"]'), (None, None),
              ("\ud83d", BAD)],
    "price": [(0, 0), (7, 7), ("8", 8), (True, 1), (None, None), (2**40, BAD), ("dear", BAD),
              (float("nan"), BAD), (-1, BAD)],
    "seen": [
        (datetime(2024, 1, 1), "2024-01-01 00:00:00.000000"),
        ("2024-01-01T02:00:00.5+02:00", "2024-01-01 00:00:00.500000"),
        (datetime(2024, 1, 1, 3, tzinfo=ZONE), "2024-01-01 01:00:00.000000"),
        ("2024-01-02", "2024-01-02 00:00:00.000000"), ("2024-02-30", BAD), (None, None),
    ],
    "note": [("n", "n"), ("m", "m"), (None, None), ("too long", BAD)],
    "must": [(1, 1), (2, 2), (None, BAD)],
}  # fmt: skip
GOOD = {name: [pair for pair in pairs if pair[1] is not BAD] for name, pairs in COLUMNS.items()}
WRONG = {name: [pair for pair in pairs if pair[1] is BAD] for name, pairs in COLUMNS.items()}
ALWAYS = ("a", "b", "must")  # almost always present


@dataclass(frozen=True)
class Case:
    """How a table is declared."""

    table: str
    update: Any
    newer_by: str | None

    @property
    def key(self) -> tuple[str, ...]:
        return tuple(TABLES[self.table][0].split(", "))

    @property
    def declared(self) -> ItemTable:
        return ItemTable(self.table, self.key, update=self.update, newer_by=self.newer_by)


def identity(case: Case, values: dict[str, Any]) -> tuple[Any, ...]:
    """What tells the row of *values* from the others."""
    key = [values[name] for name in case.key]
    return tuple(part.lower() for part in key) if case.table == "loose" else tuple(key)


@dataclass
class Model:
    """What the table must hold after items were stored one by one."""

    case: Case
    rows: dict[tuple[Any, ...], dict[str, Any]] = field(default_factory=dict)

    def store(self, values: dict[str, Any]) -> tuple[Any, ...] | None:
        """Store an item given by what its columns hold; returns its key, None if refused."""
        case = self.case
        needed = {"a", "b"} if case.table != "wide" else {"a", "b", "must"}
        if not needed <= values.keys() or BAD in values.values():
            return None
        key = identity(case, values)
        row = self.rows.get(key)
        if row is None:
            after = {"title": None, "price": None, "seen": None, "note": "d", "must": 3, **values}
        elif self._is_new(row, values):
            after = row | {name: values[name] for name in self._updated(values)}
        else:
            return key
        if case.table == "twofold" and any(
            other["b"] == after["b"] for at, other in self.rows.items() if at != key
        ):
            return None
        self.rows[key] = after
        return key

    def _is_new(self, row: dict[str, Any], values: dict[str, Any]) -> bool:
        guard = self.case.newer_by
        if guard is None or row[guard] is None:
            return True
        stamp = values.get(guard)  # one that has none cannot show that it is newer
        return stamp is not None and bool(stamp >= row[guard])

    def _updated(self, values: dict[str, Any]) -> set[str]:
        update = self.case.update
        if update == "all":
            return values.keys() - {*self.case.key}
        listed = () if update is None else {*update, self.case.newer_by}  # the guard goes along
        return set(listed) & values.keys() - {*self.case.key}


CASES = st.builds(
    Case,
    st.sampled_from(list(TABLES)),
    st.sampled_from(["all", "all", None, ("price",), ("title", "seen", "b")]),
    st.sampled_from([None, "seen"]),
)


Item = dict[str, tuple[Any, Any]]
"""For each field of an item what it says, and what its column would hold."""

TEMPLATES = st.sets(st.sampled_from(sorted({*COLUMNS} - {*ALWAYS})), min_size=1).map(sorted)
"""Which fields items have besides the usual ones: a few sets of them for all items."""


@st.composite
def pages(draw: st.DrawFn) -> list[list[Item]]:
    """The items of a few pages."""
    templates = draw(st.lists(TEMPLATES, min_size=1, max_size=3))
    sizes = draw(st.lists(st.integers(2, 6), min_size=1, max_size=4))
    return [[draw(items(templates)) for _ in range(size)] for size in sizes]


@st.composite
def items(draw: st.DrawFn, templates: list[list[str]]) -> Item:
    names = [*ALWAYS, *draw(st.sampled_from(templates))]
    what = draw(
        st.sampled_from(["fine", "fine", "fine", "fine", "bad", "bad", "refused", "missing"])
    )
    if what == "missing":
        names.remove(draw(st.sampled_from(ALWAYS)))
    bad = draw(st.sampled_from(names)) if what == "bad" else None
    if what == "refused" and "price" in names:  # only the database knows
        return {name: draw(st.sampled_from(GOOD[name])) for name in names} | {"price": (-1, BAD)}
    return {
        name: draw(st.sampled_from(WRONG[name] if name == bad else GOOD[name]))
        for name in draw(st.permutations(names))
    }


@pytest.fixture(scope="module")
def databases(
    tmp_path_factory: pytest.TempPathFactory, mariadb: MariaDB
) -> Iterator[list[Database]]:
    """One of each kind, with the product's tables."""
    mariadb.execute("CREATE DATABASE items_model")
    file = tmp_path_factory.mktemp("model") / "resume.db"
    made = [
        Database.connect(url) for url in (f"sqlite:///{file}", mariadb.url("items_model"))
    ]  # fmt: skip
    for db in made:
        migrate.ensure_schema(db)
        with db.transaction() as conn:
            exact = "" if db.dialect == "sqlite" else EXACT
            for name, (key, must, more) in TABLES.items():
                collation = LOOSE[db.dialect] if name == "loose" else exact
                conn.exec_driver_sql(
                    TABLE.format(
                        name=name, exact=exact, collation=collation, key=key, must=must, more=more
                    )
                )
    yield made
    for db in made:
        db.close()
    mariadb.execute("DROP DATABASE items_model")


def empty(db: Database, case: Case) -> None:
    with db.transaction() as conn:
        conn.exec_driver_sql(f"DELETE FROM {case.table}")


def stored(db: Database, case: Case) -> dict[tuple[Any, ...], dict[str, Any]]:
    with db.read() as conn:
        rows = [dict(row._mapping) for row in conn.exec_driver_sql(f"SELECT * FROM {case.table}")]
    for row in rows:
        if isinstance(row["seen"], datetime):
            row["seen"] = row["seen"].isoformat(" ", "microseconds")
    return {identity(case, row): row for row in rows}


def write(
    db: Database, case: Case, batches: list[list[dict[str, Any]]]
) -> tuple[list[int], list[int]]:
    """Write items batch by batch; the places of the refused ones, and the counts of keys."""
    rows = ItemRows(SimpleNamespace(name="model", item_table=case.declared))
    writer = ItemWriter(db, [case.declared])
    refused, counts, place = [], [], 0
    for batch in batches:
        places, made = [], []
        for item in batch:
            try:
                made.append(rows.row(item))
                places.append(place)
            except (TypeError, ValueError):
                refused.append(place)
            place += 1
        written = db.run(lambda conn, m=made: writer.write(conn, m, now=db.now(conn)))
        counts.append(written.keys)
        refused += [places[one.index] for one in written.rejected]
    return sorted(refused), counts


@settings(
    max_examples=120, deadline=None, database=None, phases=[Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
@given(
    case=CASES,
    pages=pages(),
    pages_per_commit=st.integers(1, 3),
    statement_bytes=st.sampled_from([1, 12, 1_000_000, 1_000_000]),
)
def test_tables_and_rejects_equal_the_model(
    databases: list[Database],
    case: Case,
    pages: list[list[Item]],
    pages_per_commit: int,
    statement_bytes: int,
) -> None:
    groups = [pages[at : at + pages_per_commit] for at in range(0, len(pages), pages_per_commit)]
    batches = [[item for page in group for item in page] for group in groups]
    model = Model(case)
    keys = [
        [model.store({name: held for name, (_, held) in item.items()}) for item in batch]
        for batch in batches
    ]
    flat = [key for batch in keys for key in batch]
    refused = [place for place, key in enumerate(flat) if key is None]
    counts = [len(set(batch) - {None}) for batch in keys]
    event(f"{case.table}, {'some' if refused else 'none'} refused")
    said = [[{name: says for name, (says, _) in item.items()} for item in batch]
            for batch in batches]  # fmt: skip
    for db in databases:
        empty(db, case)
        db.statement_bytes = statement_bytes
        found = write(db, case, said)
        assert stored(db, case) == model.rows, db
        assert found[0] == refused, db
        assert case.table == "loose" or found[1] == counts, db  # it counts keys as they are given
