"""A TCP relay in front of MariaDB that can cut or hold a connection at a chosen statement.

It reads just enough of the protocol to see statements pass: a client's packet with
sequence number 0 and command 3 is one.
"""

from __future__ import annotations

import contextlib
import re
import socket
import threading
import time
from dataclasses import dataclass, field

_QUERY = 3


@dataclass
class Rule:
    """What to do with the next statement that matches, and what came of it.

    *action* is ``cut_before`` (the server never sees it), ``cut_after`` (the server
    executed it, the client never hears), ``hold`` (neither hears any more, both stay
    connected) or ``late`` (the client is cut off at once, the server gets the statement
    when :meth:`let_go` is called).
    """

    pattern: str
    action: str
    skip: int = 0
    met: threading.Event = field(default_factory=threading.Event)
    gone: threading.Event = field(default_factory=threading.Event)

    def let_go(self) -> None:
        """Pass on what ``late`` kept back."""
        self.gone.set()


class Proxy:
    """Relays connections from its own port to *target_port* on the loopback.

    :attr:`target` may change: like a host name that moves, it is looked at by new
    connections only. :attr:`statements` are those that passed, in order; each of them comes
    :attr:`delay` seconds late.
    """

    def __init__(self, target_port: int) -> None:
        self.target = target_port
        self.statements: list[str] = []
        self.delay = 0.0
        self._away = False
        self._rules: list[Rule] = []
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self._connections: list[_Connection] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.accepted = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def rule(self, pattern: str, action: str, *, skip: int = 0) -> Rule:
        """Treat the statement that matches *pattern* after *skip* others; once."""
        rule = Rule(pattern, action, skip)
        with self._lock:
            self._rules.append(rule)
        return rule

    def leave(self) -> None:
        """Cut every connection, and every new one, until :meth:`come_back`."""
        self._away = True
        with self._lock:
            sockets, self._sockets = self._sockets, set()
        for one in sockets:
            _cut(one)

    def swallow(self) -> int:
        """Make every connection a black hole, as a firewall does that forgot it; how many.

        New ones are relayed.
        """
        swallowed, self._connections = self._connections, []
        for one in swallowed:
            one.swallow()
        return len(swallowed)

    def come_back(self) -> None:
        """Relay again."""
        self._away = False

    def close(self) -> None:
        """Cut every connection and accept no more."""
        self._listener.close()
        with self._lock:
            rules = list(self._rules)
        for rule in rules:
            rule.let_go()
        self.leave()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.accepted += 1
            if self._away:
                client.close()
                continue
            server = socket.create_connection(("127.0.0.1", self.target))
            connection = _Connection(self, client, server)
            self._connections.append(connection)
            connection.start()

    def track(self, *sockets: socket.socket) -> None:
        with self._lock:
            self._sockets.update(sockets)

    def match(self, statement: str) -> Rule | None:
        """The rule for *statement*, taken off the list."""
        self.statements.append(statement)
        with self._lock:
            for rule in self._rules:
                if re.match(rule.pattern, statement, re.IGNORECASE):
                    if rule.skip == 0:
                        self._rules.remove(rule)
                        return rule
                    rule.skip -= 1
        return None


class _Connection:
    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy, self._client, self._server = proxy, client, server
        self._mute = threading.Event()  # nothing more reaches the client
        self._deaf = False  # nothing more reaches the server
        self._silenced: Rule | None = None
        proxy.track(client, server)

    def swallow(self) -> None:
        self._mute.set()
        self._deaf = True

    def start(self) -> None:
        threading.Thread(target=self._requests, daemon=True).start()
        threading.Thread(target=self._replies, daemon=True).start()

    def _requests(self) -> None:
        with contextlib.suppress(OSError):
            while (packet := _packet(self._client)) is not None:
                if self._deaf:
                    continue
                rule = self._rule(packet)
                if rule is not None and self._treat(rule, packet):
                    return
                if rule is None:
                    time.sleep(self._proxy.delay if _is_query(packet) else 0)
                    self._server.sendall(packet)
        self._end()

    def _rule(self, packet: bytes) -> Rule | None:
        if not _is_query(packet):
            return None
        return self._proxy.match(packet[5:5000].decode("utf-8", "replace"))

    def _treat(self, rule: Rule, packet: bytes) -> bool:
        """Do what *rule* says; True if this connection needs no more care."""
        if rule.action == "cut_before":
            rule.met.set()
            self._end()
        elif rule.action == "cut_after":
            self._silenced = rule
            self._mute.set()
            self._server.sendall(packet)
            rule.met.wait(30)
            self._end()
        elif rule.action == "hold":
            self._mute.set()
            rule.met.set()
        elif rule.action == "late":
            self._mute.set()
            _cut(self._client)
            rule.met.set()
            rule.gone.wait(60)
            with contextlib.suppress(OSError):
                self._server.sendall(packet)
        return True

    def _replies(self) -> None:
        with contextlib.suppress(OSError):
            while data := self._server.recv(65536):
                if not self._mute.is_set():
                    self._client.sendall(data)
                elif self._silenced is not None:
                    self._silenced.met.set()
        if not self._mute.is_set():
            self._end()

    def _end(self) -> None:
        _cut(self._client)
        _cut(self._server)


def _is_query(packet: bytes) -> bool:
    return packet[3] == 0 and len(packet) > 4 and packet[4] == _QUERY


def _packet(source: socket.socket) -> bytes | None:
    head = _exactly(source, 4)
    if head is None:
        return None
    body = _exactly(source, int.from_bytes(head[:3], "little"))
    return None if body is None else head + body


def _exactly(source: socket.socket, size: int) -> bytes | None:
    parts = b""
    while len(parts) < size:
        part = source.recv(size - len(parts))
        if not part:
            return None
        parts += part
    return parts


def _cut(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()
