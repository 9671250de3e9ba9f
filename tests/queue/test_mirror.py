"""The mirror: where a worker's shards stood, at most behind the database, and never ahead."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from redis import Redis as Client

from scrapy_resume import journalcodec, mirroring, redisclient, redisthread
from scrapy_resume.heldshard import HeldShard
from scrapy_resume.mirroring import Mirroring
from scrapy_resume.page import Shard
from scrapy_resume.paging import PagePolicy
from scrapy_resume.redisclient import RedisClient
from scrapy_resume.redismirror import KEEP, Mirrored, RedisMirror
from scrapy_resume.store.leases import ClaimedShard
from scrapy_resume.walks import walk_for
from scrapy_resume.watermark import Position
from tests.queue.links import Linked, in_loop, linked, until
from tests.services import Redis, free_port

KEY = "resume:mirror:w"
OF = b'{"instance": "i"}'


@pytest.fixture
def mirror(client_for: Callable[[], RedisClient]) -> RedisMirror:
    return RedisMirror(client_for(), "w")


def held(number: int, page: int, *, token: int = 1, cursor: str | None = None) -> HeldShard:
    """A shard of which *page* pages are committed, in as many commits."""
    position = Position(page, page, cursor)
    claimed = ClaimedShard(
        number, 1, number, Shard(f"s{number}", 1, 99), position, False, token, 1, 10, False, "s"
    )
    policy = PagePolicy(
        in_flight=4, retries=3, retry_delay=1, hold_pages=True, backoff_base=5, backoff_max=1800,
        stop_on_empty=2,
    )  # fmt: skip
    return HeldShard(walk_for(claimed, policy))


def shown(mirror: RedisMirror) -> dict[int, tuple[int, int]]:
    """Token and version by shard."""
    return {shard.shard_id: (shard.token, shard.version) for shard in mirror.read()[1]}


@pytest.mark.parametrize(
    ("token", "version", "taken"),
    [(5, 8, True), (6, 0, True), (5, 7, True), (5, 6, False), (4, 99, False), (10, 1, True)],
)
def test_a_position_never_moves_back(
    mirror: RedisMirror, token: int, version: int, taken: bool
) -> None:
    mirror.write(OF, [Mirrored(1, 5, 7, b"before")])
    mirror.write(OF, [Mirrored(1, token, version, b"after:it")])
    wanted = Mirrored(1, token, version, b"after:it") if taken else Mirrored(1, 5, 7, b"before")
    assert mirror.read() == (OF, [wanted])


def test_only_the_claim_that_ended_is_removed(mirror: RedisMirror, redis_client: Client) -> None:
    assert mirror.write(OF, [Mirrored(n, 5, 7, b"x") for n in (1, 2)]) == 2
    assert mirror.write(OF, [Mirrored(1, 4, 0, b""), Mirrored(2, 5, 0, b"")]) == 1
    assert shown(mirror) == {1: (5, 7)}
    assert mirror.write(OF, [Mirrored(1, 5, 0, b"")]) == 0
    assert redis_client.exists(KEY) == 0


def test_what_is_for_another_instance_or_run_is_thrown_away(mirror: RedisMirror) -> None:
    mirror.write(b"another", [Mirrored(n, 9, 9, b"x") for n in range(5)])
    mirror.write(OF, [Mirrored(1, 1, 1, b"ours")])
    assert mirror.read() == (OF, [Mirrored(1, 1, 1, b"ours")])


def test_more_than_one_step_holds(mirror: RedisMirror, redis_client: Client) -> None:
    many = [Mirrored(n, 1, 1, b"x") for n in range(223)]
    assert mirror.write(OF, many) == 223
    assert sorted(mirror.read()[1]) == many
    assert 0 < redis_client.pttl(KEY) <= KEEP * 1000


def test_what_is_damaged_is_left_out(mirror: RedisMirror, redis_client: Client) -> None:
    mirror.write(OF, [Mirrored(1, 1, 1, b"x")])
    redis_client.hset(KEY, mapping={"x": "1:1:y", "2": "1", "3": "a:b:c"})
    assert mirror.read() == (OF, [Mirrored(1, 1, 1, b"x")])
    mirror.write(OF, [Mirrored(2, 1, 1, b"whole again")])
    assert shown(mirror) == {1: (1, 1), 2: (1, 1)}


def kept(mirror: RedisMirror) -> Mirroring:
    """A mirroring that writes at once."""
    ours = Mirroring(mirror, OF, lambda: ours.tell())
    return ours


def test_it_follows_what_is_held(mirror: RedisMirror) -> None:
    ours = kept(mirror)
    ours.keep([held(1, 3), held(2, 0)])
    assert shown(mirror) == {1: (1, 3), 2: (1, 0)}
    ours.keep([held(1, 4)])
    assert shown(mirror) == {1: (1, 4)}
    (one,) = mirror.read()[1]
    assert journalcodec.load_shard(one.position).position == Position(4, 4)
    ours.keep([])
    assert shown(mirror) == {}


def test_a_claim_with_a_lower_token_replaces_the_last(mirror: RedisMirror) -> None:
    """As after the database was restored from a backup."""
    ours = kept(mirror)
    ours.keep([held(1, 30, token=9)])
    ours.keep([held(1, 2, token=4)])
    assert shown(mirror) == {1: (4, 2)}


def test_its_size_is_bounded(mirror: RedisMirror, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirroring, "MOST", 3)
    ours = kept(mirror)
    ours.keep([held(n, 1) for n in range(5)])
    assert len(shown(mirror)) == 3
    ours.keep([held(1, 2, cursor="x" * mirroring.LARGEST), held(2, 2)])
    assert shown(mirror) == {2: (1, 2)}


def test_what_failed_is_written_the_next_time(
    mirror: RedisMirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting: list[None] = []
    ours = Mirroring(mirror, OF, lambda: waiting.append(None))
    ours.keep([held(1, 1), held(2, 1)])
    ours.tell()
    ours.keep([held(1, 2)])
    with monkeypatch.context() as patch:
        patch.setattr(mirror, "_write", lambda *args: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            ours.tell()
    ours.tell()
    assert shown(mirror) == {1: (1, 2)} and len(waiting) == 2


def test_flushall_is_made_good_by_the_next_heartbeat(
    server: Redis, redis_client: Client, mirror: RedisMirror, database_id: str
) -> None:
    async def work() -> None:
        async with linked(server.url, database_id, listening=False) as one:
            ours = one.link.mirror("w", OF)
            shards = [held(1, 3), held(2, 5)]
            ours.keep(shards)
            await until(lambda: redis_client.exists(KEY))
            redis_client.flushall()
            ours.keep(shards)  # nothing new: nothing is written
            one.link.beat("i", 9)
            await until(lambda: redis_client.exists(KEY))

    in_loop(work)
    assert shown(mirror) == {1: (1, 3), 2: (1, 5)}


def test_red_8_a_redis_that_was_frozen_gets_the_newest(
    server: Redis, mirror: RedisMirror, database_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redisthread, "RETRY", 0.2)
    monkeypatch.setattr(redisclient, "TIMEOUT", 0.3)

    async def work() -> None:
        async with linked(server.url, database_id, listening=False) as one:
            ours = one.link.mirror("w", OF)
            ours.keep([held(1, 0)])
            await until(lambda: shown(mirror))
            server.freeze()
            for page in range(1, 500):
                ours.keep([held(1, page)])
            await until(lambda: one.link.away)
            server.thaw()
            await until(lambda: _beats_until_told(one, ours))

    in_loop(work)
    assert shown(mirror) == {1: (1, 499)}


def _beats_until_told(one: Linked, ours: Mirroring) -> bool:
    one.link.beat("i", 9)
    return 1 in ours._told and ours._told[1].version == 499


def test_nothing_is_written_in_the_loop(
    server: Redis, database_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: set[str] = set()
    write = RedisMirror.write
    monkeypatch.setattr(
        RedisMirror, "write",
        lambda *args: (threads.add(threading.current_thread().name), write(*args))[1],
    )  # fmt: skip

    async def work() -> None:
        async with linked(server.url, database_id, listening=False) as one:
            one.link.mirror("w", OF).keep([held(1, 1)])

    in_loop(work)
    assert threads and all(name.startswith("scrapy_resume-redis") for name in threads)


def test_it_is_asked_before_the_link_is_opened(server: Redis, mirror: RedisMirror) -> None:
    mirror.write(OF, [Mirrored(1, 2, 3, b"x")])

    async def work() -> None:
        one = Linked(server.url)
        assert await one.link.mirrored("w") == (OF, [Mirrored(1, 2, 3, b"x")])
        assert await one.link.mirrored("another") == (b"", [])
        assert await Linked(f"redis://127.0.0.1:{free_port()}").link.mirrored("w") == (b"", [])
        await one.link.close(5)

    in_loop(work)
