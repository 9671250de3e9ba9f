"""What a journal says of itself: the database, the run and the tables that its records are for.

Noted by the process that holds the slot, and read by whoever replays its journal, or reads on
from it while the database is away.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from scrapy_resume import journalcodec
from scrapy_resume.store import meta
from scrapy_resume.store.engine import Database
from scrapy_resume.store.items import ItemTable

TASK = "task"  # the run, as the codec writes it
WORKER = "worker"
STARTS = "provisional"  # the last record, and how many provisional starts appended nothing to it
_TABLES, _HOLD = "tables", "on_failed_record"


def of_database(db: Database) -> dict[str, str]:
    """What tells the journals of *db* from those of other databases."""
    return {"database": meta.database_id(db), "address": db.address}


def of_rows(tables: Sequence[ItemTable], on_failed_record: str) -> dict[str, str]:
    """What a replay has to know of the rows: their *tables*, and what a refused one means."""
    return {_TABLES: journalcodec.dump_tables(tables).decode(), _HOLD: on_failed_record}


def tables_of(notes: Mapping[str, str]) -> tuple[ItemTable, ...]:
    """The users' tables that the rows are for."""
    told = notes.get(_TABLES)
    return tuple(journalcodec.load_tables(told.encode())) if told else ()


def holds_records(notes: Mapping[str, str]) -> bool:
    """Whether a row that is refused holds its page (``RESUME_ON_FAILED_RECORD``)."""
    return notes.get(_HOLD) != "quarantine"
