"""Several owners at once: threads with databases of their own, and whole processes."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from scrapy_resume.store.engine import Database
from tests.store.worlds import World

ROOT = Path(__file__).parents[2]


def in_threads(url: str, works: Sequence[Callable[[World], None]]) -> None:
    """Run every work in a thread with its own connections; raises the first error."""
    errors: list[BaseException] = []
    barrier = threading.Barrier(len(works))

    def run(work: Callable[[World], None]) -> None:
        db = Database.connect(url)
        try:
            barrier.wait()
            work(World(db))
        except BaseException as exc:
            errors.append(exc)
        finally:
            db.close()

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def start_process(script: str, *arguments: str, fault: str = "") -> subprocess.Popen[str]:
    """A Python process that runs *script* (in ``tests/store``) with *arguments*."""
    prelude = (
        "import sys; sys.path.insert(0, sys.argv[1]); from scrapy_resume import faults;"
        " faults.arm(sys.argv[2]);"
    )
    return subprocess.Popen(
        [sys.executable, "-c", prelude + script, str(ROOT), fault, *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
