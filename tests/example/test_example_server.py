"""The server itself, alone and as a command."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from example_project.site import Site

ROOT = Path(__file__).parents[2]


def raw(site: Site, request: bytes) -> bytes:
    """What comes back for exactly these bytes until the server closes."""
    with socket.create_connection((site.host, site.port), timeout=10) as sock:
        sock.sendall(request)
        answer = b""
        while part := sock.recv(65536):
            answer += part
        return answer


def test_requests_of_one_connection_are_answered_in_order(site: Any) -> None:
    wanted = b"GET /item/k001 HTTP/1.1\r\n\r\nGET /item/k002?_delay=0.01 HTTP/1.1\r\n\r\n"
    answer = raw(site, wanted + b"GET /item/k003 HTTP/1.1\r\nConnection: close\r\n\r\n")
    assert answer.count(b"HTTP/1.1 200 OK") == 3
    assert answer.index(b">k001<") < answer.index(b">k002<") < answer.index(b">k003<")


def test_a_request_in_small_pieces(site: Any) -> None:
    with socket.create_connection((site.host, site.port), timeout=10) as sock:
        head = b"POST /search HTTP/1.1\r\nContent-Length: 6\r\nConnection: close\r\n\r\n"
        for byte in head + b"page=2":
            sock.sendall(bytes([byte]))
        assert b'"k011"' in sock.makefile("rb").read()


@pytest.mark.parametrize(
    "request_",
    [
        b"nonsense\r\n\r\n",
        b"GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
    ],
)
def test_bad_requests(site: Any, request_: bytes) -> None:
    assert raw(site, request_).startswith(b"HTTP/1.1 400 ")


def test_head_and_old_clients(site: Any) -> None:
    head = raw(site, b"HEAD /list?page=1 HTTP/1.1\r\nConnection: close\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200") and head.endswith(b"\r\n\r\n")
    assert raw(site, b"GET /list?page=1 HTTP/1.0\r\n\r\n").endswith(b"</html>\n")


def test_two_cookies_are_two_headers(site: Any) -> None:
    answer = raw(site, b"GET /start?currency=EUR HTTP/1.1\r\nConnection: close\r\n\r\n").decode()
    assert "Set-Cookie: session=s1; Path=/" in answer and "Set-Cookie: prefs=EUR:" in answer


def test_ipv6() -> None:
    with Site(host="::1") as site:
        assert site.url == f"http://[::1]:{site.port}"
        assert status(f"{site.url}/item/k001") == 200


def test_it_comes_back_at_the_same_address_with_the_same_contents() -> None:
    site = Site().start()
    url = site.url
    site.listing.delete("k001")
    held = site.behave(page=1, hold=True)
    site.stop()
    with pytest.raises(OSError):
        urlopen(url, timeout=1)
    held.release()
    with site.start():
        assert site.url == url and b"k002" in body(f"{url}/list?page=1")


def test_a_taken_port_is_an_error(site: Any) -> None:
    with pytest.raises(OSError):
        Site(port=site.port).start()


def test_the_command(tmp_path: Path) -> None:
    log = tmp_path / "requests.jsonl"
    options = ["--port", "0", "--log", str(log), "--pages", "3", "--past-end", "404"]
    options += ["--robots", "User-agent: *\\nDisallow: /"]
    options += ["--behave", '{"page": 2, "status": 503, "times": 1}']
    with subprocess.Popen(
        [sys.executable, "-m", "example_project.site", *options],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        try:
            assert body(f"{url}/robots.txt") == b"User-agent: *\nDisallow: /"
            assert [status(f"{url}/list?page={n}") for n in (2, 2, 4)] == [503, 200, 404]
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line["status"] for line in lines] == [200, 503, 200, 404]
    assert lines[1].pop("time") > 0
    asked = {"method": "GET", "path": "/list", "query": {"page": "2"}, "page": 2}
    assert lines[1] == {**asked, "body": "", "cookies": {}, "status": 503}


def test_the_command_says_what_is_wrong_with_an_address(site: Any) -> None:
    command = [sys.executable, "-m", "example_project.site", "--port", str(site.port)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and done.stderr.startswith(f"cannot serve {site.url}: ")
    assert "Traceback" not in done.stderr


def body(url: str) -> bytes:
    with urlopen(url, timeout=10) as answer:
        return bytes(answer.read())


def status(url: str) -> int:
    try:
        with urlopen(url, timeout=10) as answer:
            return int(answer.status)
    except HTTPError as exc:
        exc.close()
        return exc.code
