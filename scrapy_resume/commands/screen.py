"""What people read: sentences and tables, drawn by rich on a terminal and plain elsewhere."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import JustifyMethod, RenderableType

_GAP = "  "


@dataclass(frozen=True)
class Grid:
    """A table of texts. *numbers* are columns set to the right, *long* those that may wrap."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[Sequence[Any]]
    numbers: tuple[str, ...] = ()
    long: tuple[str, ...] = ()


Part = str | Grid


def clean(value: Any) -> str:
    """*value* as one line that cannot command a terminal; None is empty."""
    text = "" if value is None else str(value)
    text = text.encode(errors="replace").decode()
    return "".join(sign if sign.isprintable() else " " for sign in text)


def moment(text: str | None) -> str:
    """A time of the store, as a person reads it: UTC, to the second."""
    return "" if text is None else f"{text[:10]} {text[11:19]} UTC"


def print_json(value: Any) -> None:
    """Print one JSON object, in ASCII so that no pipe can garble it."""
    print(json.dumps(value, indent=2))


def show(parts: Iterable[Part]) -> None:
    """Print sentences and tables, as the output can bear it."""
    if not sys.stdout.isatty():
        print("\n".join(as_text(part) for part in parts))
        return
    from rich.console import Console

    Console().print(as_rich(parts))


def as_text(part: Part) -> str:
    """A sentence, or a table whose columns are as wide as they need to be."""
    if isinstance(part, str):
        return clean(part)
    rows = [part.columns, *([clean(cell) for cell in row] for row in part.rows)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(part.columns))]
    lines = [_GAP.join(_cells(part, row, widths)).rstrip() for row in rows]
    return "\n".join(["", clean(part.title), *lines] if part.title else lines)


def as_rich(parts: Iterable[Part]) -> RenderableType:
    """The same for rich."""
    from rich.console import Group
    from rich.text import Text

    return Group(*(Text(clean(p)) if isinstance(p, str) else _table(p) for p in parts))


def _cells(part: Grid, row: Sequence[str], widths: Sequence[int]) -> Iterable[str]:
    for name, cell, width in zip(part.columns, row, widths, strict=True):
        yield cell.rjust(width) if name in part.numbers else cell.ljust(width)


def _table(part: Grid) -> RenderableType:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title=Text(clean(part.title)) if part.title else None,
        title_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    for name in part.columns:
        justify: JustifyMethod = "right" if name in part.numbers else "left"
        if name in part.long:
            table.add_column(name, justify=justify, overflow="fold")
        else:
            table.add_column(name, justify=justify, no_wrap=True, min_width=len(name))
    for row in part.rows:
        table.add_row(*(Text(clean(cell)) for cell in row))
    return table
