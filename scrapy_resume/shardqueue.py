"""The shard queue in Redis: which shards wait, who is alive, what was seen. Hints only.

Nothing here decides anything. The database confirms every shard that is handed out, so
a queue that is empty, old, or thrown away costs time and never a shard. Each step that
must not be cut in two is one script of ``lua/``, each may be repeated without harm, since a
reply may be lost after the step was done, and time is always the server's.

All keys of a database begin with ``resume:<database id>:``, those of a run with
``resume:<database id>:run:<task id>:``; their number does not grow with pages or shards.
``docs/reference/redis.md`` lists them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import closing, suppress
from typing import Any, NamedTuple

import redis

from scrapy_resume.exceptions import QueueUnavailable
from scrapy_resume.intake import LANES, Intake, Waiting
from scrapy_resume.redisclient import TIMEOUT, RedisClient
from scrapy_resume.redismirror import KEEP, RedisMirror

HANDOUT = 30.0  # seconds after which what was handed out and not settled is offered again
FILLING = 10.0  # seconds for which a filler may be silent before another may fill

_LOOK = 1000  # queues looked at for one answer
_WIDTH = 16  # digits of an id, so that ids of one priority are in order
_EVERY_PRIORITY = ((-(2**53), 2**53),)
_SCRIPTS = (
    "alive", "beat", "begin_fill", "end_fill", "forget", "lock", "offer", "settle", "share", "take",
)  # fmt: skip


class Entry(NamedTuple):
    """A shard as it is handed out: its id, and the text by which Redis knows it."""

    id: int
    text: bytes


class ShardQueue:
    """One asker's view of one run's queue. Every call blocks, at most for the time limits.

    Calls raise QueueUnavailable, or ConfigurationError if Redis refuses us.
    """

    def __init__(self, client: RedisClient, database_id: str, run: int | str, asker: str) -> None:
        self._client, self._redis = client, client.redis
        self._database_id = database_id
        self.asker = asker
        self._seen = {"seen"}
        self._all = f"resume:{database_id}:"
        self._run = f"{self._all}run:{run}:"
        self._prefix = f"{self._run}queue:".encode()
        self._scripts = {name: client.script(name) for name in _SCRIPTS}

    def take(self, request: str, limit: int, intake: Intake) -> list[Entry]:
        """Up to *limit* waiting shards, the most urgent first. The same *request* again gets the
        same shards; those not settled within HANDOUT are offered again."""
        wish = {
            "lanes": sorted(intake.lanes or LANES.values()),
            "ranges": intake.priorities or _EVERY_PRIORITY,
            "sites": sorted(intake.sites),
            "look": _LOOK,
        }
        keys = self._keys("queues", "out", f"answer:{self.asker}")
        times = (_ms(HANDOUT), _ms(KEEP))
        texts = self._step("take", keys, request, limit, *times, self._prefix, json.dumps(wish))
        return [Entry(int(text.split(b":", 2)[1]), text) for text in texts]

    def settle(self, entries: Collection[Entry]) -> None:
        """The database has answered for *entries*: they are not offered again."""
        if entries:
            texts = [entry.text for entry in entries]
            self._step("settle", self._keys("out"), self._prefix, *texts)

    def begin_fill(self) -> bool:
        """May we fill the queue? Only if it is empty and nobody else fills it or just did."""
        keys = self._keys("queues", "fill")
        return bool(self._step("begin_fill", keys, self.asker, _ms(FILLING), self._prefix))

    def offer(self, waiting: Iterable[Waiting], *, filling: bool = False) -> bool:
        """Add shards. False if *filling* and we no longer may: begin again."""
        asker = self.asker if filling else ""
        groups: dict[tuple[int, str, int], list[str]] = {}
        for shard in waiting:
            group = groups.setdefault((shard.lane, shard.site, shard.priority), [])
            group.append(f"{shard.id:0{_WIDTH}d}")
        pipe = self._redis.pipeline(transaction=False)
        for (lane, site, priority), ids in groups.items():
            name = f"{lane}:{site}".encode("utf-8", "surrogatepass")
            keys = [*self._keys("queues", "fill"), self._prefix + name]
            times = (_ms(FILLING), _ms(KEEP))
            args: list[str | bytes | int] = [asker, *times, name, priority, _WIDTH, "".join(ids)]
            self._scripts["offer"](keys, args, client=pipe)
        return all(self._client.ask(pipe.execute)) if groups else True

    def end_fill(self, pause: float) -> None:
        """We are done; nobody fills again for *pause* seconds."""
        self._step("end_fill", self._keys("fill"), self.asker, _ms(pause))

    def beat(self, instance: str, seconds: float) -> None:
        """*instance* is alive, and to be believed so for *seconds*."""
        self._step("beat", [f"{self._all}beats"], instance, _ms(seconds))

    def alive(self, instances: Collection[str]) -> set[str]:
        """Which of *instances* are believed alive."""
        if not instances:
            return set()
        return {one.decode() for one in self._step("alive", [f"{self._all}beats"], *instances)}

    def lock(self, name: str, seconds: float) -> bool:
        """Take the lock *name*, which ends by itself; True also if we have it already."""
        return bool(self._step("lock", [f"{self._all}lock:{name}"], self.asker, _ms(seconds)))

    def share(self, fingerprints: Sequence[bytes], keep: int, key: str = "seen") -> None:
        """Tell the run's workers *fingerprints* in the stream *key*, which keeps about *keep*."""
        if fingerprints:
            self._seen.add(key)
            self._step("share", self._keys(key), keep, _ms(KEEP), *fingerprints)

    def shared(self, after: bytes, limit: int, key: str = "seen") -> tuple[bytes, list[bytes]]:
        """Up to *limit* fingerprints told after the place *after*, and the place to go on from."""
        (stream,) = self._keys(key)
        streams: Any = self._client.ask(self._redis.xread, {stream: after}, limit)
        entries = streams[0][1] if streams else []
        return (entries[-1][0] if entries else after), [fields[b"f"] for _, fields in entries]

    def wake(self) -> None:
        """Tell the run's other workers that there may be work."""
        self._client.ask(self._redis.publish, self._channel, self.asker)

    def subscribe(self) -> Subscription:
        """Listen to what :meth:`wake` tells."""
        return Subscription(self._client, self._channel)

    def forget(self) -> None:
        """The run is over: delete its keys."""
        answer = f"answer:{self.asker}"
        self._step(
            "forget", self._keys("queues", "out", "fill", answer, *sorted(self._seen)), self._prefix
        )

    def probe(self) -> None:
        """Raise if Redis does not answer, or takes no writes."""
        self._client.ask(self._redis.ping)
        self._client.ask(lambda: self._redis.set(f"{self._all}probe", self.asker, px=60000))

    def rehearse(self) -> None:
        """Make every step once in a run of its own, to learn whether we may."""
        self.probe()
        trial = ShardQueue(self._client, self._database_id, f"trial-{self.asker}", self.asker)
        trial.begin_fill()
        trial.offer([Waiting(1, "", 0, 0)], filling=True)
        trial.end_fill(1)
        trial.settle(trial.take("trial", 1, Intake()))
        trial.share([b"trial"], 1)
        trial.shared(b"0", 1)
        trial.beat(self.asker, 1)
        trial.alive([self.asker])
        trial.lock(f"trial-{self.asker}", 0.001)
        with closing(trial.subscribe()) as subscription:
            trial.wake()
            subscription.next(TIMEOUT)  # what we told ourselves
        trial.forget()
        RedisMirror(self._client, f"trial-{self.asker}").rehearse()

    def eviction_policy(self) -> str | None:
        """What Redis does when it is full; None if it does not let us know."""
        for ask, name in ((self._memory, "maxmemory_policy"), (self._config, "maxmemory-policy")):
            try:
                told = {_text(key): _text(value) for key, value in ask().items()}
            except redis.ResponseError:  # forbidden by an ACL, or renamed
                continue
            except redis.RedisError as error:
                raise QueueUnavailable(str(self._client.meaning(error))) from None
            if told.get(name):
                return told[name]
        return None

    def _memory(self) -> Any:
        return self._redis.info("memory")

    def _config(self) -> Any:
        return self._redis.config_get("maxmemory-policy")

    @property
    def _channel(self) -> str:
        return f"{self._run}wake"

    def _keys(self, *names: str) -> list[str | bytes]:
        return [self._run + name for name in names]

    def _step(self, script: str, keys: Sequence[str | bytes], *args: Any) -> Any:
        return self._client.ask(self._scripts[script], keys, args)


class Subscription:
    """What the run's workers tell each other, as it comes. For one thread, never repeated."""

    def __init__(self, client: RedisClient, channel: str) -> None:
        self._client = client
        connect: Callable[..., Any] = client.redis.pubsub
        self._pubsub = connect(ignore_subscribe_messages=True)
        try:
            client.ask(self._pubsub.subscribe, channel)
            self.next(TIMEOUT)  # Redis' answer: what is told from then on is heard
        except Exception:
            self.close()
            raise

    def next(self, within: float) -> str | None:
        """Who told that there may be work; None if nobody did *within* seconds.

        It looks whether something can be read and never pops: nothing is lost by the limit.
        """
        try:
            message = self._pubsub.get_message(timeout=within)
        except redis.RedisError as error:
            raise self._client.meaning(error) from None
        except Exception as error:  # redis-py raises what it likes if it is closed meanwhile
            raise QueueUnavailable(type(error).__name__) from None
        return _text(message["data"]) if message else None

    def close(self) -> None:
        """Stop listening."""
        with suppress(Exception):
            self._pubsub.close()


def _ms(seconds: float) -> int:
    return max(1, round(seconds * 1000))


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
