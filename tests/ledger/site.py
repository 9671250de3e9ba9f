"""A small HTTP site on a free local port; what a URL does is said by its query.

``status=503`` answers so, ``fails=2`` answers 503 the first two times, ``breaks=1``
closes the connection the first time (``breaks=9``: always), ``to=URL`` redirects,
``once=1`` redirects to itself the first time, ``later=URL`` there from the second time
on, ``refresh=URL`` is a page with a meta refresh, ``wait=S`` answers late, ``after=N``
sends Retry-After.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlsplit

_ROBOTS = b"User-agent: *\nDisallow: /*/private\n"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        query = dict(parse_qsl(urlsplit(self.path).query))
        asked = self.server.asked  # type: ignore[attr-defined]
        asked[self.path] += 1
        if self.path == "/robots.txt":
            self._answer(200, body=_ROBOTS)
        elif int(query.get("breaks", 0)) >= asked[self.path]:
            self.close_connection = True
        else:
            time.sleep(float(query.get("wait", 0)))
            self._answer_query(query, asked[self.path])

    def _answer_query(self, query: dict[str, str], times: int) -> None:
        if int(query.get("fails", 0)) >= times:
            self._answer(503)
        elif "to" in query:
            self._answer(302, {"Location": query["to"]})
        elif "later" in query and times > 1:
            self._answer(302, {"Location": query["later"]})
        elif "once" in query and times == 1:
            self._answer(302, {"Location": self.path})
        elif "refresh" in query:
            tag = f'<meta http-equiv="refresh" content="0; url={query["refresh"]}">'
            self._answer(200, body=f"<html><head>{tag}</head></html>".encode())
        else:
            after = {"Retry-After": query["after"]} if "after" in query else {}
            self._answer(int(query.get("status", 200)), after)

    def _answer(
        self, status: int, headers: dict[str, str] | None = None, body: bytes = b"<html></html>"
    ) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        pass

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: Counter[str] = Counter()


def start_site() -> str:
    """Serve in a daemon thread; returns the base URL."""
    server = _Server()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_address[1]}"
