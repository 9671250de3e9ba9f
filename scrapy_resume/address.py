"""Database addresses: checked before any network access, kept in one normal form.

An address comes as one URL, where characters with a meaning of their own are
percent-escaped, or as separate raw parts. A wrongly escaped URL would silently move
the host (``u:p@ss@db`` names the host ``ss@db``), so whatever is not plainly right is
refused here. Such a URL may hide its password anywhere: no message repeats any of it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from scrapy_resume import urlparts
from scrapy_resume.exceptions import ConfigurationError

_MYSQL = frozenset({"mysql", "mysql+pymysql", "mariadb", "mariadb+pymysql"})
_SQLITE = frozenset({"sqlite", "sqlite+pysqlite"})
_SETTING = "RESUME_DATABASE"
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
            urlparts.refuse_undecodable(f"RESUME_DATABASE_{setting}", text)
        bare = urlparts.bare_host(_SETTING, host)
        return cls("mysql+pymysql", name, bare, port, user or None, password or None)

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
        query = "&".join(urlparts.query_text(self.query, hide=hide))
        return f"{self.driver}://{login}{host}{port}/{database}" + (f"?{query}" if query else "")


def _parse_sqlite(rest: str) -> DatabaseAddress:
    path, _, query = rest.partition("?")
    if not path.startswith("/") or path in {"/", "/:memory:"}:
        raise ConfigurationError(
            "RESUME_DATABASE_URL must name a file after sqlite:/// (four slashes for an absolute"
            " path); a database in memory would be gone with the process"
        )
    file = Path(urlparts.decoded(_SETTING, path[1:])).absolute()
    return DatabaseAddress("sqlite", str(file), query=_read_query(query))


def _parse_mysql(rest: str) -> DatabaseAddress:
    parts = urlparts.split(_SETTING, rest, _HOW_TO_ESCAPE)
    if parts.password and not parts.user:
        raise ConfigurationError("RESUME_DATABASE_URL has a password but no user name")
    host, port = urlparts.host_and_port(_SETTING, parts.host_and_port, 3306)
    if not parts.path.strip("/"):
        raise ConfigurationError("RESUME_DATABASE_URL names no database after the host's slash")
    return DatabaseAddress(
        "mysql+pymysql",
        urlparts.decoded(_SETTING, parts.path[1:]),
        host,
        port,
        parts.user or None,
        parts.password or None,
        _read_query(parts.query),
    )


def _read_query(text: str) -> tuple[tuple[str, str], ...]:
    form = "mysql+pymysql://USER:PASSWORD@HOST:PORT/NAME"
    return urlparts.query(_SETTING, text, _HOW_TO_ESCAPE, _ONLY_BEFORE_THE_QUERY, form)
