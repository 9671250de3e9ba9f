"""A process that has imported Scrapy and forks into ``scrapy`` commands.

A crawl of the tests takes a tenth of the time that Python needs to import Scrapy. Each
fork is a process of its own, with its own process id, reactor and end; it runs
``scrapy.cmdline.execute`` as ``python -m scrapy`` does, and waits for threads at its end.
"""

from __future__ import annotations

import asyncio
import atexit
import faulthandler
import gc
import json
import os
import pkgutil
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from scrapy.cmdline import execute
from scrapy.settings import default_settings
from scrapy.utils.misc import load_object

_PACKAGES = ("scrapy.commands", "scrapy_resume", "scrapy_resume.store")
_MODULES = (
    "alembic.command",
    "mako.template",
    "pymysql",
    "scrapy.cmdline",
    "scrapy.core.engine",
    "scrapy.shell",
    "sqlalchemy.dialects.mysql",
    "sqlalchemy.dialects.sqlite",
    "twisted.web.client",
)
_COMPONENTS = (
    "DOWNLOADER_MIDDLEWARES_BASE",
    "DOWNLOAD_HANDLERS_BASE",
    "EXTENSIONS_BASE",
    "SPIDER_MIDDLEWARES_BASE",
)


class Forked:
    """A command that runs: what the tests use of :class:`subprocess.Popen`."""

    def __init__(self, pid: int, channel: socket.socket) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._over = threading.Event()
        threading.Thread(target=self._await, args=(channel,), daemon=True).start()

    def _await(self, channel: socket.socket) -> None:
        with channel:
            self.returncode = int(channel.recv(32) or b"-1")
        self._over.set()

    def poll(self) -> int | None:
        return self.returncode if self._over.is_set() else None

    def wait(self, timeout: float | None = None) -> int | None:
        if not self._over.wait(timeout):
            raise subprocess.TimeoutExpired("scrapy", timeout or 0)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if not self._over.is_set():
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(9)


class ForkServer:
    """Starts the process, and commands in it. Close it when the tests are over."""

    def __init__(self, root: Path) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        env = {k: v for k, v in os.environ.items() if not k.startswith(("RESUME_", "SCRAPY_"))}
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env={**env, "PYTHONPATH": str(root)},
                cwd=root,
            )
        self._socket = ours
        self._lock = threading.Lock()

    def start(self, words: list[str], cwd: Path, env: Mapping[str, str], log: Path) -> Forked:
        """Run ``scrapy`` with *words* in a process of its own."""
        order = json.dumps({"words": words, "cwd": str(cwd), "env": dict(env), "log": str(log)})
        with self._lock:
            self._socket.sendall(order.encode())
            reply, fds, _, _ = socket.recv_fds(self._socket, 64, 1)
        return Forked(int(reply), socket.socket(fileno=fds[0]))

    def close(self) -> None:
        self._socket.close()
        self._process.wait()


def _serve(server: socket.socket) -> Callable[[], Any] | None:
    """Fork for each order; returns in the child, with what it has to do. None: it is over."""
    supervisors: set[int] = set()
    while order := server.recv(1 << 20):
        mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pid = os.fork()
        if pid == 0:
            server.close()
            theirs.close()
            return lambda: _supervise(mine, json.loads(order))
        mine.close()
        with theirs:
            socket.send_fds(server, [theirs.recv(64)], [theirs.fileno()])
        supervisors.add(pid)
        supervisors -= {one for one in supervisors if os.waitpid(one, os.WNOHANG)[0]}
    return None


def _supervise(channel: socket.socket, order: dict[str, Any]) -> Callable[[], Any]:
    """Fork once more: one process waits for the command and says how it ended."""
    pid = os.fork()
    if pid == 0:
        channel.close()
        return lambda: _become(order)
    channel.send(str(pid).encode())
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    channel.send(str(code).encode())
    os._exit(0)


def _become(order: dict[str, Any]) -> None:
    out = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for fd in (1, 2):
        os.dup2(out, fd)
    os.close(out)
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["env"])
    sys.path.insert(0, order["cwd"])
    sys.argv[:] = ["scrapy", *order["words"]]
    signal.signal(signal.SIGUSR1, _show_what_waits)
    code = 0
    try:
        execute(sys.argv)
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(bool(stop.code))
    except BaseException:
        traceback.print_exc()
        code = 1
    # As the interpreter ends, but for taking the shared memory apart object by object.
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _show_what_waits(*_: object) -> None:
    """Print every thread and every task: for a crawl that does not end."""
    faulthandler.dump_traceback(all_threads=True)
    for one in gc.get_objects():
        if isinstance(one, asyncio.Task) and not one.done():
            one.print_stack()
    sys.stderr.flush()


def _preload() -> None:
    for name in _MODULES:
        import_module(name)
    for package in _PACKAGES:
        for module in pkgutil.iter_modules(import_module(package).__path__):
            import_module(f"{package}.{module.name}")
    for setting in _COMPONENTS:
        for key, value in getattr(default_settings, setting).items():
            load_object(value if setting == "DOWNLOAD_HANDLERS_BASE" else key)
    for setting in ("SCHEDULER", "DUPEFILTER_CLASS", "STATS_CLASS", "LOG_FORMATTER"):
        load_object(getattr(default_settings, setting))
    assert "twisted.internet.reactor" not in sys.modules


def main() -> None:
    server = socket.socket(fileno=int(sys.argv[1]))
    _preload()
    gc.freeze()
    step: Any = _serve(server)
    while step is not None:
        step = step()


if __name__ == "__main__":
    main()
