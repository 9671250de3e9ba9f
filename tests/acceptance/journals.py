"""The journals of a machine, seen from outside: read in copies, deleted, damaged."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from scrapy_resume.journal import Entry, Journal


def records(home: Path) -> list[Entry]:
    """What the journals of *home* hold at this moment, also while their processes run.

    Each is read in a copy, so that nothing of the original is touched.
    """
    found: list[Entry] = []
    for path in sorted(home.glob("slot-*/journal.db")):
        with tempfile.TemporaryDirectory() as name:
            for part in path.parent.glob("journal.db*"):
                shutil.copy(part, name)
            journal = Journal.open(Path(name) / path.name, meta={})
            after = 0
            while batch := journal.entries(after):
                found += batch
                after = batch[-1].seq
            journal.close()
    return found


def pages(home: Path) -> set[int]:
    """The pages that they hold."""
    return {one.page for one in records(home) if one.kind == "page" and one.page is not None}


def delete(home: Path) -> None:
    """Delete the journals of *home*, whether they are in use or not."""
    for path in home.glob("slot-*/journal*"):
        path.unlink(missing_ok=True)
