"""Records as bytes and back, for the journal.

The first line is JSON. What JSON lacks (times, decimals, bytes) is an object of one field
whose name begins with ``$``; no other object has such a name, since whatever has names
of the user's choice is kept as lists. The texts of a page's rows follow as lines of their own
(``journalrows``).

The form is versioned, so a newer worker reads what an older one wrote, and an older one
says that it cannot. Nothing is ever executed on reading, as it would be with pickle.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, TypeVar

from scrapy_resume.journal import Given
from scrapy_resume.journalrows import grouped, ungrouped
from scrapy_resume.page import ErrorKind, Shard, Trouble, Where
from scrapy_resume.store.claims import ClaimedShard
from scrapy_resume.store.items import ItemTable
from scrapy_resume.store.quarantine import QuarantineRecord
from scrapy_resume.store.records import Finish, PageFailure, PageRecord, Record, Release
from scrapy_resume.store.tasks import Task
from scrapy_resume.watermark import PageRanges, Position

T = TypeVar("T")

VERSION = 1
_CLASSES: dict[str, type[Any]] = {
    "page": PageRecord,
    "fail": PageFailure,
    "finish": Finish,
    "release": Release,
}
KINDS = {cls: kind for kind, cls in _CLASSES.items()}
"""The kind of each class of record, as the journal names it."""

_NAMES = {
    cls: tuple(one.name for one in fields(cls))
    for cls in (*KINDS, QuarantineRecord, Trouble, ClaimedShard, Shard, Position, Task, ItemTable)
}


def dump(record: Record) -> tuple[str, bytes]:
    """The kind and the bytes of *record*. Raises TypeError for a value no row can have."""
    kind = KINDS[type(record)]
    parts = _parts(record)
    if isinstance(record, PageFailure):
        parts["trouble"] = _parts(record.trouble)
    if not isinstance(record, PageRecord):
        return kind, _encoded(parts)
    lines: list[str] = []
    parts["rows"] = grouped(record.rows, lines)
    parts["quarantine"] = [_parts(one) for one in record.quarantine]
    return kind, _encoded(parts, lines)


def entry(record: Record) -> Given:
    """*record* as a journal takes it. Raises TypeError as :func:`dump` does."""
    kind, body = dump(record)
    return record.shard_id, record.fencing_token, kind, record.page, body


def load(kind: str, body: bytes) -> Record:
    """The record that :func:`dump` was given. Raises ValueError for bytes of any other origin."""
    return _read(body, lambda parts, lines: _record(kind, parts, lines))


def dump_shard(claimed: ClaimedShard) -> bytes:
    """*claimed* as bytes; what the spider gave as JSON stays text within them."""
    shard, position = _parts(claimed.shard), _parts(claimed.position)
    for name in ("cursor", "spec"):
        shard[name] = json.dumps(shard[name], ensure_ascii=False)
    for name in ("ahead", "failed"):
        position[name] = str(position[name])
    return _encoded(_parts(claimed) | {"shard": shard, "position": position})


def load_shard(body: bytes) -> ClaimedShard:
    """The shard that :func:`dump_shard` was given. Raises ValueError."""

    def made(parts: dict[str, Any], _: Iterator[str]) -> ClaimedShard:
        shard, position = parts["shard"], parts["position"]
        for name in ("cursor", "spec"):
            shard[name] = json.loads(shard[name])
        for name in ("ahead", "failed"):
            position[name] = PageRanges.parse(position[name])
        return ClaimedShard(**parts | {"shard": Shard(**shard), "position": Position(**position)})

    return _read(body, made)


def dump_task(task: Task) -> bytes:
    """*task* as bytes."""
    return _encoded(_parts(task))


def load_task(body: bytes) -> Task:
    """The run that :func:`dump_task` was given. Raises ValueError."""
    return _read(body, lambda parts, _: Task(**parts))


def dump_tables(tables: Sequence[ItemTable]) -> bytes:
    """*tables* as bytes, so that rows can be stored where no spider declares them."""
    return _encoded({"tables": [_parts(table) for table in tables]})


def load_tables(body: bytes) -> list[ItemTable]:
    """The tables that :func:`dump_tables` was given. Raises ValueError."""
    return _read(body, lambda parts, _: [ItemTable(**table) for table in parts["tables"]])


def _parts(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in _NAMES[type(value)]}


def _record(kind: str, parts: dict[str, Any], lines: Iterator[str]) -> Record:
    if kind == "page":
        parts["rows"] = tuple(ungrouped(parts["rows"], lines))
        parts["quarantine"] = tuple(QuarantineRecord(**one) for one in parts["quarantine"])
    elif kind == "fail":
        parts["trouble"] = _trouble(parts["trouble"])
    record: Record = _CLASSES[kind](**parts)
    return record


def _trouble(parts: dict[str, Any]) -> Trouble:
    where, kind = Where(parts["where"]), ErrorKind(parts["kind"])
    return Trouble(**parts | {"where": where, "kind": kind})


def _encoded(parts: dict[str, Any], lines: Sequence[str] = ()) -> bytes:
    parts["v"] = VERSION
    try:
        head = _ENCODER.encode(parts)
    except ValueError:  # an int of more digits than Python writes
        head = _ENCODER.encode(_without_long_ints(parts))
    return "\n".join([head, *lines, ""]).encode("utf-8", "surrogatepass")


def _read(body: bytes, made: Callable[[dict[str, Any], Iterator[str]], T]) -> T:
    try:
        lines = iter(body.decode("utf-8", "surrogatepass").split("\n"))
        parts = json.loads(next(lines), object_hook=_untagged)
        version = parts.pop("v")
        if version > VERSION:
            raise ValueError(f"a newer version wrote it (form {version}, known is {VERSION})")
        value = made(parts, lines)
        if list(lines) != [""]:
            raise ValueError("it was cut short, or something was put behind it")
        return value
    except ValueError:
        raise
    except Exception as error:
        raise ValueError(f"it cannot be read: {type(error).__name__}: {error}") from error


def _tagged(value: Any) -> dict[str, Any]:
    """What stands for *value*, which JSON does not know."""
    if isinstance(value, datetime):
        return {"$datetime": value.isoformat()}
    if isinstance(value, date):
        return {"$date": value.isoformat()}
    if isinstance(value, time):
        return {"$time": value.isoformat()}
    if isinstance(value, timedelta):
        return {"$timedelta": [value.days, value.seconds, value.microseconds]}
    if isinstance(value, Decimal):
        return {"$decimal": str(value)}
    if isinstance(value, bytes):
        return {"$bytes": b64encode(value).decode()}
    raise TypeError(f"{type(value).__name__} values cannot be kept in the journal")


_TAGS: dict[str, Callable[[Any], Any]] = {
    "$datetime": datetime.fromisoformat,
    "$date": date.fromisoformat,
    "$time": time.fromisoformat,
    "$timedelta": lambda parts: timedelta(*parts),
    "$decimal": Decimal,
    "$bytes": b64decode,
    "$int": lambda text: int(text, 16),
}


def _untagged(parts: dict[str, Any]) -> Any:
    if len(parts) == 1:
        ((name, value),) = parts.items()
        if name in _TAGS:
            return _TAGS[name](value)
    return parts


def _without_long_ints(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_long_ints(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_long_ints(inner) for inner in value]
    if isinstance(value, int) and value.bit_length() > _LONG_INT:
        return {"$int": hex(value)}
    return value


_LONG_INT = 2000  # bits, well below what Python may be told to refuse (640 digits)
_ENCODER = json.JSONEncoder(
    ensure_ascii=False, check_circular=False, separators=(",", ":"), default=_tagged
)
