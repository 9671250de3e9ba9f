"""The record of every request the site was asked."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TextIO

from example_project.site.message import Request


@dataclass(slots=True)
class Served:
    """One request. *status* is None until it was answered, 0 if it never was."""

    time: float
    method: str
    path: str
    query: dict[str, str]
    page: int | None
    body: str
    cookies: dict[str, str]
    status: int | None = None


class RequestLog:
    """Requests in order of arrival; written to *file* as JSON lines when they are answered."""

    def __init__(self, file: Path | None = None, *, remember: bool = True) -> None:
        self.requests: list[Served] = []
        self._remember = remember
        self._changed = threading.Condition()
        self._path = file
        self._file: TextIO | None = None

    def arrived(self, request: Request) -> Served:
        body = request.body.decode("utf-8", "backslashreplace")
        served = Served(
            time.time(),
            request.method,
            request.path,
            request.query,
            request.page,
            body,
            request.cookies,
        )
        if self._remember:
            with self._changed:
                self.requests.append(served)
                self._changed.notify_all()
        return served

    def answered(self, served: Served, status: int) -> None:
        """Note the *status*; only the first call for a request counts."""
        if served.status is not None:
            return
        with self._changed:
            served.status = status
            self._changed.notify_all()
        if self._path is not None:
            self._file = self._file or self._path.open("a", encoding="ascii", buffering=1)
            self._file.write(json.dumps(asdict(served)) + "\n")

    def wait(self, found: Callable[[list[Served]], bool], timeout: float) -> None:
        """Wait until the log satisfies *found*. Raises TimeoutError after *timeout* seconds."""
        with self._changed:
            if not self._changed.wait_for(lambda: found(self.requests), timeout):
                raise TimeoutError(f"the site did not see it in {timeout} s")

    def clear(self) -> None:
        with self._changed:
            self.requests.clear()

    def close(self) -> None:
        if self._file:
            self._file.close()
            self._file = None
