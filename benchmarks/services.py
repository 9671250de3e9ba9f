"""The site and the databases that the crawls need, in processes of their own."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.contenders import ROOT

if TYPE_CHECKING:
    from tests.services import MariaDB

DATABASES = ("sqlite", "mariadb")


@contextmanager
def local_site(pages: int, rows: int, cores: frozenset[int] = frozenset()) -> Iterator[str]:
    """The example project's site with a list of *pages* pages; gives its address."""
    sizes = ["--port", "0", "--pages", str(pages), "--rows", str(rows)]
    command = [sys.executable, "-m", "example_project.site", *sizes]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            if cores:
                os.sched_setaffinity(process.pid, cores)
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


class Databases(ExitStack):
    """Fresh databases; the server, private and with its defaults of durability, starts
    with the first that needs it."""

    def __init__(self) -> None:
        super().__init__()
        self._numbers = itertools.count(1)
        self._mariadb: MariaDB | None = None

    @contextmanager
    def fresh(self, kind: str | None) -> Iterator[str]:
        """An empty database of *kind*; gives its address ("": the default SQLite file)."""
        if kind != "mariadb":
            yield ""
            return
        server = self._server()
        name = f"benchmark_{next(self._numbers)}"
        server.execute(f"CREATE DATABASE {name}")
        try:
            yield server.url(name)
        finally:
            server.execute(f"DROP DATABASE {name}")

    def cpu(self) -> float:
        """Seconds of CPU that the server has used; 0 if there is none."""
        if self._mariadb is None or self._mariadb.process is None:
            return 0.0
        text = Path(f"/proc/{self._mariadb.process.pid}/stat").read_text("utf-8")
        ticks = text.rpartition(")")[2].split()[11:13]
        return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")

    def _server(self) -> MariaDB:
        if self._mariadb is None:
            from tests.services import MariaDB  # other contenders do without a server

            home = self.enter_context(tempfile.TemporaryDirectory())
            self._mariadb = MariaDB(Path(home))
            self._mariadb.start()
            self.callback(self._mariadb.kill)
        return self._mariadb
