"""The progress line and the log on one terminal."""

from __future__ import annotations

import io
import logging
import os
from collections.abc import Iterator

import pytest

from scrapy_resume import clock, progress
from scrapy_resume.progress import ProgressLine, describe


class Terminal(io.StringIO):
    """Keeps what a person would see: carriage returns go back, spaces overwrite."""

    def __init__(self) -> None:
        super().__init__()
        self.lines = [""]
        self.column = 0

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        for sign in text:
            if sign == "\n":
                self.lines.append("")
                self.column = 0
            elif sign == "\r":
                self.column = 0
            else:
                line = self.lines[-1].ljust(self.column)
                self.lines[-1] = line[: self.column] + sign + line[self.column + 1 :]
                self.column += 1
        return len(text)

    @property
    def seen(self) -> list[str]:
        return [line.rstrip() for line in self.lines]


class Clock:
    """A clock that the test moves."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Clock:
    ours = Clock()
    monkeypatch.setattr(clock, "monotonic", ours.monotonic)
    return ours


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    """A terminal, 80 columns wide, that the root logger writes to."""
    monkeypatch.setenv("COLUMNS", "80")
    terminal = Terminal()
    handler = logging.StreamHandler(terminal)
    logging.root.addHandler(handler)
    yield terminal
    logging.root.removeHandler(handler)


def test_pages_items_speed_and_time_left(terminal: Terminal, time: Clock) -> None:
    line = ProgressLine(terminal)
    line.update(100, 1000, 0)
    assert terminal.seen == ["pages 100 of 1,000 (10%)  items 0"]
    time.now = 10.0
    line.update(150, 1000, 2500)
    assert terminal.seen == [
        "pages 150 of 1,000 (15%)  items 2,500  5.0 pages/s  0:02:50 left",
    ]
    line.close()
    assert terminal.seen == [""]


def test_the_speed_is_that_of_the_last_half_minute(terminal: Terminal, time: Clock) -> None:
    line = ProgressLine(terminal)
    for second in range(100):
        time.now = float(second)
        line.update(min(second, 50) * 10, None, 0)
    assert terminal.seen == ["pages 500  items 0  0.0 pages/s"]
    line.close()


@pytest.mark.parametrize(
    ("pages", "total", "speed", "said"),
    [
        (0, None, None, "pages 0  items 7"),
        (3, None, 1.25, "pages 3  items 7  1.2 pages/s"),
        (0, 0, None, "pages 0 of 0  items 7"),
        (12, 10, 2.0, "pages 12 of 10 (100%)  items 7  2.0 pages/s"),
        (0, 10, 0.0, "pages 0 of 10 (0%)  items 7  0.0 pages/s"),
        (0, 360_000, 10.0, "pages 0 of 360,000 (0%)  items 7  10.0 pages/s  10:00:00 left"),
    ],
)
def test_the_words(pages: int, total: int | None, speed: float | None, said: str) -> None:
    assert describe(pages, total, 7, speed) == said


def test_a_shorter_line_leaves_nothing_of_a_longer_one(terminal: Terminal) -> None:
    line = ProgressLine(terminal)
    line._draw("a long line")
    line._draw("short")
    assert terminal.seen == ["short"]
    line.close()


def test_log_lines_stay_whole(terminal: Terminal, time: Clock) -> None:
    line = ProgressLine(terminal)
    logging.getLogger("crawl").warning("before")
    line.update(1, 10, 5)
    logging.getLogger("crawl").warning("short")
    logging.getLogger("crawl").warning("another")
    assert terminal.seen == ["before", "short", "another", ""]
    line.update(2, 10, 9)
    assert terminal.seen == ["before", "short", "another", "pages 2 of 10 (20%)  items 9"]
    logging.getLogger("crawl").warning("x" * 100)
    line.update(3, 10, 9)
    line.close()
    logging.getLogger("crawl").warning("after")
    assert terminal.seen == ["before", "short", "another", "x" * 100, "after", ""]


def test_the_cursor_waits_at_the_beginning_for_whoever_writes_next(
    terminal: Terminal, time: Clock
) -> None:
    line = ProgressLine(terminal)
    line.update(1, 10, 5)
    assert terminal.column == 0
    line.close()


def test_a_narrow_terminal_gets_what_fits(
    terminal: Terminal, time: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    line = ProgressLine(terminal)
    line.update(100, 1000, 5)
    assert terminal.seen == ["pages 100 of 1,000"]
    line.close()


@pytest.mark.parametrize("enabled", [True, False])
def test_it_is_silent_where_nobody_looks(enabled: bool) -> None:
    stream = Terminal() if not enabled else io.StringIO()
    line = ProgressLine(stream, enabled=enabled)
    line.update(1, 2, 3)
    line.close()
    assert stream.getvalue() == ""
    assert not getattr(stream, "seen", [""])[0]


def test_closing_leaves_no_filter_and_may_be_repeated(terminal: Terminal, time: Clock) -> None:
    line = ProgressLine(terminal)
    line.update(1, 2, 3)
    line.close()
    line.close()
    line.update(2, 2, 3)
    assert terminal.seen == [""]
    assert all(not handler.filters for handler in logging.root.handlers)


def test_a_terminal_that_is_gone_harms_no_crawl(terminal: Terminal, time: Clock) -> None:
    class Gone(Terminal):
        def write(self, text: str) -> int:
            raise OSError(5, os.strerror(5))

    line = ProgressLine(Gone())
    line.update(1, 2, 3)
    logging.getLogger("crawl").warning("still here")
    line.close()
    assert terminal.seen == ["still here", ""]


def test_it_needs_nothing_that_is_heavy() -> None:
    assert not {"rich", "scrapy"} & set(vars(progress))
