"""From a verb to the module that does it, and from an error to one line on stderr.

A verb's module has ``run(settings, opts)``, which returns the exit code.
"""

from __future__ import annotations

import argparse
import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING

from scrapy_resume.commands.subparsers import PROG
from scrapy_resume.exceptions import ResumeError

if TYPE_CHECKING:
    from scrapy.settings import Settings

FAILED = 1
_MODULES = dict.fromkeys(
    ("pause", "unpause", "cancel", "retry", "restart", "backfill", "reset"), "acts"
)
INTERRUPTED = 130  # what a shell says of a process that Ctrl-C ended


def run(verb: str, settings: Settings, opts: argparse.Namespace) -> int:
    """Do *verb*; a mistake of the user's or a database that is away is one line, no traceback."""
    module = import_module(f"scrapy_resume.commands.{_MODULES.get(verb, verb)}")
    try:
        code: int = module.run(settings, opts)
        sys.stdout.flush()
        return code
    except ResumeError as error:
        return fail(str(error))
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader, e.g. "head", has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED


def fail(sentence: str) -> int:
    """Say on stderr, in one line, why the verb could not be done; returns the exit code."""
    print(f"{PROG}: {' '.join(sentence.split())}", file=sys.stderr)
    return FAILED
