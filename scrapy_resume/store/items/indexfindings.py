"""What can be wrong with the unique indexes of an item table."""

from __future__ import annotations

from collections.abc import Iterator

from scrapy_resume.store.engine import Database
from scrapy_resume.store.items.findings import Finding, quoted
from scrapy_resume.store.items.table import ItemTable
from scrapy_resume.store.items.tablefacts import TableFacts, UniqueIndex


def of_indexes(db: Database, declared: ItemTable, facts: TableFacts) -> Iterator[Finding]:
    """The key must have a unique index of its own, and be the only one that has."""
    key, dialect = tuple(declared.key), db.dialect
    whole = any(index.is_of(key) for index in facts.unique)
    if not whole:
        begun = [index for index in facts.unique if index.names(key)]
        yield _of_beginnings(facts, begun[0]) if begun else _none(dialect, key, facts)
    for index in facts.others(key):
        what = (
            f"its unique index ({index.shown}) may match an unrelated row; only the key may be one"
        )
        # Without an index of the key's own, this one may be the key that was meant.
        mend = _without(dialect, facts, index) if whole else None
        yield Finding("second_unique_index", facts.name, None, what, mend)


def _none(dialect: str, key: tuple[str, ...], facts: TableFacts) -> Finding:
    names, table = quoted(dialect, *key), quoted(dialect, facts.name)
    index = quoted(dialect, f"{facts.name}_key"[:64])
    mend = f"CREATE UNIQUE INDEX {index} ON {table} ({names})"
    what = f"no unique index is made of just ({', '.join(key)})"
    if facts.unique:
        there = "), (".join(index.shown for index in facts.unique)
        what += f"; its unique indexes are of ({there}), which the key of its ItemTable may name"
    return Finding("no_unique_index", facts.name, None, what, mend)


def _of_beginnings(facts: TableFacts, index: UniqueIndex) -> Finding:
    names, table = quoted("mysql", *index.columns), quoted("mysql", facts.name)
    what = f"its unique index ({index.shown}) takes keys that begin alike for one"
    mend = f"ALTER TABLE {table} {_dropped(index)}, ADD UNIQUE ({names})"
    return Finding("prefix_index", facts.name, None, what, mend)


def _without(dialect: str, facts: TableFacts, index: UniqueIndex) -> str | None:
    """The index is kept, but not unique."""
    table = quoted(dialect, facts.name)
    if dialect == "sqlite":
        return None if index.fixed else f"DROP INDEX {quoted(dialect, index.name)}"
    if "?" in index.columns:
        return f"ALTER TABLE {table} {_dropped(index)}"
    lengths = index.prefixes
    names = ", ".join(
        quoted(dialect, name) + (f"({lengths[name]})" if name in lengths else "")
        for name in index.columns
    )
    return f"ALTER TABLE {table} {_dropped(index)}, ADD INDEX ({names})"


def _dropped(index: UniqueIndex) -> str:
    if index.name == "PRIMARY":
        return "DROP PRIMARY KEY"
    return f"DROP INDEX {quoted('mysql', index.name)}"
