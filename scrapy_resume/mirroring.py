"""Mirroring: one worker keeps in Redis where the shards stand that it holds.

Only what is committed is put here, so Redis is never ahead of the database. The writing is
done by the way, on the thread for Redis: while that is busy, or Redis is away, only the newest
position of each shard waits. Each heartbeat looks whether Redis still has them all, and writes
them again if not, as after a FLUSHALL.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from scrapy_resume import journalcodec
from scrapy_resume.redismirror import Mirrored, RedisMirror
from scrapy_resume.watermark import Position

if TYPE_CHECKING:
    from scrapy_resume.heldshard import HeldShard

MOST = 1000  # shards that are mirrored at most
LARGEST = 64 * 1024  # bytes of one position; a larger one is not mirrored


class Mirroring:
    """What one worker mirrors; *of* says whose it is.

    *keep* is for the event loop, *tell* speaks to Redis; *post* has it called soon.
    """

    def __init__(self, mirror: RedisMirror, of: bytes, post: Callable[[], None]) -> None:
        self._mirror, self._of, self._post = mirror, of, post
        self._lock = threading.Lock()
        self._known: dict[int, tuple[int, Position]] = {}
        self._held: dict[int, Mirrored] = {}
        self._told: dict[int, Mirrored] = {}
        self._sent: set[int] = set()
        self._gone: dict[int, int] = {}

    def keep(self, shards: Iterable[HeldShard]) -> None:
        """These *shards* and no others are ours, and stand where the database says they do."""
        held = {shard.id: shard for shard in shards}
        known = {shard.id: (shard.token, shard.walk.position) for shard in held.values()}
        if known == self._known:
            return
        news = [_mirrored(held[id_]) for id_ in known if known[id_] != self._known.get(id_)]
        with self._lock:
            for id_, one in list(self._held.items()):
                if id_ not in known or known[id_][0] < one.token:
                    self._drop(id_)
            for one in news:
                self._put(one)
        self._known = known
        self._post()

    def _put(self, one: Mirrored) -> None:
        fits = len(one.position) <= LARGEST
        if fits and (one.shard_id in self._held or len(self._held) < MOST):
            self._held[one.shard_id] = one
        elif not fits and one.shard_id in self._held:
            self._drop(one.shard_id)

    def _drop(self, shard_id: int) -> None:
        held = self._held.pop(shard_id)
        self._told.pop(shard_id, None)
        if shard_id in self._sent:
            self._sent.discard(shard_id)
            self._gone[shard_id] = held.token

    # On the thread for Redis

    def tell(self) -> None:
        """Write what Redis does not have yet, and all of it if it was thrown away."""
        if self._write() < len(self._told):
            self._told = {}
            self._write()

    def _write(self) -> int:
        with self._lock:
            news = {id_: one for id_, one in self._held.items() if self._told.get(id_) is not one}
            gone = self._gone.copy()
            self._sent |= news.keys()  # though the reply may be lost
        dropped = [Mirrored(shard_id, token, 0, b"") for shard_id, token in gone.items()]
        count = self._mirror.write(self._of, [*dropped, *news.values()])
        with self._lock:
            for shard_id in gone:
                self._gone.pop(shard_id, None)
            self._told |= {id_: one for id_, one in news.items() if id_ in self._held}
        return count


def _mirrored(shard: HeldShard) -> Mirrored:
    claimed = replace(shard.walk.claimed, position=shard.walk.position)
    position = journalcodec.dump_shard(claimed)
    return Mirrored(claimed.id, claimed.fencing_token, claimed.position.version, position)
