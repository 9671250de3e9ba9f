"""Every error this package raises, under one base class."""

from __future__ import annotations

from collections.abc import Mapping


class ResumeError(Exception):
    """Base of all errors raised by scrapy_resume."""


class ConfigurationError(ResumeError):
    """A setting, an argument or an environment that cannot work.

    Raised before the first request; the message is one sentence that names the
    setting, the value and what is allowed.
    """


class NotAPage(ResumeError):
    """Raised by a spider in ``check_page`` or a callback: this response is not the page.

    The page is retried in place, then held. It is never counted as an empty page.
    """


class SiteBlocked(ResumeError):
    """Raised by a spider in ``check_page`` or a callback: the site refuses us.

    The page is held without a retry, the shard goes back with the kind ``blocked`` and spends
    no attempt.
    """


class RunRefused(ResumeError):
    """The wanted run cannot be opened, e.g. ``RESUME_RUN=new`` while one is worked on."""


class ActRefused(ResumeError):
    """An operator's act that the state of a task, a site or a record does not allow.

    Nothing was changed.
    """


class SchemaMismatch(ResumeError):
    """The tables are older or newer than this version can use."""


class StoreUnavailable(ResumeError):
    """The database could not be reached within the retries allowed.

    *repeats* counts what failed, by cause: deadlocks, lock_waits, reconnects.
    """

    def __init__(self, message: str, repeats: Mapping[str, int] | None = None) -> None:
        super().__init__(message)
        self.repeats = dict(repeats or {})


class QueueUnavailable(ResumeError):
    """Redis did not answer, or cannot take part now. Never more than a hint is lost by it.

    *heals* says that it may pass by itself; a full Redis needs somebody to make room.
    """

    def __init__(self, reason: str, *, heals: bool = True) -> None:
        super().__init__(reason)
        self.heals = heals


class JournalFailed(ResumeError):
    """The journal can take nothing, or give nothing back, now: a full or broken disk.

    The message is one sentence with the file's path and what to do. Nothing of what was to
    be appended is kept; the same journal is tried again later.
    """


class LeaseLost(ResumeError):
    """A write carried a fencing token that the database no longer accepts."""

    def __init__(self, shard_id: int, fencing_token: int) -> None:
        super().__init__(f"shard {shard_id} is no longer ours (fencing token {fencing_token})")
        self.shard_id = shard_id
        self.fencing_token = fencing_token


class UnsupportedScrapy(ResumeError):
    """Scrapy's internals do not have the shape that this version was written for."""


class InjectedFault(ResumeError):
    """Raised by a fault point armed with the action ``raise``."""
