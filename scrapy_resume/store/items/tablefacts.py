"""What is known of a user's table, as values; the catalogue of the database says it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ColumnFacts:
    """A column. *type* is its declared type as text, *default* that of its default.

    *counted* says that the database counts it up by itself, *generated* that it is
    computed and cannot be written.
    """

    name: str = ""
    type: str = ""
    nullable: bool = True
    default: str | None = None
    counted: bool = False
    generated: bool = False
    charset: str | None = None
    collation: str | None = None

    @property
    def kind(self) -> str:
        """The first word of the type, in lower case."""
        return self.type.lower().partition("(")[0].partition(" ")[0]

    @property
    def required(self) -> bool:
        """Whether a new row must bring a value."""
        has_own = self.default is not None or self.counted or self.generated
        return not (self.nullable or has_own or self.kind in _IMPLICIT)


@dataclass(frozen=True, slots=True)
class UniqueIndex:
    """A unique index or the primary key; a part of it that is no plain column reads ``?``.

    *prefixes* are the lengths of columns that it holds the beginning of only; a *partial*
    one holds some rows only; a *fixed* one cannot be dropped by itself.
    """

    name: str
    columns: tuple[str, ...]
    prefixes: Mapping[str, int] = field(default_factory=dict)
    partial: bool = False
    fixed: bool = False

    @property
    def shown(self) -> str:
        """Its columns as text; a prefix reads ``url(50)``."""
        lengths = self.prefixes
        parts = (f"{name}({lengths[name]})" if name in lengths else name for name in self.columns)
        return ", ".join(parts)

    def is_of(self, key: tuple[str, ...]) -> bool:
        """Whether it is unique in just the columns of *key*, of every row and whole."""
        return self.names(key) and not self.prefixes

    def names(self, key: tuple[str, ...]) -> bool:
        """Whether it is made of just the columns of *key*, be it of their beginnings."""
        return set(self.columns) == set(key) and not self.partial


@dataclass(frozen=True, slots=True)
class Trigger:
    """A trigger of a table, with its text."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class TableFacts:
    """A table. *engine* is MySQL's; *references* are the tables of its foreign keys.

    *checked* says that rows may break a rule which only the database knows: a CHECK or a
    foreign key. *next_id* is what its AUTO_INCREMENT column will get next.
    """

    name: str
    columns: Mapping[str, ColumnFacts]
    unique: tuple[UniqueIndex, ...] = ()
    is_view: bool = False
    engine: str | None = None
    triggers: tuple[Trigger, ...] = ()
    references: frozenset[str] = frozenset()
    checked: bool = False
    next_id: int | None = None

    def others(self, key: tuple[str, ...]) -> list[UniqueIndex]:
        """The unique indexes besides that of *key*, but those of ids that are counted up."""
        return [one for one in self.unique if not (one.names(key) or self._counts(one))]

    def _counts(self, index: UniqueIndex) -> bool:
        (name, *rest) = index.columns
        return not rest and name in self.columns and self.columns[name].counted


_IMPLICIT = frozenset({"enum"})  # a NOT NULL ENUM has its first value for a default
