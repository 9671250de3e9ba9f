"""Database URLs: what is allowed, what is shown, and what the driver is told.

A wrong URL is refused here, before anything is sent to a wrong host.
"""

from __future__ import annotations

import hashlib
from typing import Any

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from scrapy_resume.exceptions import ConfigurationError

BUSY_TIMEOUT = 30.0  # seconds SQLite waits for another writer
CONNECT_TIMEOUT = 5.0  # seconds


def parse(url: str | URL) -> URL:
    """The URL with the driver we use. Raises ConfigurationError, repeating no secret."""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        raise ConfigurationError(
            "RESUME_DATABASE_URL is not a database URL; allowed are sqlite:////path/to/file.db and"
            " mysql+pymysql://user:password@host:port/name"
        ) from None
    backend = parsed.get_backend_name()
    if backend == "sqlite":
        if parsed.get_driver_name() != "pysqlite" or parsed.database in (None, "", ":memory:"):
            raise ConfigurationError(
                f"RESUME_DATABASE_URL is {redacted(parsed)}; SQLite needs a file,"
                " since a position kept in memory cannot be resumed"
            )
        return parsed
    if backend not in ("mysql", "mariadb"):
        raise ConfigurationError(
            f"RESUME_DATABASE_URL is {redacted(parsed)}; allowed are sqlite and mysql+pymysql"
        )
    _check_server(parsed)
    return parsed.set(drivername="mysql+pymysql")


def _check_server(url: URL) -> None:
    if any(sign in (url.host or "") for sign in "@/# "):
        raise ConfigurationError(
            "RESUME_DATABASE_URL has an '@', '/' or '#' in its password or user name; write it as"
            " %40, %2F or %23, or give the parts raw in RESUME_DATABASE_HOST, _USER and _PASSWORD"
        )
    if not url.database:
        raise ConfigurationError(
            f"RESUME_DATABASE_URL is {redacted(url)}; the database's name is missing at its end"
        )


def digest(url: URL, prefix: str) -> str:
    """What tells these tables from others while the database itself cannot be asked for its
    id: where they are and how they begin. The user and the password have no part in it."""
    where = url.host or url.query.get("unix_socket") or ""
    port = "" if url.get_backend_name() == "sqlite" else url.port or 3306
    text = "\x1f".join([url.get_backend_name(), str(where).lower(), str(port), url.database or ""])
    return hashlib.blake2b(f"{text}\x1f{prefix}".encode(), digest_size=16).hexdigest()


def redacted(url: URL) -> str:
    """*url* without its password and without options, which may hold secrets too."""
    return url.set(query={}).render_as_string(hide_password=True)


def connect_args(url: URL, network_timeout: float) -> dict[str, Any]:
    """What the driver is told besides the URL; *network_timeout* is in seconds."""
    if url.get_backend_name() == "sqlite":
        return {"timeout": BUSY_TIMEOUT, "isolation_level": None, "check_same_thread": False}
    args: dict[str, Any] = {
        # PyMySQL would encode a text as Latin-1; servers take passwords as UTF-8.
        "password": str(url.password or "").encode(),
        "connect_timeout": CONNECT_TIMEOUT,
        "read_timeout": network_timeout,
        "write_timeout": network_timeout,
        # A TLS context costs 20 ms of CPU at every connect, so it has to be asked for.
        "ssl_disabled": not any(key.startswith("ssl") for key in url.query),
    }
    return {key: value for key, value in args.items() if key not in url.query} | {
        "charset": "utf8mb4"
    }
