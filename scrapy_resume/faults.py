"""Fault points: places where a test or a drill makes the process fail on purpose.

``RESUME_FAULT="commit.before:3:kill"`` sends SIGKILL to this process the third
time it passes ``commit.before``. Several are separated by commas. Actions:
``kill`` (SIGKILL itself), ``stop`` (SIGSTOP itself), ``raise``
(:class:`~scrapy_resume.exceptions.InjectedFault`), ``sleep=SECONDS``. Unset, a
point is one comparison.
"""

from __future__ import annotations

import os
import signal
import threading
import time

from scrapy_resume.exceptions import ConfigurationError, InjectedFault

POINTS = frozenset(
    {
        "page.response", "page.item", "page.complete",
        "journal.append", "journal.synced", "journal.trimmed",
        "commit.begin", "commit.fenced", "commit.items", "commit.before", "commit.after",
        "commit.acked", "claim.begin", "claim.before", "claim.after", "renew.before",
        "reap.selected", "reap.before", "plan.before", "finish.before", "batch.before",
        "batch.after", "replay.before", "replay.settled", "salvage.before",
    }
)  # fmt: skip

_armed: dict[str, dict[int, str]] = {}
_passed: dict[str, int] = {}
_lock = threading.Lock()


def arm(spec: str | None) -> None:
    """Arm the points named by *spec* and start counting anew; None or "" disarms all.

    Raises ConfigurationError for an unknown point, count or action.
    """
    armed: dict[str, dict[int, str]] = {}
    for part in filter(None, (text.strip() for text in (spec or "").split(","))):
        point, times, action = _read(part)
        armed.setdefault(point, {})[times] = action
    with _lock:
        _armed.clear()
        _passed.clear()
        _armed.update(armed)


def _read(part: str) -> tuple[str, int, str]:
    point, _, rest = part.partition(":")
    times, _, action = rest.partition(":")
    known = action in {"kill", "stop", "raise"} or _seconds(action) is not None
    if point not in POINTS or not times.isdigit() or int(times) < 1 or not known:
        raise ConfigurationError(
            f"RESUME_FAULT has {part!r}; allowed is POINT:N:ACTION with N from 1, ACTION one of"
            f" kill, stop, raise, sleep=SECONDS, and POINT one of {', '.join(sorted(POINTS))}"
        )
    return point, int(times), action


def _seconds(action: str) -> float | None:
    name, _, value = action.partition("=")
    try:
        return float(value) if name == "sleep" else None
    except ValueError:
        return None


def point(name: str) -> None:
    """Pass the fault point *name*; does what was armed for this passage, if anything."""
    if not _armed:
        return
    with _lock:
        _passed[name] = _passed.get(name, 0) + 1
        action = _armed.get(name, {}).get(_passed[name])
    if action is not None:
        _act(name, action)


def _act(name: str, action: str) -> None:
    if action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif action == "stop":
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)  # stops this thread at once
    elif action == "raise":
        raise InjectedFault(f"fault point {name}")
    else:
        time.sleep(_seconds(action) or 0)
