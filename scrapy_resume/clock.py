"""The process's own clocks, in one place so that tests can replace them.

Leases and due times are judged by the database's clock. These two are for
waiting (monotonic) and for showing (UTC).
"""

from __future__ import annotations

import time
from datetime import datetime, timezone


def monotonic() -> float:
    """Seconds on a clock that never jumps; only differences mean anything."""
    return time.monotonic()


def utc_now() -> datetime:
    """The current time, in UTC and naive as the database's columns are."""
    return datetime.now(timezone.utc).replace(tzinfo=None)


def utc_text(moment: datetime) -> str:
    """*moment*, in UTC, as text for scripts; what is later sorts behind."""
    return moment.isoformat(timespec="microseconds") + "Z"
