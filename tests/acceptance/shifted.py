"""``scrapy`` with a wall clock that is wrong: ``python shifted.py CLOCK scrapy-words…``.

CLOCK is a file of eight bytes, the shift in seconds as a double, which the test may change
at any time. Everything in Python that tells the time of day is shifted before anything
else is imported; what counts seconds (``time.monotonic``) is not, as on a real machine.
"""

from __future__ import annotations

import datetime
import mmap
import struct
import sys
import time
from pathlib import Path
from typing import Any

_SECONDS = struct.Struct("<d")


class Clock:
    """The shift of one process's clock, in a file that both sides have."""

    def __init__(self, path: Path, seconds: float | None = None) -> None:
        self.path = path
        if seconds is not None:
            path.write_bytes(_SECONDS.pack(seconds))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), _SECONDS.size)

    @property
    def shift(self) -> float:
        return float(_SECONDS.unpack(self._map[:])[0])

    def jump(self, seconds: float) -> None:
        """Set the clock forward by *seconds*, at once."""
        self._map[:] = _SECONDS.pack(self.shift + seconds)


def shift_this_process(clock: Clock) -> None:
    """Replace what tells the time of day."""
    real_time, real_ns = time.time, time.time_ns

    class Shifted(datetime.datetime):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> Any:
            return cls.fromtimestamp(time.time(), tz)

        @classmethod
        def utcnow(cls) -> Any:
            return cls.fromtimestamp(time.time(), datetime.timezone.utc).replace(tzinfo=None)

    Shifted.__name__ = "datetime.datetime"  # what its repr begins with
    time.time = lambda: real_time() + clock.shift
    time.time_ns = lambda: real_ns() + int(clock.shift * 1e9)
    datetime.datetime = Shifted  # type: ignore[misc]


def main() -> None:
    shift_this_process(Clock(Path(sys.argv[1])))
    from scrapy.cmdline import execute

    execute(["scrapy", *sys.argv[2:]])


if __name__ == "__main__":
    main()
