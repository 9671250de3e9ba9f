"""One ``scrapy`` process, seen from outside."""

from __future__ import annotations

import datetime
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.acceptance.forkserver import Forked

TIMEOUT = 180.0  # seconds until a crawl that should have ended counts as hung
SLACK = 20.0  # seconds by which a slow machine may be late in what a test gives a time for


class Crawl:
    """One ``scrapy`` process. What it prints and logs is in :attr:`log`."""

    def __init__(self, process: Forked | subprocess.Popen[bytes], log: Path) -> None:
        self.process, self.path = process, log

    @property
    def log(self) -> str:
        return self.path.read_text(errors="replace")

    @property
    def code(self) -> int | None:
        """The exit code, -9 after SIGKILL; None while it runs."""
        return self.process.poll()

    def wait(self, timeout: float = TIMEOUT) -> Crawl:
        """Wait for the end. Raises AssertionError for a crawl that does not end."""
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGUSR1)  # a forked crawl says what it waits for
            time.sleep(1)
            self.kill()
            raise AssertionError(f"the crawl did not end in {timeout} s:\n{self.tail}") from None
        return self

    def wait_until_logged(self, text: str, timeout: float = TIMEOUT) -> None:
        """Wait until *text* is in the log. Raises AssertionError."""
        wait_until(lambda: text in self.log or self.code is not None, timeout)
        assert text in self.log, f"it never said {text!r}:\n{self.tail}"

    def kill(self) -> Crawl:
        """SIGKILL, and wait until it is dead."""
        self.process.kill()
        self.process.wait()
        return self

    def stop(self) -> Crawl:
        """One polite signal."""
        self.process.send_signal(signal.SIGTERM)
        return self

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    @property
    def tail(self) -> str:
        """The end of the log without what Scrapy says at every start."""
        lines = self.log.splitlines()
        start = next((at for at, line in enumerate(lines) if "Spider opened" in line), 0)
        return "\n".join(lines[start:][-50:])

    @property
    def stats(self) -> dict[str, Any]:
        """The stats that Scrapy dumps at the end; {} after a kill."""
        found = re.search(r"Dumping Scrapy stats:\n(\{.*?\})\n\d{4}-", self.log, re.DOTALL)
        return eval(found[1], {"datetime": datetime}) if found else {}

    @property
    def finish_reason(self) -> str | None:
        return self.stats.get("finish_reason")

    def said(self, level: str) -> list[str]:
        """The log lines of *level*."""
        return [line for line in self.log.splitlines() if f"] {level}: " in line]


def frozen(crawl: Crawl) -> bool:
    """Is the process stopped?"""
    try:
        text = Path(f"/proc/{crawl.process.pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return text.rpartition(")")[2].split()[0] == "T"


def wait_until(true: Callable[[], Any], timeout: float = 60.0, interval: float = 0.02) -> None:
    """Wait until *true()* holds, asked every *interval* seconds. Raises AssertionError."""
    deadline = time.monotonic() + timeout
    while not true():
        assert time.monotonic() < deadline, f"it did not happen in {timeout} s"
        time.sleep(interval)
