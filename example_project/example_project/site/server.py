"""HTTP/1.1 over asyncio: small, quick, and able to break off as real servers do."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from example_project.site.behaviour import Rule
from example_project.site.log import Served
from example_project.site.message import Request, Response, parse_head

if TYPE_CHECKING:
    from typing_extensions import Self

MAX_HEAD, MAX_BODY = 64 * 1024, 4 * 1024 * 1024
logger = logging.getLogger(__name__)


class Server(ABC):
    """Listens in a thread of its own (as a context manager), or in an event loop given.

    *delay* holds every answer back (seconds). *port* 0 takes a free one, and keeps it
    over a :meth:`stop` and :meth:`start`.
    """

    def __init__(self, host: str, port: int, delay: float) -> None:
        self.host, self.port, self.delay = host, port, delay
        self.connections: set[Connection] = set()
        self._thread: threading.Thread | None = None

    @abstractmethod
    def arrive(self, request: Request) -> tuple[Served, Rule]:
        """Note a request and decide which rule strikes it."""

    @abstractmethod
    def respond(self, request: Request, rule: Rule) -> Response:
        """The answer. Raises ValueError for a request that makes no sense."""

    @abstractmethod
    def answered(self, served: Served, status: int) -> None:
        """Note how a request ended; status 0: without an answer."""

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def start(self) -> Self:
        """Serve from a thread. Raises OSError if the address is not to be had."""
        if self._thread is not None:
            return self
        ready: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, args=(ready,), daemon=True)
        self._thread.start()
        try:
            ready.result()
        except OSError:
            self._thread = None
            raise
        return self

    def stop(self) -> None:
        """Stop serving and drop all connections."""
        if self._thread is not None:
            self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join()
            self._thread = None

    def _run(self, ready: Future[None]) -> None:
        try:
            asyncio.run(self.serve(lambda: ready.set_result(None)))
        except OSError as exc:
            ready.set_exception(exc)

    async def serve(self, ready: Callable[[], object]) -> None:
        """Serve in this event loop until cancelled or stopped; calls *ready* when bound."""
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        server = await self._loop.create_server(
            lambda: Connection(self), self.host, self.port, backlog=1024
        )
        self.port = server.sockets[0].getsockname()[1]
        ready()
        try:
            await self._stopping.wait()
        finally:
            server.close()
            for connection in list(self.connections):
                connection.abort()
            await asyncio.sleep(0)  # lets them end


class Connection(asyncio.Protocol):
    """One client's connection. Requests are answered one after the other."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._buffer = bytearray()
        self._current: Served | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._server.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.connections.discard(self)
        if self._current is not None:
            self._server.answered(self._current, 0)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self._go_on()

    def abort(self) -> None:
        self._transport.abort()

    def _go_on(self) -> None:
        try:
            while self._current is None and (request := self._take()) is not None:
                self._receive(request)
        except ValueError:
            self._transport.write(Response(b"Bad request", 400).encode(close=True))
            self._transport.close()

    def _take(self) -> Request | None:
        """The next complete request of the buffer. Raises ValueError if it is none."""
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self._buffer) > MAX_HEAD:
                raise ValueError("head too long")
            return None
        request = parse_head(self._buffer[:end].decode("latin-1"))
        length = int(request.headers.get("content-length", 0))
        if not 0 <= length <= MAX_BODY or "transfer-encoding" in request.headers:
            raise ValueError("body too long, or of unknown length")
        if len(self._buffer) < end + 4 + length:
            return None
        request.body = bytes(self._buffer[end + 4 : end + 4 + length])
        del self._buffer[: end + 4 + length]
        return request

    def _receive(self, request: Request) -> None:
        served, rule = self._server.arrive(request)
        self._current = served
        later = partial(self._answer_late, request, served, rule)
        if rule.hold and rule.park(partial(self._from_other_thread, later)):
            return
        delay = rule.delay or self._server.delay
        if delay:
            self._loop.call_later(delay, later)
        else:
            self._answer(request, served, rule)

    def _from_other_thread(self, later: Callable[[], object]) -> None:
        with suppress(RuntimeError):  # the server was stopped meanwhile
            self._loop.call_soon_threadsafe(later)

    def _answer_late(self, request: Request, served: Served, rule: Rule) -> None:
        if not self._transport.is_closing():
            self._answer(request, served, rule)
            self._go_on()

    def _answer(self, request: Request, served: Served, rule: Rule) -> None:
        self._current = None
        if rule.reset:
            self._server.answered(served, 0)
            return self._reset()
        response = self._respond(request, rule)
        self._server.answered(served, response.status)
        wire = response.encode(close=request.close, with_body=request.method != "HEAD")
        self._transport.write(wire[: -max(1, len(response.body) // 2)] if rule.cut else wire)
        if request.close or rule.cut:
            self._transport.close()

    def _respond(self, request: Request, rule: Rule) -> Response:
        try:
            return self._server.respond(request, rule)
        except ValueError:
            return Response(b"Bad request", 400)
        except Exception:
            logger.exception("The site failed at %s", request.target)
            return Response(b"The site failed", 500)

    def _reset(self) -> None:
        """End with RST instead of FIN."""
        sock = self._transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._transport.abort()
