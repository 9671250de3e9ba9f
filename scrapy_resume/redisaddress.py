"""Redis addresses: checked before any network access, kept in one normal form.

redis-py itself overlooks what is wrong with an address: it takes ``redis://secret@host``
for a user without a password and an unreadable database number for 0. Whatever is not
plainly right is refused here, with a sentence that repeats nothing of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from scrapy_resume import urlparts
from scrapy_resume.exceptions import ConfigurationError

OFF = "off"  # RESUME_REDIS_URL=off: no Redis, whatever other settings say

_SETTING = "RESUME_REDIS"
_SCHEMES = frozenset({"redis", "rediss", "unix"})
_ONLY_BEFORE_THE_QUERY = frozenset({"username", "user", "password", "host", "port", "path"})
_FORMS = "redis://USER:PASSWORD@HOST:PORT/NUMBER or unix://USER:PASSWORD@/PATH?db=NUMBER"


@dataclass(frozen=True)
class RedisAddress:
    """One Redis server and database number, as raw parts.

    *scheme* is ``redis``, ``rediss`` (TLS) or ``unix``; *host* is the socket's path for
    ``unix``. An IPv6 host stands without brackets.
    """

    scheme: str
    host: str
    port: int | None = None
    db: int = 0
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    query: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @classmethod
    def parse(cls, url: str, setting: str = _SETTING) -> RedisAddress:
        """Read ``<setting>_URL``. Raises ConfigurationError, which repeats nothing of it."""
        scheme, found, rest = url.strip().partition("://")
        scheme = scheme.lower()
        if not found or scheme not in _SCHEMES:
            raise ConfigurationError(
                f"{setting}_URL must begin with redis://, rediss:// (TLS) or unix://"
            )
        parts = urlparts.split(setting, rest, _how_to_escape(setting))
        if parts.user and parts.password is None:
            raise ConfigurationError(
                f"{setting}_URL has a user name but no password; a password alone stands behind a"
                f" colon, as in {scheme}://:PASSWORD@HOST"
            )
        options = urlparts.query(
            setting, parts.query, _how_to_escape(setting), _ONLY_BEFORE_THE_QUERY, _FORMS
        )
        host, port, number = _place(setting, scheme, parts)
        number = dict(options).get("db", number)
        options = tuple(option for option in options if option[0] != "db")
        login = (parts.user or None, parts.password or None)
        return cls(scheme, host, port, _number(setting, number), *login, options)

    @classmethod
    def of_parts(
        cls,
        *,
        host: str | None,
        port: int | None = None,
        db: int | None = None,
        user: str | None = None,
        password: str | None = None,
        tls: bool = False,
    ) -> RedisAddress:
        """An address of raw parts; a *host* that begins with a slash is a Unix socket's path.

        Raises ConfigurationError.
        """
        if not host:
            raise ConfigurationError(
                "RESUME_REDIS_HOST is needed when the address of Redis is given in parts"
            )
        for setting, text in (("USER", user), ("PASSWORD", password), ("HOST", host)):
            urlparts.refuse_undecodable(f"{_SETTING}_{setting}", text)
        login = (user or None, password or None)
        if host.startswith("/"):
            return cls("unix", host, None, db or 0, *login)
        bare = urlparts.bare_host(_SETTING, host)
        return cls("rediss" if tls else "redis", bare, port, db or 0, *login)

    @classmethod
    def given(
        cls, url: str | None, parts: Mapping[str, Any], *, tls: bool = False
    ) -> RedisAddress | None:
        """What ``RESUME_REDIS_URL`` or the settings of its parts say; None: no Redis by them.

        Raises ConfigurationError, also if both are given.
        """
        named = [f"{_SETTING}_{part.upper()}" for part in parts if parts[part] not in (None, "")]
        if url == OFF or not (url or named):
            return None
        if not named:
            address = cls.parse(str(url))
            if tls and address.scheme == "redis":
                raise ConfigurationError(
                    "RESUME_REDIS_TLS is true, but RESUME_REDIS_URL begins with redis://; with TLS"
                    " it begins with rediss://"
                )
            return address
        address = cls.of_parts(**parts, tls=tls)
        # Equal only when the settings were made from others, as dataclasses.replace does.
        if url and url != address.url:
            raise ConfigurationError(
                f"RESUME_REDIS_URL and {', '.join(named)} are both set (environment variables"
                " count); give the address either as a URL or in parts"
            )
        return address

    @property
    def url(self) -> str:
        """The normal form, which redis-py reads back to the same parts; holds the password."""
        return self._render(quote(self.password or "", safe=""), hide=False)

    @property
    def redacted_url(self) -> str:
        """The normal form with ``***`` for the password: for logs and people."""
        return self._render("***" if self.password else "", hide=True)

    def _render(self, password: str, *, hide: bool) -> str:
        user = quote(self.user or "", safe="")
        login = f"{user}:{password}@" if user or password else ""
        options = urlparts.query_text(self.query, hide=hide)
        if self.scheme == "unix":
            where = quote(self.host)
            options.insert(0, f"db={self.db}")
        else:
            host = f"[{self.host.replace('%', '%25')}]" if ":" in self.host else self.host
            where = host + ("" if self.port is None else f":{self.port}") + f"/{self.db}"
        return f"{self.scheme}://{login}{where}" + (f"?{'&'.join(options)}" if options else "")


def _place(setting: str, scheme: str, parts: urlparts.UrlParts) -> tuple[str, int | None, str]:
    """Host (or socket), port and database number, the last one as it is written."""
    if scheme != "unix":
        host, port = urlparts.host_and_port(setting, parts.host_and_port, 6379)
        return host, port, parts.path[1:] or "0"
    if parts.host_and_port or not parts.path.strip("/"):
        raise ConfigurationError(
            f"{setting}_URL must name the socket's absolute path after unix://, as in"
            " unix:///run/redis.sock?db=0"
        )
    return urlparts.decoded(setting, parts.path), None, "0"


def _number(setting: str, text: str) -> int:
    if re.fullmatch(r"[0-9]{1,5}", text):
        return int(text)
    raise ConfigurationError(
        f"{setting}_URL must end in the number of a database, as in redis://HOST:PORT/0"
    )


def _how_to_escape(setting: str) -> str:
    return (
        f"{setting}_URL has a character that must be percent-escaped: in the user name and the"
        " password write @ as %40, / as %2F, : as %3A, # as %23, ? as %3F, [ as %5B, ] as %5D,"
        " % as %25 and a space as %20 (urllib.parse.quote(text, safe='') does it), or set"
        " RESUME_REDIS_HOST, RESUME_REDIS_USER and RESUME_REDIS_PASSWORD instead, which take the"
        " raw text"
    )
