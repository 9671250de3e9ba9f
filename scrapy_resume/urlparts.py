"""What the addresses of all servers share: how a URL is taken apart, what a host may be.

*setting* is what the names of its settings begin with (``RESUME_DATABASE`` for
``RESUME_DATABASE_URL``). A wrongly escaped URL may hide its password anywhere, so no
message repeats any of it.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from ipaddress import IPv6Address
from typing import NamedTuple
from urllib.parse import parse_qsl, quote_plus, unquote

from scrapy_resume.exceptions import ConfigurationError

_NOT_IN_A_URL = re.compile(r"[^A-Za-z0-9_.~:/?\[\]@!$&'()*+,;=%-]|%(?![0-9A-Fa-f]{2})")
_HOST_AND_PORT = re.compile(r"(\[[^\[\]]*\]|[^:\[\]]*)(?::(\d*))?")
_HOST_NAME = re.compile(r"[\w.-]+")


class UrlParts(NamedTuple):
    """A URL behind its ``scheme://``. *user* and *password* are raw, the rest as it stood."""

    user: str
    password: str | None  # None: there is no colon
    host_and_port: str
    path: str
    query: str


def split(setting: str, rest: str, how_to_escape: str) -> UrlParts:
    """Take *rest* of ``<setting>_URL`` apart. Raises ConfigurationError(*how_to_escape*)
    if a character of it must be escaped."""
    authority, tail = re.split(r"(?=[/?])|\Z", rest, maxsplit=1)
    login, _, host_and_port = authority.rpartition("@")
    # In what names a database other scripts and spaces mislead nobody, so they may stand there.
    strict = login + re.sub(r"[^\x00-\x7f]| ", "", tail)
    if _NOT_IN_A_URL.search(strict) or re.search(r"[@\[\]]", strict):
        raise ConfigurationError(how_to_escape)
    user, colon, password = login.partition(":")
    path, _, query = tail.partition("?")
    return UrlParts(
        decoded(setting, user),
        decoded(setting, password) if colon else None,
        host_and_port,
        path,
        query,
    )


def host_and_port(setting: str, text: str, example_port: int) -> tuple[str, int | None]:
    """The host, without brackets, and the port of ``HOST:PORT``. Raises ConfigurationError."""
    if text.count(":") > 1 and "[" not in text:
        raise ConfigurationError(
            f"{setting}_URL needs brackets around an IPv6 address, as in [::1]:{example_port}"
        )
    match = _HOST_AND_PORT.fullmatch(text)
    if match is None or not match[1]:
        raise ConfigurationError(
            f"{setting}_URL must name HOST or HOST:PORT, with a port from 1 to 65535"
        )
    port = int(match[2]) if match[2] else None
    if port is not None and not 1 <= port <= 65535:
        raise ConfigurationError(f"{setting}_URL must have a port from 1 to 65535")
    return bare_host(setting, match[1].replace("%25", "%")), port


def bare_host(setting: str, text: str) -> str:
    """The host without brackets. Raises ConfigurationError for anything but a bare host."""
    host = text.strip()
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if ":" in bare:
        try:
            return str(IPv6Address(bare))
        except ValueError:
            pass
    elif bare is host and _HOST_NAME.fullmatch(host):
        return host
    raise ConfigurationError(
        f"{setting}_HOST (or the host of {setting}_URL) must be one host name, IPv4"
        " address or IPv6 address; the port, user and database have settings of their own"
    )


def query(
    setting: str, text: str, how_to_escape: str, elsewhere: Collection[str], form: str
) -> tuple[tuple[str, str], ...]:
    """The options after the question mark; those of *elsewhere* belong into *form*."""
    try:
        options = tuple(parse_qsl(text, errors="strict"))
    except ValueError:
        raise ConfigurationError(how_to_escape) from None
    for name in sorted({key.lower() for key, _ in options}.intersection(elsewhere)):
        raise ConfigurationError(
            f"{setting}_URL has {name}= after the question mark; it belongs before it, as in {form}"
        )
    return options


def query_text(options: Collection[tuple[str, str]], *, hide: bool) -> list[str]:
    """Each of *options* as a URL has it; with *hide* passwords read ``***``."""
    return [
        f"{quote_plus(key)}={'***' if hide and 'password' in key else quote_plus(value)}"
        for key, value in options
    ]


def decoded(setting: str, text: str) -> str:
    """*text* without its percent escapes. Raises ConfigurationError if they are not UTF-8."""
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise ConfigurationError(
            f"{setting}_URL has percent escapes that are not UTF-8; urllib.parse.quote(text,"
            " safe='') writes them right"
        ) from None


def refuse_undecodable(setting: str, text: str | None) -> None:
    """Raise ConfigurationError if *text*, raw text of *setting*, cannot be encoded."""
    try:
        (text or "").encode()
    except UnicodeEncodeError:
        raise ConfigurationError(f"{setting} is not valid UTF-8 text") from None
