"""The mirror in Redis: where a worker's shards stood after their last commit.

One hash for each worker, written by that worker alone, and only with what the database has
committed. It is compared before it is set: neither an old write that comes late nor one that
is repeated can move a position back. So it is at most behind the database, never ahead, and a
worker that starts while the database is away may read on from there if its journal is gone.

Its key names the worker and not the database, whose id nobody can ask for then; the field
``of`` says which database, instance and run it is for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:  # a crawl without Redis does not import redis-py
    from scrapy_resume.redisclient import RedisClient

KEEP = 7 * 86400.0  # seconds without use after which what is kept for a while expires

_OF = b"of"
_AT_ONCE = 50  # shards written by one step


class Mirrored(NamedTuple):
    """Where a shard stood; an empty *position* says that it is held no more."""

    shard_id: int
    token: int
    version: int
    position: bytes


class RedisMirror:
    """The mirror of one *worker*. Every call blocks, at most for the time limits.

    Calls raise QueueUnavailable, or ConfigurationError if Redis refuses us.
    """

    def __init__(self, client: RedisClient, worker: str) -> None:
        self._client = client
        self._key = f"resume:mirror:{worker}"
        self._write = client.script("mirror")

    def write(self, of: bytes, shards: Sequence[Mirrored]) -> int:
        """Write *shards*, for what *of* names; returns how many the mirror holds then."""
        held = 0
        for at in range(0, max(1, len(shards)), _AT_ONCE):
            args = [part for shard in shards[at : at + _AT_ONCE] for part in shard]
            held = self._client.ask(self._write, [self._key], [round(KEEP * 1000), of, *args])
        return held

    def read(self) -> tuple[bytes, list[Mirrored]]:
        """What it is for, and the shards in it; what is damaged is left out."""
        found: Any = self._client.ask(self._client.redis.hgetall, self._key)
        shards = [_parsed(name, value) for name, value in found.items() if name != _OF]
        return found.get(_OF, b""), [shard for shard in shards if shard is not None]

    def rehearse(self) -> None:
        """Make every step once, to learn whether we may."""
        self.write(b"trial", [Mirrored(1, 1, 1, b"trial")])
        self.read()
        self.write(b"trial", [Mirrored(1, 1, 1, b"")])


def _parsed(name: bytes, value: bytes) -> Mirrored | None:
    token, _, rest = value.partition(b":")
    version, _, position = rest.partition(b":")
    try:
        return Mirrored(int(name), int(token), int(version), position)
    except ValueError:
        return None
