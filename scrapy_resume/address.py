"""Database addresses: checked before any network access, kept in one normal form.

An address comes as one URL, where characters with a meaning of their own are
percent-escaped, or as separate raw parts. A wrongly escaped URL would silently move
the host (``u:p@ss@db`` names the host ``ss@db``), so whatever is not plainly right is
refused here. Such a URL may hide its password anywhere: no message repeats any of it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from ipaddress import IPv6Address
from pathlib import Path
from urllib.parse import parse_qsl, quote, quote_plus, unquote

from scrapy_resume.exceptions import ConfigurationError

_MYSQL = frozenset({"mysql", "mysql+pymysql", "mariadb", "mariadb+pymysql"})
_SQLITE = frozenset({"sqlite", "sqlite+pysqlite"})
_NOT_IN_A_URL = re.compile(r"[^A-Za-z0-9_.~:/?\[\]@!$&'()*+,;=%-]|%(?![0-9A-Fa-f]{2})")
_HOST_AND_PORT = re.compile(r"(\[[^\[\]]*\]|[^:\[\]]*)(?::(\d*))?")
_HOST_NAME = re.compile(r"[\w.-]+")
_ONLY_BEFORE_THE_QUERY = frozenset(
    {"user", "password", "passwd", "host", "port", "database", "db"}
)  # fmt: skip
_HOW_TO_ESCAPE = (
    "RESUME_DATABASE_URL has a character that must be percent-escaped: in the user name,"
    " password and database name write @ as %40, / as %2F, : as %3A, # as %23, ? as %3F, % as %25"
    " and a space as %20 (urllib.parse.quote(text, safe='') does it), or set"
    " RESUME_DATABASE_HOST, RESUME_DATABASE_USER, RESUME_DATABASE_PASSWORD and"
    " RESUME_DATABASE_NAME instead, which take the raw text"
)


@dataclass(frozen=True)
class DatabaseAddress:
    """One database, as raw parts. *driver* is ``mysql+pymysql`` or ``sqlite``.

    *database* is the name, or the file's path for SQLite, which has no host. An IPv6
    *host* stands without brackets.
    """

    driver: str
    database: str
    host: str | None = None
    port: int | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    query: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @classmethod
    def parse(cls, url: str) -> DatabaseAddress:
        """Read RESUME_DATABASE_URL. Raises ConfigurationError, which repeats nothing of it."""
        scheme, found, rest = url.lstrip().partition("://")
        if found and scheme.lower() in _SQLITE:
            return _parse_sqlite(rest)
        if found and scheme.lower() in _MYSQL:
            return _parse_mysql(rest)
        raise ConfigurationError(
            "RESUME_DATABASE_URL must begin with mysql+pymysql:// (mysql:// and mariadb:// mean"
            " the same) or sqlite:///"
        )

    @classmethod
    def of_parts(
        cls,
        *,
        host: str | None,
        name: str | None,
        port: int | None = None,
        user: str | None = None,
        password: str | None = None,
    ) -> DatabaseAddress:
        """A MySQL or MariaDB address of raw parts. Raises ConfigurationError."""
        if not host or not name:
            raise ConfigurationError(
                "RESUME_DATABASE_HOST and RESUME_DATABASE_NAME are both needed when the database"
                " address is given in parts"
            )
        if password and not user:
            raise ConfigurationError("RESUME_DATABASE_PASSWORD needs RESUME_DATABASE_USER too")
        for setting, text in (("USER", user), ("PASSWORD", password), ("NAME", name)):
            _refuse_undecodable(f"RESUME_DATABASE_{setting}", text)
        return cls("mysql+pymysql", name, _read_host(host), port, user or None, password or None)

    @classmethod
    def of_file(cls, path: Path) -> DatabaseAddress:
        """The SQLite database in the file *path*."""
        return cls("sqlite", str(path.absolute()))

    @property
    def url(self) -> str:
        """The normal form, which SQLAlchemy reads back to the same parts; holds the password."""
        return self._render(self.password and quote(self.password, safe=""), hide=False)

    @property
    def redacted_url(self) -> str:
        """The normal form with ``***`` for the password: for logs and people."""
        return self._render(self.password and "***", hide=True)

    def _render(self, password: str | None, *, hide: bool) -> str:
        user = "" if self.user is None else quote(self.user, safe="")
        login = f"{user}:{password}@" if password else f"{user}@" if user else ""
        host = f"[{self.host}]" if self.host and ":" in self.host else self.host or ""
        port = "" if self.port is None else f":{self.port}"
        # SQLAlchemy 2.0 does not unquote this part, so only what would be misread is escaped.
        escaped = "[%?]" if self.driver == "sqlite" else r"[^\w .-]"
        database = re.sub(escaped, lambda c: quote(c[0], safe=""), self.database)
        query = "&".join(
            f"{quote_plus(key)}={'***' if hide and 'password' in key else quote_plus(value)}"
            for key, value in self.query
        )
        return f"{self.driver}://{login}{host}{port}/{database}" + (f"?{query}" if query else "")


def _parse_sqlite(rest: str) -> DatabaseAddress:
    path, _, query = rest.partition("?")
    if not path.startswith("/") or path in {"/", "/:memory:"}:
        raise ConfigurationError(
            "RESUME_DATABASE_URL must name a file after sqlite:/// (four slashes for an absolute"
            " path); a database in memory would be gone with the process"
        )
    file = Path(_unquote(path[1:])).absolute()
    return DatabaseAddress("sqlite", str(file), query=_read_query(query))


def _parse_mysql(rest: str) -> DatabaseAddress:
    authority, tail = re.split(r"(?=[/?])|\Z", rest, maxsplit=1)
    login, _, host_and_port = authority.rpartition("@")
    # In the database's name other scripts and spaces mislead nobody, so they may stand there.
    strict = login + re.sub(r"[^\x00-\x7f]| ", "", tail)
    if _NOT_IN_A_URL.search(strict) or re.search(r"[@\[\]]", strict):
        raise ConfigurationError(_HOW_TO_ESCAPE)
    user, _, password = login.partition(":")
    if password and not user:
        raise ConfigurationError("RESUME_DATABASE_URL has a password but no user name")
    host, port = _read_host_and_port(host_and_port)
    path, _, query = tail.partition("?")
    if not path.strip("/"):
        raise ConfigurationError("RESUME_DATABASE_URL names no database after the host's slash")
    return DatabaseAddress(
        "mysql+pymysql",
        _unquote(path[1:]),
        host,
        port,
        _unquote(user) or None,
        _unquote(password) or None,
        _read_query(query),
    )


def _read_host_and_port(text: str) -> tuple[str, int | None]:
    if text.count(":") > 1 and "[" not in text:
        raise ConfigurationError(
            "RESUME_DATABASE_URL needs brackets around an IPv6 address, as in [::1]:3306"
        )
    match = _HOST_AND_PORT.fullmatch(text)
    if match is None or not match[1]:
        raise ConfigurationError(
            "RESUME_DATABASE_URL must name HOST or HOST:PORT, with a port from 1 to 65535"
        )
    port = int(match[2]) if match[2] else None
    if port is not None and not 1 <= port <= 65535:
        raise ConfigurationError("RESUME_DATABASE_URL must have a port from 1 to 65535")
    return _read_host(match[1].replace("%25", "%")), port


def _read_host(text: str) -> str:
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
        "RESUME_DATABASE_HOST (or the host of RESUME_DATABASE_URL) must be one host name, IPv4"
        " address or IPv6 address; the port, user and database have settings of their own"
    )


def _read_query(text: str) -> tuple[tuple[str, str], ...]:
    try:
        query = tuple(parse_qsl(text, errors="strict"))
    except ValueError:
        raise ConfigurationError(_HOW_TO_ESCAPE) from None
    for name in _ONLY_BEFORE_THE_QUERY.intersection(key.lower() for key, _ in query):
        raise ConfigurationError(
            f"RESUME_DATABASE_URL has {name}= after the question mark; it belongs before it, as in"
            " mysql+pymysql://USER:PASSWORD@HOST:PORT/NAME"
        )
    return query


def _unquote(text: str) -> str:
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise ConfigurationError(
            "RESUME_DATABASE_URL has percent escapes that are not UTF-8; urllib.parse.quote(text,"
            " safe='') writes them right"
        ) from None


def _refuse_undecodable(setting: str, text: str | None) -> None:
    try:
        (text or "").encode()
    except UnicodeEncodeError:
        raise ConfigurationError(f"{setting} is not valid UTF-8 text") from None
