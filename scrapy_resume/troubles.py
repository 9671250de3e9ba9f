"""From an exception to a :class:`~scrapy_resume.page.Trouble`: its kind, in safe words."""

from __future__ import annotations

import re
from datetime import timezone
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit, urlunsplit

from scrapy.exceptions import CloseSpider, IgnoreRequest, NotSupported, UnsupportedURLSchemeError
from scrapy.http import Response
from scrapy.spidermiddlewares.httperror import HttpError

from scrapy_resume import clock
from scrapy_resume.cancellation import Interrupted
from scrapy_resume.exceptions import NotAPage, SiteBlocked
from scrapy_resume.page import ErrorKind, Trouble, Where
from scrapy_resume.refuseditem import RefusedItem

_LONGEST = 200
_RETRYABLE_STATUSES = frozenset({408, 425, 429})
_PERMANENT = (IgnoreRequest, NotSupported, UnsupportedURLSchemeError)
# A download handler may raise anything for a network error; these are bugs instead.
BUGS = (
    TypeError,
    AttributeError,
    LookupError,
    NameError,
    ImportError,
    AssertionError,
    NotImplementedError,
)
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s'\"<>]+")
_ANY = re.compile("")
_SECRET = re.compile(r"(?i)pass|pwd|secret|token|auth|key|sig|session|sid|credential|code")


def trouble_from(
    where: Where, exc: BaseException, *, url: str | None = None, downloading: bool = False
) -> Trouble:
    """Describe *exc*; *downloading* says that it came before the callback."""
    if isinstance(exc, RefusedItem):
        return _of_refused(exc, where, url)
    response = exc.response if isinstance(exc, HttpError) else None
    if isinstance(exc, CloseSpider):
        exc, where = Interrupted(f"the crawl was closed: {exc.reason}"), Where.PAGE
    return Trouble(
        where,
        _kind(exc, downloading),
        type(exc).__name__,
        safe_text(_words(exc, response)),
        url=None if url is None else safe_url(url),
        status=None if response is None else response.status,
        retry_after=_rest(exc) if response is None else retry_after(response),
    )


def _rest(exc: BaseException) -> float | None:
    """What the exception says of itself: that of our downloader middleware does."""
    seconds = getattr(exc, "retry_after", None)
    return seconds if isinstance(seconds, (int, float)) else None


def _of_refused(exc: RefusedItem, where: Where, url: str | None) -> Trouble:
    return Trouble(
        where, ErrorKind.CODE, exc.error_class, safe_text(exc.reason),
        url=None if url is None else safe_url(url),
        item_table=exc.table, column=exc.column, value=exc.value,
    )  # fmt: skip


def _words(exc: BaseException, response: Response | None) -> str:
    if response is not None:
        return f"HTTP {response.status}"
    return str(exc) or type(exc).__name__


def _kind(exc: BaseException, downloading: bool) -> ErrorKind:
    if isinstance(exc, SiteBlocked):
        return ErrorKind.BLOCKED
    if isinstance(exc, (NotAPage, Interrupted)) or not isinstance(exc, Exception):
        return ErrorKind.RETRYABLE
    if isinstance(exc, HttpError):
        return _status_kind(exc.response.status)
    if isinstance(exc, _PERMANENT):
        return ErrorKind.PERMANENT
    if downloading and not isinstance(exc, BUGS):
        return ErrorKind.RETRYABLE
    return ErrorKind.CODE


def _status_kind(status: int) -> ErrorKind:
    if status >= 500 or status in _RETRYABLE_STATUSES:
        return ErrorKind.RETRYABLE
    return ErrorKind.PERMANENT


def retry_after(response: Response) -> float | None:
    """Seconds that the response's Retry-After asks for, from now; None if it does not."""
    value = response.headers.get("Retry-After")
    if value is None:
        return None
    text = value.decode("latin-1").strip()
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        when = parsedate_to_datetime(text)
        if when.tzinfo is not None:
            when = when.astimezone(timezone.utc).replace(tzinfo=None)
    except (ValueError, OverflowError):  # no date, or one that UTC has not
        return None
    return max(0.0, (when - clock.utc_now()).total_seconds())


def safe_text(text: str) -> str:
    """*text* shortened, its URLs without user, password and query values."""
    text = text[: 10 * _LONGEST]
    return _URL.sub(lambda match: _without_secrets(match[0], _ANY), text)[:_LONGEST]


def safe_url(url: str) -> str:
    """*url* without user and password, and without query values that look secret."""
    return _without_secrets(url, _SECRET)


def _without_secrets(url: str, names: re.Pattern[str]) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:
        return url.partition("?")[0]
    pairs = (pair.partition("=") for pair in parts.query.split("&"))
    query = "&".join(
        f"{name}=…" if value and names.search(name) else name + equals + value
        for name, equals, value in pairs
    )
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query=query))
