"""A table that items go to: its columns, their rules, and how rows must be sent to it."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy.engine import Connection

from scrapy_resume.exceptions import ConfigurationError
from scrapy_resume.store.engine import Database
from scrapy_resume.store.items import smallids
from scrapy_resume.store.items.catalog import look
from scrapy_resume.store.items.columnrules import Unfit, column_rule
from scrapy_resume.store.items.plaincolumns import Glance, glance
from scrapy_resume.store.items.statements import Statements
from scrapy_resume.store.items.table import ItemTable, Values
from scrapy_resume.store.items.tablefacts import ColumnFacts, TableFacts

logger = logging.getLogger(__name__)

_SHAPES = 1000  # sets of fields remembered
_NAMES = 100  # unknown fields that are looked for in a table, and told of


class Outdated(Exception):
    """The table may have changed since it was looked at."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What is known of all rows with the same fields: which the table lacks, what it misses."""

    fields: frozenset[str]
    unknown: tuple[str, ...] = ()
    missing: str | None = None

    @property
    def fits(self) -> bool:
        """Whether the table has all the fields and needs no more."""
        return not self.unknown and self.missing is None


@dataclass
class Target:
    """A table, what rows of it must obey, and its statements.

    It *merges* rows of one key before they are sent, unless only the database can tell
    what becomes of each. It is *careful* where the usual statement could strike a row with
    another key. Rows go *in order* of their pages where one may depend on another. It
    *folds* keys: the database may take different ones for the same.
    """

    db: Database
    declared: ItemTable
    statements: Statements
    rules: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)
    glances: Mapping[str, Glance] = field(default_factory=dict)
    facts: TableFacts | None = None
    absent: Collection[str] = ()  # fields looked for in vain
    ignored: int = 0
    coerced: int = 0
    _shapes: dict[tuple[str, ...], Shape] = field(default_factory=dict)
    _told: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        facts, key = self.facts, tuple(self.declared.key)
        self.name, self.is_default = self.declared.name, facts is None
        self.is_mysql = self.db.dialect == "mysql"
        others = [] if facts is None else facts.others(key)
        itself = facts is not None and self.name in facts.references
        self.in_order = bool(others) or itself
        self.careful = self.is_mysql and facts is not None and _needs_care(facts, key)
        self.triggered = bool(facts is not None and facts.triggers)
        strict = facts is not None and (facts.checked or self.triggered)
        # Trying an INSERT uses up an id.
        self.probed = facts is not None and facts.checked and not smallids.small_id(facts)
        counted = () if facts is None else [c.name for c in facts.columns.values() if c.counted]
        self.counted = frozenset(counted) - set(key)
        self.folds = facts is not None and any(map(_folds, map(facts.columns.get, key)))
        self.merges = not (strict or self.in_order or self.folds or self.declared.newer_by)

    def shape(self, names: tuple[str, ...]) -> Shape:
        """What is known of rows whose fields are *names*. Raises Outdated for a new one."""
        shape = self._shapes.get(names)
        if shape is None:
            if len(self._shapes) >= _SHAPES:
                self._shapes.clear()
            shape = self._shapes[names] = self._look_at(names)
        return shape

    def meet(self, before: Values, after: Values) -> Values:
        """What a row holds once *after* was stored over *before*."""
        return before | {name: after[name] for name in self.statements.updated(after)}

    def brings_id(self, sets: Iterable[frozenset[str]]) -> bool:
        """Whether rows of these fields say which id is theirs: it may be that of another row."""
        return bool(self.counted) and any(self.counted & fields for fields in set(sets))

    def key_as_sent(self, found: Iterable[Any]) -> tuple[Any, ...]:
        """The key of a row that is there, read by the driver, as an entry has it.

        A driver makes objects of dates, which are sent as text.
        """
        if self.is_default:  # whose keys are texts
            return tuple(found)
        key = zip(self.declared.key, found, strict=True)
        try:
            return tuple([self.rules[name](value) for name, value in key])
        except Unfit:
            return tuple(found)

    def ignore(self, field: str) -> None:
        """Count a field that is left out, and say so once."""
        self.ignored += 1
        self._tell(field, "%s; the field is ignored", self.lack(field))

    def note_coerced(self, column: str, reason: str) -> None:
        """Count a value that was stored less exactly than given, and say so once."""
        self.coerced += 1
        self._tell(column, "table %s, column %s: %s", self.name, column, reason)

    def lack(self, field: str) -> str:
        """That the table has no such column, in words."""
        columns = {} if self.facts is None else self.facts.columns
        if field in columns:
            return f"the column {field} of the item table {self.name} is generated, not written"
        text = f"the item table {self.name} has no column {field}"
        alike = [name for name in columns if name.casefold() == field.casefold()]
        close = alike or difflib.get_close_matches(field, columns, 1, 0.8)
        return f"{text}; its column {close[0]} is spelt differently" if close else text

    def _look_at(self, names: tuple[str, ...]) -> Shape:
        if self.facts is None:
            return Shape(frozenset(names))
        unknown = tuple(name for name in names if name not in self.rules)
        if len(self.absent) < _NAMES and any(name not in self.absent for name in unknown):
            raise Outdated
        required = (one.name for one in self.facts.columns.values() if one.required)
        missing = next((name for name in required if name not in names), None)
        return Shape(frozenset(names) - set(unknown), unknown, missing)

    def _tell(self, column: str, text: str, *about: str) -> None:
        if column not in self._told and len(self._told) < _NAMES:
            self._told.add(column)
            logger.warning(text, *about, extra={"action": "item_field"})


def default_target(db: Database, *, keep: bool = False) -> Target:
    """The product's own item table: everything is updated but the time it was first seen.

    With *keep* nothing is.
    """
    columns = [column.name for column in db.tables.item.columns]
    update = [name for name in columns if name not in ("source", "item_key", "first_seen_at")]
    declared = ItemTable(db.tables.item.name, ("source", "item_key"), None if keep else update)
    return Target(db, declared, Statements(db, declared, columns))


def reflect(
    conn: Connection, db: Database, declared: ItemTable, absent: Collection[str] = ()
) -> Target:
    """Look a user's table up. Raises ConfigurationError if it is not as *declared*.

    Fields of *absent* are not looked for again.
    """
    facts = look(conn, db, declared.name)
    if facts is None:
        raise ConfigurationError(
            f"the item table {declared.name} does not exist at {db.redacted_url}; create it first"
        )
    target = Target(db, declared, Statements(db, declared, facts.columns), facts=facts)
    written = [column for column in facts.columns.values() if not column.generated]
    target.rules = {
        column.name: column_rule(column, db.dialect, target.note_coerced) for column in written
    }
    seen = {column.name: glance(column, db.dialect) for column in written}
    target.glances = {name: glance for name, glance in seen.items() if glance is not None}
    target.absent = frozenset(absent) - target.rules.keys()
    for name in named(declared):
        if name not in target.rules:
            raise ConfigurationError(target.lack(name))
    return target


def named(declared: ItemTable) -> list[str]:
    """The columns that *declared* names."""
    update = declared.update
    listed = () if update is None or isinstance(update, str) else update
    return [*declared.key, *listed, *filter(None, [declared.newer_by])]


def _folds(column: ColumnFacts | None) -> bool:
    collation = str((column and column.collation) or "binary").lower()
    return not (collation == "binary" or "nopad_bin" in collation or "0900_bin" in collation)


def _needs_care(facts: TableFacts, key: tuple[str, ...]) -> bool:
    """Whether ON DUPLICATE KEY could strike a row that has another key."""
    whole = any(index.is_of(key) for index in facts.unique)
    return bool(facts.others(key)) or not whole or smallids.is_tight(facts)
