"""``scrapy resume relay``: what the journal of a dead worker still holds is stored by hand.

For a disk that came back after its machine was lost, and for a journal that was set aside and
can be read now. A process that starts in a slot does this by itself.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from scrapy_resume import journalnotes
from scrapy_resume.commands.acting import actor, existing
from scrapy_resume.commands.database import looked_at, resume_settings
from scrapy_resume.commands.screen import print_json, show
from scrapy_resume.exceptions import ActRefused, ConfigurationError, JournalFailed
from scrapy_resume.journal import FILE, FOREIGN, REFUSED, Journal, aside_for
from scrapy_resume.journalreplay import replay_open
from scrapy_resume.replayed import Replayed
from scrapy_resume.replaysurvey import Survey
from scrapy_resume.worker import holding

if TYPE_CHECKING:
    from scrapy.settings import Settings

    from scrapy_resume.store.engine import Database


@dataclass(frozen=True)
class Relayed:
    """What became of one journal; *refused* says why nothing was done with it."""

    path: Path
    done: Replayed
    refused: str | None = None


def run(settings: Settings, opts: argparse.Namespace) -> int:
    """Relay each journal, and say what came of it; 1 if one was refused."""
    paths = list(journals(Path(opts.journal)))
    with looked_at(resume_settings(settings)) as db:
        found = [relay(existing(db), path, dry_run=opts.dry_run) for path in paths]
    if opts.json:
        told = [
            {"path": str(one.path), "refused": one.refused, **asdict(one.done)} for one in found
        ]
        print_json({"dry_run": opts.dry_run, "journals": told})
    else:
        show(_line(one, opts.dry_run) for one in found)
    return int(any(one.refused for one in found))


def journals(path: Path) -> Iterator[Path]:
    """The journals that *path* means. Raises ConfigurationError if there is none."""
    if path.is_file():
        yield path
        return
    found = [one for where in (path, *sorted(path.glob("slot-*"))) for one in _of_slot(where)]
    if not found:
        raise ConfigurationError(
            f"there is no journal at {path}; --journal takes a {FILE}, the directory of a slot"
            " that has one, or a RESUME_HOME"
        )
    yield from found


def _of_slot(directory: Path) -> Iterator[Path]:
    """The slot's journal and those that were set aside beside it; of damaged ones all that
    can be read has been copied."""
    path = directory / FILE
    if path.is_file():
        yield path
    for why in (FOREIGN, REFUSED):
        yield from aside_for(path, why)


def relay(db: Database, path: Path, *, dry_run: bool) -> Relayed:
    """Store what the journal at *path* holds and is still wanted."""
    try:
        with ExitStack() as stack:
            if path.name == FILE and not stack.enter_context(holding(path.parent)):
                raise ActRefused("a process works in its slot, and stores it by itself")
            journal = Journal.find(path, meta=journalnotes.of_database(db))
            if journal is None:
                raise ActRefused(
                    f"it is of another database than {db.redacted_url}; set RESUME_DATABASE_URL"
                )
            stack.callback(journal.close)
            if dry_run:
                return Relayed(path, Survey(db, journal, actor()).result())
            steps = replay_open(db, journal, actor=f"scrapy resume relay by {actor()}")
            return Relayed(path, sum(steps, Replayed()))
    except (ActRefused, ConfigurationError, JournalFailed) as why:
        return Relayed(path, Replayed(), str(why))
    except ValueError as why:  # of the codec
        return Relayed(path, Replayed(), f"what it says of its tables is not understood: {why}")
    except OSError as error:
        return Relayed(path, Replayed(), f"its slot cannot be locked: {error.strerror}")


def _line(one: Relayed, dry_run: bool) -> str:
    if one.refused:
        return f"{one.path} is not relayed: {one.refused}."
    if one.done == Replayed():
        return f"{one.path} holds nothing that is not stored."
    return f"{one.path}: {one.done}" + ("; nothing was changed (--dry-run)." if dry_run else ".")
