"""One line at the bottom of a terminal that says how far the crawl is.

Log lines go to the same terminal. The line is therefore left with the cursor at its
beginning, and a log handler of that terminal first wipes it: whatever is written next
starts in column one, and the next update draws the line anew below it. Carriage returns
and spaces do that everywhere; no terminal is asked what it can do.
"""

from __future__ import annotations

import logging
import shutil
from collections import deque
from typing import TextIO

from scrapy_resume import clock

_WINDOW = 30.0  # seconds over which the speed is measured


class ProgressLine:
    """Pages, items, speed and time left of one crawl; silent where *stream* is no terminal.

    Give *enabled* as the setting RESUME_PROGRESS. The caller updates it about once per
    second, from one thread.
    """

    def __init__(self, stream: TextIO, *, enabled: bool = True) -> None:
        self._stream = stream
        self._on = enabled and _is_terminal(stream)
        self._shown = 0  # columns that the line takes now
        self._seen: deque[tuple[float, int]] = deque()  # when there were how many pages
        self._handlers = _terminal_handlers() if self._on else []
        for handler in self._handlers:
            handler.addFilter(self._make_way)

    def update(self, pages_done: int, pages_total: int | None, items: int) -> None:
        """Draw the line; *pages_total* is None while it is not known."""
        if not self._on:
            return
        now = clock.monotonic()
        self._seen.append((now, pages_done))
        while now - self._seen[0][0] > _WINDOW and len(self._seen) > 2:
            self._seen.popleft()
        self._draw(describe(pages_done, pages_total, items, self._speed()))

    def close(self) -> None:
        """Wipe the line and leave the terminal to others; harmless when repeated."""
        self._wipe()
        self._on = False
        for handler in self._handlers:
            handler.removeFilter(self._make_way)

    def _speed(self) -> float | None:
        """Pages per second, None while nothing can be said."""
        (since, before), (now, after) = self._seen[0], self._seen[-1]
        return max(0, after - before) / (now - since) if now > since else None

    def _draw(self, text: str) -> None:
        room = shutil.get_terminal_size().columns - 1  # a full line would wrap
        text = text[: max(0, room)]
        self._write("\r" + text.ljust(self._shown) + "\r")
        self._shown = len(text)

    def _wipe(self) -> None:
        if self._shown:
            self._write("\r" + " " * self._shown + "\r")
            self._shown = 0

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):  # the terminal is gone; the crawl is not
            self._on = False

    def _make_way(self, record: logging.LogRecord) -> bool:
        self._wipe()
        return True


def describe(
    pages_done: int, pages_total: int | None, items: int, pages_per_second: float | None
) -> str:
    """The line's text."""
    parts = [f"pages {pages_done:,}"]
    if pages_total is not None:
        share = f" ({100 * min(pages_done, pages_total) // pages_total}%)" if pages_total else ""
        parts[0] += f" of {pages_total:,}{share}"
    parts.append(f"items {items:,}")
    if pages_per_second is not None:
        parts.append(f"{pages_per_second:.1f} pages/s")
        if pages_per_second > 0 and pages_total is not None and pages_total > pages_done:
            parts.append(f"{_clock((pages_total - pages_done) / pages_per_second)} left")
    return "  ".join(parts)


def _clock(seconds: float) -> str:
    minutes, second = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{second:02}"


def _is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except (AttributeError, ValueError):
        return False


def _terminal_handlers() -> list[logging.Handler]:
    return [
        handler
        for handler in logging.root.handlers
        if isinstance(handler, logging.StreamHandler) and _is_terminal(handler.stream)
    ]
