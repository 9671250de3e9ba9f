"""A page's rows by columns, as the journal keeps them.

Payloads and descriptions are most of a page's bytes, and escaping them one by one most of the
work. So a column of texts, of times or of decimals is kept as lines behind the JSON, one
for each row, each as it is; only columns of anything else, or of mixed values, are JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date, datetime
from decimal import Decimal
from itertools import groupby, islice, repeat
from operator import is_
from typing import Any

from scrapy_resume.store.items import Row

_WRITERS: dict[type, tuple[str, Callable[[Any], str] | None]] = {
    str: ("text", None),
    datetime: ("datetime", datetime.isoformat),
    date: ("date", date.isoformat),
    Decimal: ("decimal", str),
}
_READERS: dict[str, Callable[[str], Any]] = {
    "text": str,
    "datetime": datetime.fromisoformat,
    "date": date.fromisoformat,
    "decimal": Decimal,
}


def grouped(rows: Sequence[Row], lines: list[str]) -> list[Any]:
    """*rows* in their order; neighbours of one table with the same fields are a group.

    A group is its table, its fields, where among them the key is, and its columns. If the key
    is not among the fields, its parts are columns behind theirs.
    """
    groups: list[Any] = []
    for (table, names, _), members in groupby(rows, _shape):
        alike = list(members)
        columns = list(zip(*[row.values.values() for row in alike], strict=True))
        keys = list(zip(*[row.key for row in alike], strict=True))
        places = _places(keys, columns)
        if places is None:
            columns += keys
        written = [_column(cells, lines) for cells in columns]
        groups.append([table, names, places, len(alike), written])
    return groups


def _shape(row: Row) -> tuple[str | None, tuple[str, ...], int]:
    return row.table, tuple(row.values), len(row.key)


def _places(keys: list[tuple[Any, ...]], columns: list[tuple[Any, ...]]) -> list[int] | None:
    """Which of *columns* the parts of the keys are; None if one is not there as it is."""
    places = []
    for parts in keys:
        for place, cells in enumerate(columns):
            if all(map(is_, parts, cells)):
                places.append(place)
                break
        else:
            return None
    return places


def _column(cells: tuple[Any, ...], lines: list[str]) -> Any:
    """How *cells* are kept: the name of what their lines are, themselves, None if all are None."""
    kinds = set(map(type, cells))
    kind = kinds.pop()
    if kinds or kind not in _WRITERS:
        return None if kind is type(None) and not kinds else cells
    name, write = _WRITERS[kind]
    text = "\n".join(cells if write is None else map(write, cells))
    if text.count("\n") >= len(cells):
        return cells
    lines.append(text)
    return name


def ungrouped(groups: list[Any], lines: Iterator[str]) -> Iterator[Row]:
    """The rows that :func:`grouped` was given."""
    for table, names, places, count, written in groups:
        columns = []
        for column in written:
            if isinstance(column, str):
                columns.append(list(map(_READERS[column], islice(lines, count))))
            else:
                columns.append([None] * count if column is None else column)
        keys = columns[len(names) :] if places is None else [columns[place] for place in places]
        cells, parts = _across(columns[: len(names)], count), _across(keys, count)
        for values, key in zip(cells, parts, strict=True):
            yield Row(table, key, dict(zip(names, values, strict=True)))


def _across(columns: list[list[Any]], count: int) -> Iterable[tuple[Any, ...]]:
    return zip(*columns, strict=True) if columns else repeat((), count)
