"""The link in an event loop: it hints, wakes and beats, and never holds the loop up."""

from __future__ import annotations

import asyncio
import logging
import re
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from redis import Redis as Client
from redis.connection import AbstractConnection
from scrapy.settings import Settings

from scrapy_resume import redisthread, shardqueue
from scrapy_resume.exceptions import ConfigurationError, QueueUnavailable
from scrapy_resume.intake import Intake, Waiting
from scrapy_resume.queuelink import QueueLink
from scrapy_resume.settings import ResumeSettings
from tests.queue.blackhole import BlackHole
from tests.queue.links import ALL, Linked, in_loop, lag, linked, shelf, until
from tests.services import Redis

BLOCKED = 1.5  # seconds of lag; a call in the loop would have cost 2 s


@pytest.fixture(autouse=True)
def _retried_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redisthread, "RETRY", 0.2)


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG)
    return caplog


def lines(caplog: pytest.LogCaptureFixture, level: int = logging.INFO) -> list[str]:
    """What our own loggers said."""
    return [
        record.getMessage() for record in caplog.records
        if record.name.startswith("scrapy_resume") and record.levelno >= level
    ]  # fmt: skip


def waiting(*ids: int, lane: int = 0) -> list[Waiting]:
    return [Waiting(number, "s", lane, 0) for number in ids]


def test_no_redis_no_link() -> None:
    async def work() -> None:
        for settings in (ResumeSettings(), ResumeSettings(redis_url="off")):
            given = Settings({"REDIS_HOST": "localhost"} if settings.redis_url else {})
            assert QueueLink.of(settings, given, inc_stat=print, on_wake=print) is None

    in_loop(work)


def test_sharing_without_redis_is_refused() -> None:
    async def work() -> None:
        settings = ResumeSettings(shared_fingerprints=True)
        with pytest.raises(ConfigurationError, match="RESUME_SHARED_FINGERPRINTS"):
            QueueLink.of(settings, Settings(), inc_stat=print, on_wake=print)

    in_loop(work)


def test_filled_by_one_taken_by_all(server: Redis, database_id: str) -> None:
    async def work() -> None:
        async with linked(server.url, database_id) as one, linked(server.url, database_id) as two:
            assert await one.link.fill(shelf(*waiting(1, 2, 3, 4, 5))) == 5
            assert await two.link.fill(shelf(*waiting(9))) == 0
            mine = await one.link.take(2, ALL)
            theirs = await two.link.take(9, ALL)
            assert (mine, theirs) == ([1, 2], [3, 4, 5])
            await two.link.settle(theirs, [3])
            assert await two.link.take(9, ALL) == []
            assert await two.link.take(0, ALL) == []
            assert one.stats["queue/filled"] == 5
            assert (two.stats["queue/taken"], two.stats["queue/stale"]) == (3, 2)

    in_loop(work)


def test_a_wake_up_reaches_the_others(server: Redis, database_id: str) -> None:
    async def work() -> None:
        async with linked(server.url, database_id) as one, linked(server.url, database_id) as two:
            before = len(one.woken)
            assert await one.link.fill(shelf(*waiting(7, 8, lane=1), *waiting(9))) == 3
            one.link.wake()
            await two.wakes()
            assert await two.link.take(9, Intake.parse("resumed")) == [7, 8]
            assert set(two.woken) == {threading.get_ident()}  # the event loop's own thread
            assert len(one.woken) == before  # nobody wakes himself

    in_loop(work)


def test_the_other_run_is_not_woken(server: Redis, database_id: str) -> None:
    async def work() -> None:
        async with linked(server.url, database_id) as one, linked(server.url, database_id, 2) as x:
            before = len(x.woken)
            one.link.wake()
            await one.link.alive(["nobody"])  # what was posted before is done now
            await asyncio.sleep(0.1)
            assert len(x.woken) == before

    in_loop(work)


def test_second_heartbeats_and_locks(server: Redis, database_id: str) -> None:
    async def work() -> None:
        async with linked(server.url, database_id) as one, linked(server.url, database_id) as two:
            beat = threading.Thread(target=one.link.beat, args=("i", 60))  # not the loop's thread
            beat.start()
            beat.join()
            assert await one.link.alive(["i", "j"]) == {"i"}
            assert await two.link.alive(["i", "j"]) == {"i"}
            assert await one.link.lock("recover", 60)
            assert not await two.link.lock("recover", 60)

    in_loop(work)


def test_a_take_whose_reply_was_lost_is_asked_again(
    server: Redis, database_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = shardqueue.ShardQueue.take
    lost: list[Any] = []

    def lose(self: Any, *args: Any) -> Any:
        entries = whole(self, *args)
        if not lost:
            lost.append(entries)
            raise QueueUnavailable("the reply was lost")
        return entries

    async def work() -> None:
        async with linked(server.url, database_id) as one:
            await one.link.fill(shelf(*waiting(1, 2, 3)))
            monkeypatch.setattr(shardqueue.ShardQueue, "take", lose)
            assert await one.link.take(2, ALL) == []
            await until(lambda: _ask(one) and not one.link.away)
            assert await one.link.take(2, ALL) == [1, 2]
            assert await one.link.take(2, ALL) == [3]

    in_loop(work)


def test_an_over_run_is_deleted(server: Redis, redis_client: Client, database_id: str) -> None:
    async def work() -> None:
        async with linked(server.url, database_id, shared_fingerprints=True) as one:
            assert await one.link.fill(shelf(*waiting(1, 2, 3))) == 3
            one.link.forget()

    in_loop(work)
    names = {key.rsplit(b":", 1)[1] for key in redis_client.scan_iter()}
    assert names <= {b"beats", b"probe"}


def test_flushall_while_filling_stops_and_the_next_fill_is_whole(
    server: Redis, redis_client: Client, database_id: str
) -> None:
    async def work() -> None:
        async with linked(server.url, database_id) as one:
            read = shelf(*waiting(*range(1, 10)))

            async def flushed(after: int) -> list[Waiting]:
                if after == 4:
                    redis_client.flushall()
                return await read(after)

            assert await one.link.fill(flushed) < 9
            assert await one.link.fill(read) == 9
            assert await one.link.take(20, ALL) == [*range(1, 10)]

    in_loop(work)


# Redis goes away


def test_red_8_a_frozen_redis_never_holds_the_loop_up(
    server: Redis, database_id: str, said: pytest.LogCaptureFixture
) -> None:
    async def work() -> tuple[float, list[float]]:
        took = []
        async with linked(server.url, database_id) as one, lag() as meter:
            await one.link.fill(shelf(*waiting(1, 2)))
            assert await one.link.take(1, ALL) == [1]
            server.freeze()
            for _ in range(5):
                began = time.monotonic()
                assert await one.link.take(1, ALL) == []
                assert await one.link.alive(["i"]) == set()
                assert await one.link.lock("recover", 60)
                assert await one.link.fill(shelf(*waiting(5))) == 0
                for post in (one.link.wake, one.link.forget):
                    post()
                one.link.beat("i", 60)
                one.link.share([b"x"])
                await one.link.settle([1], [1])
                took.append(time.monotonic() - began)
                assert one.link.away
                await asyncio.sleep(0.25)
            server.thaw()
            await until(lambda: _ask(one) and not one.link.away)
            assert await one.link.take(9, ALL) != []
        return meter.worst, took

    worst, took = in_loop(work)
    assert worst < BLOCKED
    assert took[0] < redisthread.PATIENCE + 1
    assert max(took[1:]) < BLOCKED  # nobody waits while it is asked again
    assert len(lines(said, logging.WARNING)) == 1
    away, back = lines(said)
    assert "is away: no answer within 2 s" in away and "is back after" in back


def _ask(one: Linked) -> bool:
    one.link.beat("i", 60)
    return True


def test_red_8_dead_connections_are_left_for_new_ones(server: Redis, database_id: str) -> None:
    relay = BlackHole(server.port)
    url = f"redis://{server.host}:{relay.port}/0"

    async def work() -> None:
        async with linked(url, database_id) as one, linked(server.url, database_id) as two:
            await one.link.alive(["i"])  # both connections are there now
            relay.swallow()
            assert await one.link.take(1, ALL) == []
            assert one.link.away
            await until(lambda: _ask(one) and not one.link.away)
            await until(lambda: one.woken)
            for _ in range(3):  # the listener, too, has a new connection
                woken = len(one.woken)
                two.link.wake()
                await until(lambda: len(one.woken) > woken)  # noqa: B023

    with closing(relay):
        in_loop(work)


def test_red_8_closing_while_redis_is_frozen(server: Redis, database_id: str) -> None:
    async def work() -> float:
        one = Linked(server.url)
        await one.link.open(database_id, 1)
        server.freeze()
        one.link.beat("i", 60)
        one.link.wake()
        one.link.forget()
        began = time.monotonic()
        async with lag() as meter:
            assert await one.link.close(8)
        assert meter.worst < BLOCKED
        return time.monotonic() - began

    assert in_loop(work) < 8


def test_red_8_the_listener_ends_in_silence_when_its_connection_is_closed_under_it(
    server: Redis, database_id: str, said: pytest.LogCaptureFixture
) -> None:
    ends: list[Any] = []

    async def work() -> None:
        one = Linked(server.url)
        await one.link.open(database_id, 1)
        await one.wakes()
        server.freeze()
        one.link.beat("i", 60)
        await one.link.close(8)
        await until(lambda: not any("wakeups" in t.name for t in threading.enumerate()))

    whole, threading.excepthook = threading.excepthook, ends.append
    try:
        in_loop(work)
    finally:
        threading.excepthook = whole
    assert ends == []
    assert len(lines(said)) == 1  # that it is away


def test_red_8_closing_waits_no_longer_than_it_may(server: Redis, database_id: str) -> None:
    async def work() -> float:
        one = Linked(server.url)
        await one.link.open(database_id, 1)
        server.freeze()
        one.link.beat("i", 60)
        began = time.monotonic()
        assert not await one.link.close(0.3)
        took = time.monotonic() - began
        server.thaw()
        return took

    assert in_loop(work) < 1.9


def test_red_8_no_call_of_redis_py_is_made_in_the_loop(
    server: Redis, database_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: set[str] = set()
    for name in ("connect", "send_packed_command", "read_response", "can_read"):
        whole = getattr(AbstractConnection, name)

        def noted(self: Any, *args: Any, whole: Any = whole, **kwargs: Any) -> Any:
            threads.add(threading.current_thread().name)
            return whole(self, *args, **kwargs)

        monkeypatch.setattr(AbstractConnection, name, noted)

    async def work() -> None:
        async with linked(server.url, database_id, shared_fingerprints=True) as one:
            await one.link.fill(shelf(*waiting(1, 2)))
            taken = await one.link.take(1, ALL)
            await one.link.settle(taken, taken)
            await one.link.alive(["i"])
            await one.link.lock("recover", 60)
            for post in (one.link.wake, one.link.forget):
                post()
            one.link.beat("i", 60)
            one.link.share([b"x"])

    in_loop(work)
    assert threads
    assert all(name.startswith("scrapy_resume-") for name in threads), threads


@pytest.mark.parametrize("kept", [True, False], ids=["data kept", "data lost"])
def test_red_5_redis_disappears_and_comes_back(
    tmp_path: Path, database_id: str, said: pytest.LogCaptureFixture, kept: bool
) -> None:
    options = ("--appendonly", "yes", "--appendfsync", "always") if kept else ()
    server = Redis(tmp_path, *options)
    server.start()

    async def work() -> None:
        async with linked(server.url, database_id, heartbeat=0.05) as one:
            await one.link.fill(shelf(*waiting(1, 2, 3)))
            assert await one.link.take(1, ALL) == [1]
            server.kill()
            assert await one.link.take(1, ALL) == []
            assert one.link.away
            await until(lambda: one.stats["queue/away"] == 1)
            server.start()
            woken = len(one.woken)
            await until(lambda: _ask(one) and not one.link.away)
            await until(lambda: len(one.woken) > woken)
            assert await one.link.take(9, ALL) == ([2, 3] if kept else [])
            assert await one.link.fill(shelf(*waiting(2, 3))) == 2
            async with linked(server.url, database_id) as two:
                two.link.wake()
                await one.wakes()

    try:
        in_loop(work)
    finally:
        server.discard()
    away, back = lines(said)
    assert "is away: " in away and "is back" in back


def test_red_5_start_and_stop_while_redis_is_down(
    tmp_path: Path, database_id: str, said: pytest.LogCaptureFixture
) -> None:
    server = Redis(tmp_path)

    async def work() -> None:
        began = time.monotonic()
        down = Linked(server.url)
        await down.link.open(database_id, 1)
        assert down.link.away
        assert await down.link.take(5, ALL) == []
        assert await down.link.lock("recover", 60)
        assert await down.link.close(5)
        assert time.monotonic() - began < 10
        late = Linked(server.url)
        await late.link.open(database_id, 1)
        server.start()
        await until(lambda: _ask(late) and not late.link.away)
        await until(lambda: bool(late.woken))
        assert await late.link.fill(shelf(*waiting(1))) == 1
        await late.link.close(5)

    try:
        in_loop(work)
    finally:
        server.discard()
    assert [line.split(": ")[0].partition(" at ")[2].split()[-1] for line in lines(said)] == [
        "away", "away", "s"
    ]  # fmt: skip


def test_a_redis_that_comes_up_late_and_refuses_us_is_told_of(
    tmp_path: Path, database_id: str, said: pytest.LogCaptureFixture
) -> None:
    server = Redis(tmp_path, "--maxmemory-policy", "allkeys-lru")

    async def work() -> None:
        async with linked(
            server.url, database_id, listening=False, on_redis_eviction="refuse"
        ) as one:
            server.start()
            await until(lambda: _ask(one) and len(lines(said)) > 1)
            assert one.link.away

    try:
        in_loop(work)
    finally:
        server.discard()
    assert "RESUME_ON_REDIS_EVICTION" in lines(said)[1] and len(lines(said)) == 2


def test_red_5_only_the_listener_s_connection_is_cut(
    server: Redis, redis_client: Client, database_id: str, said: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        async with linked(server.url, database_id) as one, linked(server.url, database_id) as two:
            redis_client.client_kill_filter(_type="pubsub")
            woken = len(one.woken)
            await until(lambda: len(one.woken) > woken)  # listens again
            two.link.wake()
            await one.wakes()
            assert not one.link.away

    in_loop(work)
    assert lines(said) == []


def test_red_5_a_connection_cut_while_idle_is_made_anew(
    server: Redis, redis_client: Client, database_id: str, said: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        async with linked(server.url, database_id) as one:
            await one.link.fill(shelf(*waiting(1)))
            await one.link.alive(["i"])
            redis_client.client_kill_filter(_type="normal", skipme=True)
            assert await one.link.take(1, ALL) == [1]
            assert not one.link.away

    in_loop(work)
    assert lines(said) == []


def test_red_6_a_full_redis_is_done_without(
    server: Redis, redis_client: Client, database_id: str, said: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        async with linked(server.url, database_id) as one:
            await one.link.fill(shelf(*waiting(1, 2)))
            await one.link.alive(["i"])
            redis_client.config_set("maxmemory", 1)
            for _ in range(5):
                one.link.beat("i", 60)
                assert await one.link.lock("recover", 60)
                assert await one.link.take(1, ALL) == []
                await asyncio.sleep(0.25)
            assert one.link.away
            redis_client.config_set("maxmemory", 0)
            await until(lambda: _ask(one) and not one.link.away)
            assert await one.link.take(9, ALL) == [1, 2]

    in_loop(work)
    (away,) = lines(said, logging.WARNING)
    assert "maxmemory" in away
    assert len(lines(said)) == 2


def test_red_5_a_step_forbidden_in_mid_run_is_told_once(
    server: Redis, redis_client: Client, database_id: str, said: pytest.LogCaptureFixture
) -> None:
    """What it still lets us do must not make it look back every few seconds."""
    redis_client.acl_setuser(
        "limited", enabled=True, nopass=True, keys=["*"], channels=["*"], categories=["+@all"]
    )
    url = server.url.replace("redis://", "redis://limited:x@")

    async def work() -> None:
        async with linked(url, database_id, listening=False) as one:
            redis_client.execute_command("ACL", "SETUSER", "limited", "-evalsha")
            assert await one.link.take(1, ALL) == []
            for _ in range(8):
                _ask(one)
                await asyncio.sleep(0.1)
            assert one.link.away and not any("back" in line for line in lines(said))
            redis_client.execute_command("ACL", "SETUSER", "limited", "+evalsha")
            await until(lambda: _ask(one) and not one.link.away)

    in_loop(work)
    assert len(lines(said, logging.WARNING)) <= 2, lines(said)


# What Redis does when it is full


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl", "volatile-lru"])
def test_red_7_a_redis_that_evicts_is_warned_of(
    server: Redis, redis_client: Client, database_id: str, said: pytest.LogCaptureFixture,
    policy: str,
) -> None:  # fmt: skip
    redis_client.config_set("maxmemory-policy", policy)
    in_loop(lambda: _open_and_close(server.url, database_id))
    (warning,) = lines(said)
    assert policy in warning and "noeviction" in warning


def test_red_7_a_redis_that_evicts_may_be_refused(
    server: Redis, redis_client: Client, database_id: str
) -> None:
    redis_client.config_set("maxmemory-policy", "allkeys-lfu")
    with pytest.raises(ConfigurationError, match=r"allkeys-lfu.*RESUME_ON_REDIS_EVICTION"):
        in_loop(lambda: _open_and_close(server.url, database_id, on_redis_eviction="refuse"))


def test_red_7_noeviction_is_no_matter(
    server: Redis, database_id: str, said: pytest.LogCaptureFixture
) -> None:
    in_loop(lambda: _open_and_close(server.url, database_id, on_redis_eviction="refuse"))
    assert lines(said) == []


@pytest.mark.parametrize("allowed", [(), ("+info",), ("+config|get",)], ids=str)
def test_red_7_what_cannot_be_checked_is_said(
    server: Redis, redis_client: Client, database_id: str, said: pytest.LogCaptureFixture,
    allowed: tuple[str, ...],
) -> None:  # fmt: skip
    redis_client.execute_command(
        "ACL", "SETUSER", "crawler", "on", ">pw", "~resume:*", "&resume:*", "+@all", "-info",
        "-config", "-@dangerous", *allowed,
    )  # fmt: skip
    url = f"redis://crawler:pw@{server.host}:{server.port}/0"
    in_loop(lambda: _open_and_close(url, database_id, on_redis_eviction="refuse"))
    assert [bool(re.match("Cannot check", line)) for line in lines(said)] == (
        [] if allowed else [True]
    )


async def _open_and_close(url: str, database_id: str, **settings: Any) -> None:
    async with linked(url, database_id, **settings) as one:
        await one.link.fill(shelf(*waiting(1)))
        assert await one.link.take(1, ALL) == [1]


# Many links


def test_fifty_links_leave_no_thread_and_no_connection(
    server: Redis, redis_client: Client, database_id: str
) -> None:
    async def work() -> None:
        for _ in range(50):
            async with linked(server.url, database_id, listening=False) as one:
                one.link.beat("i", 60)

    before = len(redis_client.client_list()), threading.active_count()
    began = time.monotonic()
    in_loop(work)
    assert time.monotonic() - began < 60
    deadline = time.monotonic() + 30
    while (len(redis_client.client_list()), threading.active_count()) > before:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_closing_one_leaves_the_others(server: Redis, database_id: str) -> None:
    async def work() -> None:
        async with linked(server.url, database_id) as one:
            async with linked(server.url, database_id):
                pass
            await one.link.fill(shelf(*waiting(1)))
            assert await one.link.take(1, ALL) == [1]

    in_loop(work)


def test_before_the_beginning_nothing_is_asked(
    server: Redis, redis_client: Client, database_id: str, said: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        one = Linked(server.url)
        one.link.wake()
        one.link.forget()
        one.link.beat("i", 60)
        assert await one.link.take(1, ALL) == []
        assert await one.link.lock("recover", 60)
        assert await one.link.close(5)

    in_loop(work)
    assert redis_client.dbsize() == 0 and lines(said) == []


def test_after_the_end_nothing_is_asked(server: Redis, database_id: str) -> None:
    async def work() -> None:
        async with linked(server.url, database_id) as one:
            pass
        assert await one.link.take(1, ALL) == []
        one.link.beat("i", 60)
        assert await one.link.close(1)

    in_loop(work)
