"""One crawl's link to Redis: hints where work waits, wake-ups, second heartbeats.

Whatever it answers the database confirms, so each answer has one that holds without
Redis: no hint, nobody known alive, the lock is yours. Nothing here makes a call of redis-py
in the event loop, and nothing waits for Redis longer than ``redisthread.PATIENCE``.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from scrapy.utils.defer import deferred_from_coro, maybe_deferred_to_future

from scrapy_resume.exceptions import ConfigurationError
from scrapy_resume.intake import Intake, Waiting
from scrapy_resume.meeting import Meeting
from scrapy_resume.mirroring import Mirroring
from scrapy_resume.redismirror import Mirrored, RedisMirror
from scrapy_resume.redisthread import RedisThread
from scrapy_resume.sharing import Sharing
from scrapy_resume.wakeups import LOOK, WakeupListener

if TYPE_CHECKING:
    from scrapy.settings import BaseSettings

    from scrapy_resume.duplicates import Duplicates
    from scrapy_resume.redisclient import RedisClient
    from scrapy_resume.settings import ResumeSettings
    from scrapy_resume.shardqueue import Entry, ShardQueue

_THEIRS = ("REDIS_URL", "REDIS_HOST", "REDIS_PORT", "REDIS_DB", "REDIS_PARAMS")


class QueueLink:
    """Redis as one crawl sees it. Make it with :meth:`of`, inside the event loop."""

    def __init__(
        self,
        client: RedisClient,
        settings: ResumeSettings,
        *,
        inc_stat: Callable[[str, int], None],
        on_wake: Callable[[], None],
    ) -> None:
        self._client, self._settings = client, settings
        self._inc_stat, self._on_wake = inc_stat, on_wake
        self._asker = uuid.uuid4().hex
        self._request: str | None = None
        self._out: dict[int, Entry] = {}
        self._sharing: Sharing | None = None
        self._mirroring: Mirroring | None = None
        self._queue: ShardQueue
        self._meeting: Meeting
        self._listener: WakeupListener | None = None
        self._thread = RedisThread(
            client.shown,
            meet=lambda: self._meeting(),
            on_back=self._came_back,
            on_away=lambda: inc_stat("queue/away", 1),
        )

    @classmethod
    def of(
        cls,
        settings: ResumeSettings,
        crawler_settings: BaseSettings,
        *,
        inc_stat: Callable[[str, int], None],
        on_wake: Callable[[], None],
    ) -> QueueLink | None:
        """The link to the Redis that the settings name; None if they name none.

        Raises ConfigurationError. *on_wake* is called in the event loop.
        """
        client = None
        if settings.redis_url or any(crawler_settings.get(name) for name in _THEIRS):
            # Importing redis-py takes 65 ms, which a crawl without Redis need not pay.
            from scrapy_resume.redisclient import RedisClient

            client = RedisClient.of(settings, crawler_settings)
        if client is None and settings.shared_fingerprints:
            raise ConfigurationError(
                "RESUME_SHARED_FINGERPRINTS is true, but there is no Redis to share them through;"
                " set RESUME_REDIS_URL"
            )
        return None if client is None else cls(client, settings, inc_stat=inc_stat, on_wake=on_wake)

    @property
    def away(self) -> bool:
        """Does Redis take no part now?"""
        return self._thread.presence.away

    async def open(self, database_id: str, task_id: int) -> None:
        """Meet Redis and begin to listen. One that is merely down is done without, with a
        warning. Raises ConfigurationError if it refuses us."""
        from scrapy_resume.shardqueue import ShardQueue  # as above

        refuse = self._settings.on_redis_eviction == "refuse"
        self._queue = ShardQueue(self._client, database_id, task_id, self._asker)
        self._meeting = Meeting(self._queue, self._client.shown, refuse_eviction=refuse)
        await self._thread.open()
        self._listener = WakeupListener(self._queue, self._thread.presence, self._woken, LOOK)
        self._listener.start()

    async def take(self, limit: int, intake: Intake) -> list[int]:
        """Ids of up to *limit* shards that seem to wait, the most urgent first; [] if Redis is
        empty or away. Each has to be confirmed by the database and then settled."""
        if limit <= 0:
            return []
        self._request = request = self._request or uuid.uuid4().hex
        entries = await self._thread.ask(None, lambda: self._queue.take(request, limit, intake))
        if entries is None:
            return []  # the reply may be lost: the same request is repeated next time
        self._request = None
        self._out |= {entry.id: entry for entry in entries}
        self._inc_stat("queue/taken", len(entries))
        return [entry.id for entry in entries]

    async def settle(self, taken: Sequence[int], claimed: Collection[int]) -> None:
        """The database has answered for *taken* and confirmed *claimed*. None of them is offered
        again: the others are held, over or parked, and come back when they are free."""
        entries = [self._out.pop(number) for number in taken if number in self._out]
        self._inc_stat("queue/stale", len(set(taken) - set(claimed)))
        if entries:
            self._thread.post(None, lambda: self._queue.settle(entries))

    async def fill(self, read: Callable[[int], Awaitable[list[Waiting]]]) -> int:
        """Fill the queue if it is empty and nobody else fills it; returns how many shards were put
        in. *read* gives the claimable shards behind an id, in batches, until it gives none."""
        if not await self._thread.ask(False, lambda: self._queue.begin_fill()):
            return 0
        count, batch = 0, await read(0)
        while batch:
            offered = deferred_from_coro(self._thread.ask(False, self._filler(batch)))
            following = await read(batch[-1].id)  # meanwhile
            if not await maybe_deferred_to_future(offered):
                break  # the keys were thrown away meanwhile, or Redis is away: the next fill
            count, batch = count + len(batch), following
        else:
            self._thread.post(None, lambda: self._queue.end_fill(self._settings.heartbeat))
        self._inc_stat("queue/filled", count)
        return count

    def wake(self) -> None:
        """Tell the others that there may be work."""
        self._thread.post("wake", lambda: self._queue.wake())

    def beat(self, instance: str, seconds: float) -> None:
        """The second heartbeat: *instance* is to be believed alive for *seconds*. Any thread."""
        self._thread.post("beat", lambda: self._queue.beat(instance, seconds))
        if self._mirroring is not None:
            self._thread.post("mirror", self._mirroring.tell)
        sharing = self._sharing
        if sharing is not None:
            self._thread.post("listen", lambda: sharing.listen(self._queue, self._heard))

    async def alive(self, instances: Collection[str]) -> set[str]:
        """Which of *instances* beat lately, as far as Redis knows."""
        nobody: set[str] = set()
        return await self._thread.ask(nobody, lambda: self._queue.alive(instances))

    async def lock(self, name: str, seconds: float) -> bool:
        """Take the lock *name*, which only saves double work; True if Redis is away."""
        return await self._thread.ask(True, lambda: self._queue.lock(name, seconds))

    def exchange(self, duplicates: Duplicates, since: str = "") -> None:
        """Tell the others what our committed pages fetched, and teach *duplicates* what they
        tell; does nothing unless ``RESUME_SHARED_FINGERPRINTS`` is on.

        Called again with another moment *since* when pages were put back: what was told
        before is not heard any more.
        """
        if not self._settings.shared_fingerprints:
            return

        def learn(fingerprints: Sequence[bytes]) -> None:
            if self._sharing is sharing:
                duplicates.learn(fingerprints)

        key = f"seen:{since}" if since else "seen"
        self._sharing = sharing = Sharing(self._settings.seen_max, learn, key)
        duplicates.share = self.share

    def share(self, fingerprints: Sequence[bytes]) -> None:
        """A page is committed whose requests had these *fingerprints*."""
        sharing = self._sharing
        if sharing is not None:
            sharing.add(fingerprints)
            self._thread.post("tell", self._tell)

    def mirror(self, worker: str, of: bytes) -> Mirroring:
        """Mirror from now on where the shards of *worker* stand; *of* says for which run."""
        mirror = RedisMirror(self._client, worker)
        ours = Mirroring(mirror, of, lambda: self._thread.post("mirror", ours.tell))
        self._mirroring = ours
        return ours

    async def mirrored(self, worker: str) -> tuple[bytes, list[Mirrored]]:
        """What the mirror of *worker* is for and holds; asked before the link is opened."""
        return await self._thread.before((b"", []), RedisMirror(self._client, worker).read)

    def forget(self) -> None:
        """The run is over: delete what Redis holds of it."""
        self._thread.post("forget", lambda: self._queue.forget())

    async def close(self, within: float) -> bool:
        """End both threads and the connections; False if *within* seconds are not enough."""
        if self._listener is not None:
            self._listener.stop()
        return await self._thread.close(self._last, within)

    def _filler(self, batch: list[Waiting]) -> Callable[[], bool]:
        return lambda: self._queue.offer(batch, filling=True)

    # On the threads

    def _tell(self) -> None:
        if self._sharing is not None:  # not the one that was there when this was posted
            self._sharing.tell(self._queue)

    def _came_back(self) -> None:
        if self._listener is not None:
            self._listener.renew()
        self._woken()

    def _woken(self) -> None:
        self._thread.in_loop(self._in_loop, self._on_wake)

    def _heard(self, learn: Callable[..., object], fingerprints: Sequence[bytes]) -> None:
        self._thread.in_loop(self._in_loop, learn, fingerprints)

    def _in_loop(self, call: Callable[..., object], *args: object) -> None:
        if self._thread.live:
            call(*args)

    def _last(self) -> None:
        """The last step. Our own wake-up ends the listener at once."""
        if self._listener is not None and not self.away:
            with suppress(Exception):
                self._queue.wake()
                self._listener.join(LOOK)
        with suppress(Exception):
            self._client.close()
