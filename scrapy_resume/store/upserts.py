"""The upsert statement of a table, in the words of each database.

MySQL applies its assignments from left to right and each sees the earlier ones, so
the column that guards the others comes last. Every value is a plain placeholder:
one SQL function among them makes PyMySQL send a statement per row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Table, and_, case, or_
from sqlalchemy.sql.dml import Insert


@dataclass(frozen=True)
class Rule:
    """How a row meets one that is there: *update* these columns, if *newer_by* is not older."""

    key: tuple[str, ...]
    update: tuple[str, ...]
    newer_by: str | None = None


def upsert(dialect: str, table: Table, rule: Rule) -> Insert:
    """An INSERT of any columns that updates as *rule* says where the key is there already."""
    return _sqlite(table, rule) if dialect == "sqlite" else _mysql(table, rule)


def _mysql(table: Table, rule: Rule) -> Insert:
    from sqlalchemy.dialects.mysql import insert

    statement = insert(table)
    new = statement.inserted
    pairs: list[tuple[str, Any]] = []
    for name in _guard_last(rule):
        value: Any = new[name]
        if rule.newer_by is not None:
            value = case((_not_older(table, new, rule.newer_by), value), else_=table.c[name])
        pairs.append((name, value))
    if not pairs:  # keep what is there
        pairs = [(rule.key[0], table.c[rule.key[0]])]
    return statement.on_duplicate_key_update(pairs)


def _sqlite(table: Table, rule: Rule) -> Insert:
    from sqlalchemy.dialects.sqlite import insert

    statement = insert(table)
    new = statement.excluded
    if not rule.update:
        return statement.on_conflict_do_nothing(index_elements=list(rule.key))
    where = None if rule.newer_by is None else _not_older(table, new, rule.newer_by)
    return statement.on_conflict_do_update(
        index_elements=list(rule.key),
        set_={name: new[name] for name in rule.update},
        where=where,
    )


def _guard_last(rule: Rule) -> Sequence[str]:
    return sorted(rule.update, key=lambda name: name == rule.newer_by)


def _not_older(table: Table, new: Any, column: str) -> Any:
    return or_(
        table.c[column].is_(None), and_(new[column].is_not(None), new[column] >= table.c[column])
    )
