"""A relay in front of Redis that can swallow what its connections say, and stay connected."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress


class BlackHole:
    """Relays from its own port; connections made before :meth:`swallow` hear nothing more."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._age = 0
        self.held = b""  # what waits for ``let_go`` on its way to Redis
        self.let_go = threading.Event()
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def swallow(self) -> None:
        """From now on nothing passes on the connections there are; new ones work."""
        self._age += 1

    def close(self) -> None:
        for one in (self._listener, *self._sockets):
            one.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._target))
                self._sockets += [client, server]
                for one, other in ((client, server), (server, client)):
                    pump = threading.Thread(target=self._pump, args=(one, other, self._age))
                    pump.daemon = True
                    pump.start()

    def _pump(self, source: socket.socket, target: socket.socket, age: int) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if self.held and self.held in data:
                    self.let_go.wait(10)
                if age == self._age:
                    target.sendall(data)
            if age == self._age:
                target.shutdown(socket.SHUT_WR)
