"""What every act of an operator has: somebody who does it, a reason, and what is said of it."""

from __future__ import annotations

import argparse
import getpass
import os
import socket
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from scrapy_resume.commands.screen import print_json, show
from scrapy_resume.exceptions import ActRefused

if TYPE_CHECKING:
    from scrapy_resume.store.actresults import ActResult
    from scrapy_resume.store.engine import Database


def report(opts: argparse.Namespace, result: ActResult, which: dict[str, Any]) -> int:
    """Say what was done, or would be; *which* is for scripts."""
    if opts.json:
        print_json({**which, **asdict(result)})
    else:
        nothing = ["Nothing was changed (--dry-run)."] if result.dry_run else []
        show([*result.sentences, *nothing])
    return 0


def signed(opts: argparse.Namespace) -> dict[str, str]:
    """Who acts and why, for the record."""
    return {"actor": actor(), "reason": opts.reason}


def actor() -> str:
    """Who acts, for the record: ``alice@host``."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container may give its user no name
        user = f"user {os.getuid()}"
    return f"{user}@{socket.gethostname()}"


def existing(db: Database | None) -> Database:
    """The database, if there is one to act on. Raises ActRefused."""
    if db is None:
        raise ActRefused("there are no tasks yet, so there is nothing to act on")
    return db
