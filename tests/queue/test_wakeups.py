"""Wake-ups reach the listener whenever they come, and its waiting is not heard of in the log."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from redis import Redis as Client

from scrapy_resume.presence import Presence
from scrapy_resume.shardqueue import ShardQueue
from scrapy_resume.wakeups import WakeupListener

Asker = Callable[..., ShardQueue]


class Bell:
    """Counts the wake-ups."""

    def __init__(self) -> None:
        self.rung = 0
        self._changed = threading.Condition()

    def ring(self) -> None:
        with self._changed:
            self.rung += 1
            self._changed.notify_all()

    def reaches(self, count: int, within: float = 30.0) -> bool:
        """Wait until it has rung *count* times."""
        with self._changed:
            return self._changed.wait_for(lambda: self.rung >= count, within)


@contextmanager
def listening(queue: ShardQueue, look: float) -> Iterator[Bell]:
    bell = Bell()
    presence = Presence("redis://here", 0.1, lambda: None)
    listener = WakeupListener(queue, presence, bell.ring, look)
    listener.start()
    assert bell.reaches(1)  # it listens
    yield bell
    listener.stop()
    queue.wake()
    assert listener.join(5)
    assert not presence.away


def test_red_9_no_wake_up_is_lost_around_the_time_limit(
    asker: Asker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    look, teller = 0.02, asker("b")
    with listening(asker("a"), look) as bell:
        for number in range(200):
            began = time.monotonic()
            teller.wake()
            assert bell.reaches(number + 2), f"{number} of 200 came"
            # The limit begins anew with every message; come back close to its end.
            time.sleep(max(0.0, look + random.uniform(-0.01, 0.01) - (time.monotonic() - began)))
        assert bell.rung == 201
    assert caplog.records == []


def test_red_9_idling_over_many_limits_is_silent(
    asker: Asker, redis_client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with listening(asker("a"), 0.01) as bell:
        time.sleep(1.0)  # a hundred limits
        assert bell.rung == 1
        asker("b").wake()
        assert bell.reaches(2)
    assert caplog.records == []
    assert redis_client.info("commandstats").get("cmdstat_blpop") is None


def test_red_9_a_limit_longer_than_the_socket_s_is_no_error(
    asker: Asker, caplog: pytest.LogCaptureFixture
) -> None:
    """The socket's limit is 2 s; a listener that looks every 3 s outlives it."""
    caplog.set_level(logging.INFO)
    with listening(asker("a"), 3.0) as bell:
        time.sleep(2.5)
        asker("b").wake()
        assert bell.reaches(2)
    assert caplog.records == []


def test_a_wake_up_of_our_own_wakes_nobody_but_the_others(asker: Asker) -> None:
    queue, other = asker("a"), asker("b")
    with listening(queue, 0.05) as bell, listening(other, 0.05) as others:
        queue.wake()
        assert others.reaches(2)
        other.wake()
        assert bell.reaches(2)
        assert (bell.rung, others.rung) == (2, 2)
