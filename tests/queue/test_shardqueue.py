"""What the queue hands out, to whom, and what becomes of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import closing

import pytest
from redis import Redis as Client
from scrapy.settings import Settings

from scrapy_resume import shardqueue
from scrapy_resume.exceptions import QueueUnavailable
from scrapy_resume.intake import Intake, Waiting
from scrapy_resume.redisclient import RedisClient
from scrapy_resume.settings import ResumeSettings
from scrapy_resume.shardqueue import Entry, ShardQueue
from tests.queue.blackhole import BlackHole
from tests.services import Redis

ALL = Intake()
Asker = Callable[..., ShardQueue]


def ids(entries: list[Entry]) -> list[int]:
    return [entry.id for entry in entries]


def shards(count: int, *, site: str = "s", lane: int = 0, priority: int = 0) -> list[Waiting]:
    return [Waiting(number, site, lane, priority) for number in range(1, count + 1)]


def test_the_most_urgent_comes_first(asker: Asker) -> None:
    queue = asker("a")
    queue.offer(
        [Waiting(1, "s", 1, 0), Waiting(2, "s", 0, 5), Waiting(10, "s", 0, 0),
         Waiting(9, "s", 0, 0), Waiting(3, "t", 0, 1), Waiting(4, "s", 0, -2)]
    )  # fmt: skip
    assert ids(queue.take("1", 10, ALL)) == [4, 9, 10, 3, 2, 1]


def test_ids_keep_their_order_whatever_their_length(asker: Asker) -> None:
    queue = asker("a")
    queue.offer([Waiting(number, "s", 0, 0) for number in (100, 9, 10, 10**12, 99)])
    assert ids(queue.take("1", 9, ALL)) == [9, 10, 99, 100, 10**12]


def test_sites_of_one_urgency_take_turns(asker: Asker) -> None:
    queue = asker("a")
    queue.offer([Waiting(n, f"s{n % 4}", 0, 0) for n in range(1, 401)])
    taken = ids(queue.take("1", 40, ALL))
    assert [sum(n % 4 == site for n in taken) for site in range(4)] == [10, 10, 10, 10]


def test_urgency_goes_before_turns(asker: Asker) -> None:
    queue = asker("a")
    queue.offer([Waiting(n, "urgent", 0, 0) for n in range(1, 21)])
    queue.offer([Waiting(n, f"s{n}", 0, 5) for n in range(100, 150)])
    assert ids(queue.take("1", 20, ALL)) == list(range(1, 21))
    assert len(queue.take("2", 100, ALL)) == 50


@pytest.mark.parametrize(
    ("intake", "wanted"),
    [
        (Intake.parse("fresh"), {1, 2, 3}),
        (Intake.parse("resumed"), {4, 5}),
        (Intake.parse("", "0,7-9"), {1, 3, 4}),
        (Intake.parse("", "", ["t"]), {3, 5}),
        (Intake.parse("fresh", "0-2", ["s"]), {1}),
    ],
)
def test_only_what_the_asker_takes(asker: Asker, intake: Intake, wanted: set[int]) -> None:
    queue = asker("a")
    offered = [Waiting(1, "s", 0, 0), Waiting(2, "s", 0, 3), Waiting(3, "t", 0, 9),
               Waiting(4, "s", 1, 0), Waiting(5, "t", 1, 3)]  # fmt: skip
    queue.offer(offered)
    assert set(ids(queue.take("1", 10, intake))) == wanted
    assert set(ids(queue.take("2", 10, ALL))) == {1, 2, 3, 4, 5} - wanted


def test_so_many_sites_that_not_each_is_looked_at(asker: Asker) -> None:
    queue = asker("a")
    queue.offer([Waiting(n, f"s{n}", 0, 0) for n in range(1, 3001)])
    got: list[int] = []
    while taken := queue.take(str(len(got)), 400, ALL):
        got += ids(taken)
        queue.settle(taken)
    assert sorted(got) == list(range(1, 3001))
    assert queue.begin_fill()


def test_nobody_gets_what_another_one_has(asker: Asker) -> None:
    asker("filler").offer([Waiting(n, f"s{n % 7}", n % 2, n % 3) for n in range(1, 2001)])
    got: list[list[int]] = [[] for _ in range(8)]

    def work(number: int) -> None:
        queue, requests = asker(f"worker {number}"), iter(range(10**6))
        while taken := queue.take(str(next(requests)), 7, ALL):
            got[number] += ids(taken)
            queue.settle(taken)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(number for numbers in got for number in numbers) == list(range(1, 2001))


def test_the_same_request_gets_the_same_answer(asker: Asker) -> None:
    queue, other = asker("a"), asker("b")
    queue.offer(shards(20))
    first = queue.take("once", 5, ALL)
    assert queue.take("once", 5, ALL) == first
    assert not set(ids(other.take("once", 5, ALL))) & set(ids(first))
    assert not set(ids(queue.take("twice", 5, ALL))) & set(ids(first))


def test_what_is_not_settled_in_time_is_offered_again(
    asker: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shardqueue, "HANDOUT", 0.6)
    dead, queue = asker("dead"), asker("a")
    queue.offer([Waiting(1, "a b:c\n", 1, 3), *shards(1, site="t")])
    assert len(dead.take("1", 5, ALL)) == 2
    assert queue.take("1", 5, ALL) == []
    time.sleep(0.7)
    again = queue.take("2", 5, ALL)
    assert len(again) == 2 and again[1] == Entry(1, b"3:%016d:1:a b:c\n" % 1)
    queue.settle(again)
    time.sleep(0.7)
    assert queue.take("3", 5, ALL) == []


def test_a_late_settlement_takes_it_out_of_the_queue(
    asker: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shardqueue, "HANDOUT", 0.05)
    slow, queue = asker("slow"), asker("a")
    queue.offer(shards(1))
    taken = slow.take("1", 1, ALL)
    time.sleep(0.1)
    queue.take("1", 0, ALL)  # puts back what came back
    slow.settle(taken)
    assert queue.take("2", 5, ALL) == []


def test_one_fills_and_the_others_do_not(asker: Asker) -> None:
    one, other = asker("a"), asker("b")
    assert one.begin_fill()
    assert one.begin_fill()  # a lost reply: asked for again
    assert not other.begin_fill()
    assert one.offer(shards(3), filling=True)
    one.end_fill(0.6)
    assert not other.begin_fill()
    one.settle(one.take("1", 3, ALL))
    assert not other.begin_fill()  # empty, but filled a moment ago
    time.sleep(0.7)
    assert other.begin_fill()


def test_a_queue_that_holds_something_is_not_filled(asker: Asker) -> None:
    asker("a").offer(shards(1))
    assert not asker("b").begin_fill()


def test_a_silent_filler_is_followed_by_another(
    asker: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shardqueue, "FILLING", 0.1)
    one, other = asker("a"), asker("b")
    assert one.begin_fill()
    time.sleep(0.15)
    assert other.begin_fill()
    assert not one.offer(shards(3), filling=True)
    assert other.take("1", 3, ALL) == []


def test_flushall_tells_the_filler_to_stop(asker: Asker, redis_client: Client) -> None:
    queue = asker("a")
    assert queue.begin_fill() and queue.offer(shards(3), filling=True)
    redis_client.flushall()
    assert not queue.offer([Waiting(9, "s", 0, 0)], filling=True)
    assert queue.begin_fill()


def test_offered_twice_is_handed_out_once(asker: Asker) -> None:
    queue = asker("a")
    queue.offer(shards(5))
    queue.offer(shards(5))
    assert len(queue.take("1", 10, ALL)) == 5


def test_who_beats_is_alive_until_its_time(asker: Asker) -> None:
    one, other = asker("a"), asker("b")
    one.beat("first", 0.6)
    one.beat("second", 60)
    assert other.alive(["first", "second", "third"]) == {"first", "second"}
    time.sleep(0.7)
    assert other.alive(["first", "second", "third"]) == {"second"}
    assert other.alive([]) == set()


def test_a_lock_has_one_holder_who_may_ask_again(asker: Asker) -> None:
    one, other = asker("a"), asker("b")
    assert one.lock("recover:w", 0.6) and one.lock("recover:w", 0.6)
    assert not other.lock("recover:w", 60)
    assert other.lock("recover:v", 60)
    time.sleep(0.7)
    assert other.lock("recover:w", 60)


def test_fingerprints_are_told_in_order_and_bounded(asker: Asker, redis_client: Client) -> None:
    one, other = asker("a"), asker("b")
    prints = [b"\x00\xff%018d" % number for number in range(3000)]
    one.share(prints[:1000], 100000)
    place, got = other.shared(b"0", 600)
    assert got == prints[:600]
    place, got = other.shared(place, 600)
    assert got == prints[600:1000]
    assert other.shared(place, 600) == (place, [])
    one.share(prints, 500)
    kept = other.shared(b"0", 5000)[1]
    assert kept == prints[-len(kept) :] and 500 <= len(kept) <= 700


def test_two_databases_and_two_runs_do_not_meet(asker: Asker) -> None:
    asker("a").offer(shards(3))
    asker("a").share([b"x"], 10)
    asker("a").beat("i", 60)
    for stranger in (asker("a", run=2), asker("a", database="other")):
        assert stranger.take("1", 5, ALL) == []
        assert stranger.shared(b"0", 5)[1] == []
        assert stranger.begin_fill()
    assert asker("a", run=2).alive(["i"]) == {"i"}
    assert asker("a", database="other").alive(["i"]) == set()


SITES = ["a:b", "0:s", "", " ", "日本 ü", "x" * 200, "a\nb", "%s {0} *?[", '"\\', "\0"]


def test_any_site_name_comes_through(asker: Asker) -> None:
    queue = asker("a")
    queue.offer([Waiting(n, site, n % 2, n) for n, site in enumerate(SITES, 1)])
    for number, site in enumerate(SITES, 1):
        taken = queue.take(f"only {number}", 5, Intake(sites=frozenset({site})))
        assert ids(taken) == [number]
        queue.settle(taken)
    assert queue.begin_fill()


def test_every_key_of_a_run_expires_and_is_forgotten(asker: Asker, redis_client: Client) -> None:
    queue = asker("a")
    assert queue.begin_fill()
    queue.offer([Waiting(n, f"s{n % 3}", n % 2, 0) for n in range(60)], filling=True)
    queue.take("1", 5, ALL)
    queue.share([b"x"], 10)
    queue.beat("i", 60)
    queue.lock("recover", 60)
    queue.probe()
    keys = redis_client.keys()
    assert len(keys) == 6 + 5 + 3
    week = shardqueue.KEEP * 1000
    assert all(0 < redis_client.pttl(key) <= week for key in keys)
    queue.forget()
    left = {key.rsplit(b":", 1)[1] for key in redis_client.scan_iter()}
    assert left == {b"beats", b"recover", b"probe"}


def test_red_6_the_number_of_keys_does_not_grow_with_pages(
    asker: Asker, redis_client: Client
) -> None:
    queue = asker("a")
    queue.offer(shards(1000))
    counts = set()
    for round_ in range(200):
        taken = queue.take(str(round_), 5, ALL)
        queue.settle(taken)
        queue.beat("i", 60)
        queue.share([b"%020d" % round_], 50)
        queue.wake()
        counts.add(redis_client.dbsize())
    assert len(counts) <= 2 and max(counts) <= 8


def test_the_queue_s_own_empty_queues_do_not_pile_up(asker: Asker, redis_client: Client) -> None:
    queue = asker("a")
    for number in range(50):
        queue.offer([Waiting(number, f"site {number}", 0, 0)])
        queue.settle(queue.take(str(number), 5, ALL))
    assert redis_client.dbsize() <= 1  # the last answer


def test_a_rehearsal_leaves_nothing(asker: Asker, redis_client: Client) -> None:
    asker("a").rehearse()
    time.sleep(0.01)
    assert {key.rsplit(b":", 1)[1] for key in redis_client.scan_iter()} <= {b"beats", b"probe"}


def test_what_was_thrown_away_is_an_empty_queue(asker: Asker, redis_client: Client) -> None:
    queue = asker("a")
    queue.offer(shards(5))
    taken = queue.take("1", 2, ALL)
    redis_client.flushall()
    redis_client.script_flush()
    assert queue.take("2", 2, ALL) == []
    queue.settle(taken)
    queue.end_fill(1)
    queue.forget()
    assert queue.begin_fill() and queue.offer(shards(5), filling=True)
    assert len(queue.take("3", 9, ALL)) == 5


def test_red_6_a_full_redis_says_maxmemory(
    asker: Asker, redis_client: Client, server: Redis
) -> None:
    queue = asker("a")
    queue.offer(shards(5))
    redis_client.config_set("maxmemory", 1)
    for step in (
        lambda: queue.offer(shards(9)),
        lambda: queue.share([b"x"], 10),
        lambda: queue.beat("i", 1),
        lambda: queue.lock("l", 1),
        queue.probe,
    ):
        with pytest.raises(QueueUnavailable, match="maxmemory"):
            step()
    redis_client.config_set("maxmemory", 0)
    assert len(queue.take("1", 9, ALL)) == 5


def test_a_subscription_is_there_once_redis_has_answered_it(
    server: Redis, database_id: str
) -> None:
    relay = BlackHole(server.port)
    relay.held = b"SUBSCRIBE"
    settings = ResumeSettings(redis_url=f"redis://127.0.0.1:{relay.port}/0")
    client = RedisClient.of(settings, Settings())
    assert client is not None
    with closing(relay), closing(client):
        threading.Timer(0.3, relay.let_go.set).start()
        queue = ShardQueue(client, database_id, 1, "a")
        with closing(queue.subscribe()):
            assert relay.let_go.is_set(), "what is told now must be heard"
