"""The end of all waiting for a server that does not answer.

A thread that waits for a frozen server can be told nothing, and a process does not end before
its threads. So their sockets are shut from another one: each call fails at once, as if the
connection had been lost, and no new one is made.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import Any
from weakref import WeakSet

from sqlalchemy import event
from sqlalchemy.engine import Engine


class Cutoff:
    """The connections of *engine*, to be cut by :meth:`make`."""

    def __init__(self, engine: Engine) -> None:
        self._made = False
        self._open: WeakSet[Any] = WeakSet()
        if engine.dialect.name != "sqlite":  # a file answers
            event.listen(engine, "do_connect", self._refuse)
            event.listen(engine, "connect", self._opened)

    def make(self) -> None:
        """Cut every connection, and let none be made. For any thread."""
        self._made = True
        for connection in list(self._open):
            self._shut(connection)

    def _refuse(self, dialect: Any, record: Any, args: Any, params: Any) -> None:
        if self._made:
            raise dialect.loaded_dbapi.OperationalError(2013, "the crawl waits no longer")

    def _opened(self, connection: Any, record: Any) -> None:
        self._open.add(connection)
        if self._made:
            self._shut(connection)

    def _shut(self, connection: Any) -> None:
        with suppress(OSError, AttributeError):  # it was closed meanwhile
            connection._sock.shutdown(socket.SHUT_RDWR)
