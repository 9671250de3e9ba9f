"""Sharing fingerprints: workers of a run tell each other which requests are committed.

A stream in Redis holds about the last ``RESUME_SEEN_MAX`` of them. Every worker reads what is
new about once in a heartbeat and remembers it, so a request never waits for Redis; what
another worker committed a moment ago may still be fetched twice. Once pages were put back by
an operator another stream is used, since the old one tells of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scrapy_resume.shardqueue import ShardQueue

Learn = Callable[[Sequence[bytes]], None]

_BATCH = 5000  # fingerprints told or read at once


class Sharing:
    """What one worker tells and hears. *tell* and *listen* speak to Redis.

    *learn* is to be called in the event loop with what others tell.
    """

    def __init__(self, keep: int, learn: Learn, key: str) -> None:
        self._keep, self._learn, self._key = keep, learn, key
        self._untold: deque[bytes] = deque(maxlen=max(1, keep))
        self._place = b"0"

    def add(self, fingerprints: Iterable[bytes]) -> None:
        """To be told next; while Redis is away the oldest are dropped."""
        self._untold.extend(fingerprints)

    def tell(self, queue: ShardQueue) -> None:
        """Tell the others."""
        told = [self._untold.popleft() for _ in range(len(self._untold))]
        for first in range(0, len(told), _BATCH):
            queue.share(told[first : first + _BATCH], self._keep, self._key)

    def listen(self, queue: ShardQueue, in_loop: Callable[[Learn, Sequence[bytes]], None]) -> None:
        """Have what is new learnt, in batches."""
        more = True
        while more:
            self._place, fingerprints = queue.shared(self._place, _BATCH, self._key)
            more = len(fingerprints) == _BATCH
            if fingerprints:
                in_loop(self._learn, fingerprints)
