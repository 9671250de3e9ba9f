"""Private servers for the tests: MariaDB and Redis as child processes on free ports.

Nothing of the machine's own servers is touched: data lives in a temporary directory,
only processes started here are stopped. A server that cannot be had fails the run.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import pymysql
import redis

from tests.programs import program

START_TIMEOUT = 60.0  # seconds
_RUN_TOKEN = f"{os.getpid():x}{int(time.time()) & 0xFFFF:x}"


class Service(ABC):
    """A child process that can be started, killed and frozen."""

    name = ""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.host = "127.0.0.1"
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None
        home.mkdir(parents=True, exist_ok=True)
        self.log = home / f"{self.name}.log"
        atexit.register(self.discard)

    @abstractmethod
    def command(self) -> list[str]:
        """What starts it."""

    @abstractmethod
    def answers(self) -> bool:
        """Whether it takes connections now."""

    def start(self) -> None:
        """Start, or start again on the same port and data; returns once it answers."""
        assert self.process is None or self.process.poll() is not None, "it runs already"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command(), stdout=log, stderr=log, cwd=self.home, start_new_session=True,
                preexec_fn=_die_with_parent if sys.platform == "linux" else None,
            )  # fmt: skip
        deadline = time.monotonic() + START_TIMEOUT
        while not self.answers():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{self.name} did not start; see the end of {self.log}:\n"
                                   + self.log.read_text(errors="replace")[-2000:])  # fmt: skip
            time.sleep(0.02)

    def stop(self) -> None:
        """Stop it in order and wait for it."""
        if self.process is not None and self.process.poll() is None:
            self.thaw()
            self.process.terminate()
            self.process.wait(START_TIMEOUT)

    def kill(self) -> None:
        """SIGKILL, and wait for it."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait(START_TIMEOUT)

    def discard(self) -> None:
        """Kill it and delete what it kept."""
        self.kill()

    def freeze(self) -> None:
        """SIGSTOP: it keeps its connections and answers nothing."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)


class MariaDB(Service):
    """A MariaDB server; user ``root`` with no password, on TCP and on a socket."""

    name = "mariadb"

    def __init__(self, home: Path, *options: str, host: str = "127.0.0.1") -> None:
        super().__init__(home)
        self.host = host
        self.options = options
        self.data = _scratch(home) / "data"
        # The path of a Unix socket has a limit of about 100 characters.
        self.socket = Path(tempfile.gettempdir()) / f"resume-{_RUN_TOKEN}-{self.port}.sock"
        if not self.data.exists():
            shutil.copytree(initialised_data(), self.data)

    def command(self) -> list[str]:
        user = ["--user=root"] if os.geteuid() == 0 else []
        return [
            program("mariadbd", "mariadb-server"),
            "--no-defaults",
            f"--datadir={self.data}",
            f"--tmpdir={self.data.parent}",  # at its start a server tidies this up, for all
            f"--socket={self.socket}",
            f"--pid-file={self.home / 'mariadb.pid'}",
            f"--port={self.port}",
            f"--bind-address={self.host}",
            *user,
            "--performance-schema=OFF",
            "--innodb-buffer-pool-size=64M",
            "--innodb-log-file-size=32M",
            "--innodb-flush-log-at-trx-commit=1",
            "--innodb-use-native-aio=0",  # the kernel grants all servers together only so much
            "--skip-name-resolve",
            "--skip-log-bin",
            "--max-connections=200",
            "--plugin-maturity=stable",
            *self.options,
        ]

    def answers(self) -> bool:
        try:
            self.connect().close()
        except pymysql.err.OperationalError:
            return False
        return True

    def discard(self) -> None:
        super().discard()
        self.socket.unlink(missing_ok=True)
        shutil.rmtree(self.data.parent, ignore_errors=True)

    def connect(self, database: str | None = None) -> pymysql.connections.Connection:
        """A connection of the driver, for what the product itself must not do."""
        return pymysql.connect(
            host=self.host, port=self.port, user="root", database=database, autocommit=True,
            connect_timeout=5, read_timeout=60, write_timeout=60, ssl_disabled=True,
        )  # fmt: skip

    def execute(self, sql: str, *args: object, database: str | None = None) -> list[tuple]:
        """Run one statement on a connection of its own; returns its rows."""
        connection = self.connect(database)
        try:
            with connection.cursor() as cursor:
                cursor.execute(sql, args or None)
                return list(cursor.fetchall())
        finally:
            connection.close()

    def url(self, database: str, *, port: int | None = None, user: str = "root") -> str:
        """The address of *database*; *port* of a proxy in front of the server."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"mysql+pymysql://{user}@{host}:{port or self.port}/{database}"

    def connections(self) -> int:
        """How many clients are connected, the asking one not counted."""
        others = self.execute(
            "SELECT id FROM information_schema.processlist"
            " WHERE user <> 'system user' AND id <> CONNECTION_ID()"
        )
        return len(others)


class Redis(Service):
    """A Redis server without persistence; *options* as redis-server takes them."""

    name = "redis"

    def __init__(self, home: Path, *options: str, host: str = "127.0.0.1") -> None:
        super().__init__(home)
        self.host = host
        self.options = options

    def command(self) -> list[str]:
        return [
            program("redis-server", "redis-server"),
            "--port", str(self.port),
            "--bind", self.host,
            "--save", "",
            "--appendonly", "no",
            "--dir", str(self.home),
            *self.options,
        ]  # fmt: skip

    def answers(self) -> bool:
        try:
            return bool(self.client().ping())
        except redis.AuthenticationError:
            return True
        except (redis.ConnectionError, redis.TimeoutError):
            return False

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"redis://{host}:{self.port}/0"

    def client(self, **options: Any) -> redis.Redis:
        return redis.Redis(
            host=self.host, port=self.port, socket_timeout=5, socket_connect_timeout=5, **options
        )


def _die_with_parent() -> None:
    """Have the kernel kill this process when the tests end, however they end."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def _scratch(home: Path) -> Path:
    """Where a server's data goes: memory if there is room, since the tests kill processes and
    never the machine; a loaded disk would only make them slow."""
    memory = Path("/dev/shm")
    if os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > 2 << 30:
        return Path(tempfile.mkdtemp(prefix="resume-mariadb-", dir=memory))
    return Path(tempfile.mkdtemp(prefix="data-", dir=home))


def free_port() -> int:
    """A TCP port of the loopback that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


_initialised: Path | None = None


def initialised_data() -> Path:
    """A MariaDB data directory as installed, made once per test run and then copied."""
    global _initialised
    if _initialised is None:
        home = Path(tempfile.mkdtemp(prefix="resume-mariadb-"))
        atexit.register(shutil.rmtree, home, ignore_errors=True)
        user = ["--user=root"] if os.geteuid() == 0 else []
        command = [
            program("mariadb-install-db", "mariadb-server"), "--no-defaults",
            f"--datadir={home / 'data'}", "--auth-root-authentication-method=normal",
            "--skip-test-db", "--innodb-log-file-size=32M", "--innodb-use-native-aio=0", *user,
        ]  # fmt: skip
        # Servers that start meanwhile tidy up the temporary directory they share.
        env = {**os.environ, "TMPDIR": str(home)}
        done = subprocess.run(command, capture_output=True, text=True, env=env)
        if done.returncode:
            said = (done.stderr + done.stdout)[:3000]
            raise RuntimeError(f"mariadb-install-db failed: {said}")
        _initialised = home / "data"
    return _initialised
