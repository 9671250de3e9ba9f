"""What of each row may be sent, decided before the database is asked, so that all decide alike.

A row's fields are compared with the table's columns, its values with the columns' rules.
Rows with the same fields are first looked at together, column by column; only where a
value stands out is each of them judged by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat

from scrapy_resume.exceptions import ConfigurationError
from scrapy_resume.store.items.columnrules import Unfit
from scrapy_resume.store.items.rowerrors import shortened
from scrapy_resume.store.items.table import Rejection, Row, Values
from scrapy_resume.store.items.targets import Shape, Target

_MANY = 4  # rows from which on a look at all of them pays


class Judge:
    """Judges rows of one user's table; why a row may not be sent is in :attr:`rejected`."""

    def __init__(self, target: Target, rows: Sequence[Row]) -> None:
        self._target, self._rows = target, rows
        self.rejected: list[Rejection] = []

    def judged(self, places: Sequence[int]) -> dict[int, tuple[Values, Shape]]:
        """What is sent of the rows at *places*, without those that are rejected.

        Raises Outdated for a field that the table lacks as far as is known, ConfigurationError
        where such a field is to stop the crawl.
        """
        groups: dict[tuple[str, ...], list[int]] = {}
        for place in places:
            groups.setdefault(tuple(self._rows[place].values), []).append(place)
        found: dict[int, tuple[Values, Shape]] = {}
        for names, group in groups.items():
            shape = self._target.shape(names)
            values = self._together(names, group) if shape.fits and len(group) >= _MANY else None
            if values is not None:
                found.update(zip(group, zip(values, repeat(shape)), strict=True))
                continue
            for place in group:
                alone = self._alone(place, shape)
                if alone is not None:
                    found[place] = alone, shape
        return found if len(groups) == 1 else {n: found[n] for n in places if n in found}

    def reject(self, place: int, error_class: str, why: str, column: str | None) -> None:
        """Put the row at *place* aside; *column* is at fault."""
        value = None if column is None else self._rows[place].values.get(column)
        shown = None if value is None else shortened(column or "", value)
        self.rejected.append(Rejection(place, error_class, why, column, shown))

    def _together(self, names: tuple[str, ...], group: list[int]) -> list[Values] | None:
        """The values of rows that are all good; None if each must be looked at."""
        target, coerced = self._target, self._target.coerced
        own = [self._rows[place].values for place in group]
        columns: list[Sequence[object]] = []
        changed = False
        by_name = zip(*(values.values() for values in own), strict=True)
        for name, column in zip(names, by_name, strict=True):
            glance = target.glances.get(name)
            if None in column and name in target.declared.key:
                return None
            if glance is not None and glance(column):
                columns.append(column)
                continue
            rule, changed = target.rules[name], True
            try:
                columns.append([rule(value) for value in column])
            except Unfit:
                target.coerced = coerced
                return None
        if not changed:
            return own
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]

    def _alone(self, place: int, shape: Shape) -> Values | None:
        """The values of the row at *place*; None if it is rejected."""
        if not shape.fits and not self._may_go(place, shape):
            return None
        values, rules = self._rows[place].values, self._target.rules
        for name in self._target.declared.key:
            if values.get(name) is None:
                self.reject(place, "NoKey", f"the key field {name} is empty", name)
                return None
        try:
            return {name: rules[name](values[name]) for name in values if name in shape.fields}
        except Unfit as why:
            self.reject(place, "Unfit", why.reason, why.column)
            return None

    def _may_go(self, place: int, shape: Shape) -> bool:
        """Whether the row can be sent although fields are unknown or missing."""
        target, name = self._target, shape.missing
        rule = target.declared.on_unknown_field
        if shape.unknown and rule == "stop":
            raise ConfigurationError(
                f"{target.lack(shape.unknown[0])}; mend the table or the item, or set"
                " on_unknown_field of its ItemTable"
            )
        if shape.unknown and rule == "quarantine":
            self.reject(place, "UnknownField", target.lack(shape.unknown[0]), shape.unknown[0])
            return False
        if name is not None:
            why = f"the column {name} may not be NULL, has no default, and the item has none"
            self.reject(place, "NoValue", why, name)
            return False
        for field in shape.unknown:
            target.ignore(field)
        return True
