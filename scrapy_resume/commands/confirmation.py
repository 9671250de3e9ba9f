"""Whether an operator really means it: the task's id, typed or given by ``--confirm``.

A name on a line that is repeated from a history means another run today than
yesterday. The id is of one run, and has to be looked up or read.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from scrapy_resume.commands.screen import clean
from scrapy_resume.exceptions import ActRefused

if TYPE_CHECKING:
    from scrapy_resume.store.tasks import Task


def require(opts: argparse.Namespace, task: Task, preview: Callable[[], Iterable[str]]) -> None:
    """Return if ``opts.verb`` is confirmed for *task*, else raise ActRefused.

    Where somebody can be asked, *preview* says first what would be done.
    """
    which = f"{opts.verb} of run {task.run_no} of {task.name}"
    if opts.confirm is not None:
        if opts.confirm.strip() != str(task.id):
            raise ActRefused(
                f"the {which} is not confirmed: its id is {task.id}, and --confirm says"
                f" {opts.confirm.strip() or 'nothing'}"
            )
    elif not sys.stdin.isatty():
        raise ActRefused(f"the {which} is not confirmed: add --confirm {task.id}")
    elif _asked(which, preview()) != str(task.id):
        raise ActRefused(f"the {which} is not confirmed: that is not its id")


def _asked(which: str, sentences: Iterable[str]) -> str:
    """What is typed; the question goes to stderr, since stdout may be JSON for a script."""
    for sentence in (f"The {which} would do this:", *sentences):
        print(clean(sentence), file=sys.stderr)
    print("Type the id of the task to go on: ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip()
