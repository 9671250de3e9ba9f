"""The statements that store rows, in the words of each database.

MySQL applies its assignments from left to right and each sees the earlier ones, so
the column that guards the others comes last. Every value is a plain placeholder:
one SQL function among them makes PyMySQL send a statement per row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Table, and_, bindparam, case, or_, update
from sqlalchemy.sql.dml import Insert, Update


class Default:
    """Among the values of a new row: what the column has by itself; MySQL only."""

    __slots__ = ()


@dataclass(frozen=True)
class Rule:
    """How a row meets one that is there: *update* these columns, if *newer_by* is not older.

    A row that is not *dated* brings no value of *newer_by*.
    """

    key: tuple[str, ...]
    update: tuple[str, ...]
    newer_by: str | None = None
    dated: bool = True


def upsert(dialect: str, table: Table, rule: Rule) -> Insert:
    """An INSERT of any columns that updates as *rule* says where the key is there already."""
    return _sqlite(table, rule) if dialect == "sqlite" else _mysql(table, rule)


def change(table: Table, rule: Rule) -> Update:
    """An UPDATE of the row with the key; a value's placeholder has its column's name.

    The keys' placeholders are called ``key 0`` and so on, those of the guard ``guard``.
    """
    names = _guard_last(rule)
    where = [table.c[name] == bindparam(f"key {n}") for n, name in enumerate(rule.key)]
    if rule.newer_by is not None:
        where.append(_not_older(table, {rule.newer_by: bindparam("guard")}, rule))
    return update(table).where(*where).values({name: bindparam(f"={name}") for name in names})


def _mysql(table: Table, rule: Rule) -> Insert:
    from sqlalchemy.dialects.mysql import insert

    statement = insert(table)
    new = statement.inserted
    pairs: list[tuple[str, Any]] = []
    for name in _guard_last(rule):
        value: Any = new[name]
        if rule.newer_by is not None:
            value = case((_not_older(table, new, rule), value), else_=table.c[name])
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
    where = None if rule.newer_by is None else _not_older(table, new, rule)
    return statement.on_conflict_do_update(
        index_elements=list(rule.key),
        set_={name: new[name] for name in rule.update},
        where=where,
    )


def _guard_last(rule: Rule) -> Sequence[str]:
    return sorted(rule.update, key=lambda name: name == rule.newer_by)


def _not_older(table: Table, new: Any, rule: Rule) -> Any:
    assert rule.newer_by is not None
    old = table.c[rule.newer_by]
    if not rule.dated:
        return old.is_(None)
    given = new[rule.newer_by]
    return or_(old.is_(None), and_(given.is_not(None), given >= old))
