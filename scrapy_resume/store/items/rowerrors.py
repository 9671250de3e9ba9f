"""Why the database refused a row, in the same words for every database."""

from __future__ import annotations

import math
import re
import sqlite3
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from sqlalchemy import exc as sa

from scrapy_resume.store.errors import describe, error_number, is_made_up
from scrapy_resume.store.items.tablefacts import TableFacts

_SHOWN = 60  # characters of a value
_SECRET = re.compile(r"(?i)pass|pwd|secret|token|auth|session|credential|cookie")
_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*://)(?:[^\s/@]*@)?(?P<rest>[^\s?#]*)\S*")

_TAKEN = 1062
_NO_IDS = (167, 1467)
_NUMBERS = {
    1048: "NoValue", 1364: "NoValue", 1062: "OtherUniqueIndex", 1586: "OtherUniqueIndex",
    1216: "NoParent", 1452: "NoParent", 1217: "NoParent", 1451: "NoParent",
    3819: "Check", 4025: "Check", 167: "IdsUsedUp", 1467: "IdsUsedUp", 1644: "Trigger",
    1643: "Trigger", 1526: "NoPartition", 1748: "NoPartition",
    1267: "Unfit", 1271: "Unfit",
    1264: "Unfit", 1265: "Unfit", 1292: "Unfit", 1366: "Unfit", 1406: "Unfit",
}  # fmt: skip
_TEXTS = {
    "NOT NULL": "NoValue", "UNIQUE": "OtherUniqueIndex", "FOREIGN KEY": "NoParent",
    "CHECK": "Check",
}  # fmt: skip
_OF_SQLITE = re.compile(r"^(NOT NULL|UNIQUE|FOREIGN KEY|CHECK) constraint failed(?:: (.*))?", re.S)
_COLUMN = re.compile(r"(?i)(?:column|field) [`'](.+?)[`']|FOREIGN KEY \(`(.+?)`\)")
_INDEX = re.compile(r"for key '(?:.*\.)?(.+?)'\Z")
_GONE = re.compile(r"no such (column|table)|has no column named")


@dataclass(frozen=True, slots=True)
class Explanation:
    """What was wrong with a row: a word for it, a sentence, the column if it is known."""

    error_class: str
    text: str
    column: str | None = None


def explain(exc: Exception, facts: TableFacts | None, fields: Collection[str] = ()) -> Explanation:
    """Why the database refused a row of the table of *facts* that has *fields*."""
    orig = getattr(exc, "orig", None) or exc
    if isinstance(orig, sqlite3.Error):
        return _of_sqlite(orig, exc)
    number, text = error_number(exc), describe(exc)
    word = "Trigger" if is_made_up(exc) else _NUMBERS.get(number or 0, type(orig).__name__)
    if number == _TAKEN and (found := _INDEX.search(str(orig.args[-1]))):
        return _taken(found[1], facts, fields, text)
    column = _COLUMN.search(text)
    return Explanation(word, text, (column[1] or column[2]) if column else None)


def may_be_there(exc: Exception) -> bool:
    """Whether a row could not be inserted into MySQL because its key may be there already.

    An id is taken before the key is looked at, so a lack of ids says nothing of the key.
    """
    return error_number(exc) in (_TAKEN, *_NO_IDS)


def is_outdated(exc: Exception) -> bool:
    """Whether the statement names a column or a table that is no more there."""
    orig = getattr(exc, "orig", None) if isinstance(exc, sa.DBAPIError) else exc
    if isinstance(orig, sqlite3.OperationalError):
        return bool(_GONE.search(str(orig)))
    return error_number(exc) in (1054, 1146)


def shortened(column: str, value: Any) -> str:
    """The beginning of *value* for a record; nothing secret of an address, none of a secret."""
    if _SECRET.search(column):
        return "…"
    text = value[:_SHOWN] if isinstance(value, bytes) else value
    text = _URL.sub(_without_query, as_text(text)[: 10 * _SHOWN])
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def as_text(value: Any) -> str:
    """*value* as text, also where Python refuses to write a number of so many digits."""
    try:
        return str(value)
    except ValueError:
        return f"a number of some {int(value.bit_length() * math.log10(2))} digits"


def _without_query(found: re.Match[str]) -> str:
    whole, bare = found[0], found["scheme"] + found["rest"]
    return bare + "?…" if "?" in whole or "#" in whole else bare


def _taken(index: str, facts: TableFacts | None, fields: Collection[str], text: str) -> Explanation:
    unique = () if facts is None else facts.unique
    found = next((one for one in unique if one.name.lower() == index.lower()), None)
    if facts is None or found is None:
        return Explanation("OtherUniqueIndex", text)
    first = found.columns[0]
    if first in facts.columns and facts.columns[first].counted and first not in fields:
        return Explanation("IdsUsedUp", f"the ids of {first} are used up", first)
    return _other(list(found.columns), found.shown)


def _of_sqlite(orig: sqlite3.Error, exc: Exception) -> Explanation:
    found = _OF_SQLITE.match(str(orig))
    if found is None:
        word = "Trigger" if "TRIGGER" in getattr(orig, "sqlite_errorname", "") else ""
        return Explanation(word or type(orig).__name__, describe(exc))
    names = [part.rpartition(".")[2] for part in (found[2] or "").split(", ")]
    if found[1] == "UNIQUE":
        return _other(names, ", ".join(names))
    column = names[0] if found[1] == "NOT NULL" else None
    return Explanation(_TEXTS[found[1]], describe(exc), column)


def _other(columns: list[str], shown: str) -> Explanation:
    text = f"another row has the same ({shown}), which the table allows once"
    return Explanation("OtherUniqueIndex", text, columns[0])
