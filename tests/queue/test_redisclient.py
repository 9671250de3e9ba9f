"""What redis-py's errors mean to us."""

from __future__ import annotations

import pytest
import redis
from scrapy.settings import Settings

from scrapy_resume.exceptions import ConfigurationError, QueueUnavailable
from scrapy_resume.redisclient import RedisClient
from scrapy_resume.settings import ResumeSettings


@pytest.fixture
def client() -> RedisClient:
    made = RedisClient.of(ResumeSettings(redis_url="redis://:CANARY@redis.invalid/0"), Settings())
    assert made is not None
    return made


def test_a_connection_found_closed_is_tried_anew_once(client: RedisClient) -> None:
    troubles: list[Exception] = [redis.ConnectionError("closed by server")]

    def step(word: str) -> str:
        if troubles:
            raise troubles.pop()
        return word

    assert client.ask(step, "done") == "done"
    troubles += [redis.ConnectionError("second"), redis.ConnectionError("first")]
    with pytest.raises(QueueUnavailable, match="second"):
        client.ask(step, "done")
    troubles += [redis.TimeoutError("first")]  # it may still be at work on it
    with pytest.raises(QueueUnavailable, match="no answer within 2 s"):
        client.ask(step, "done")


@pytest.mark.parametrize(
    ("error", "meaning"),
    [
        (redis.AuthenticationError("WRONGPASS invalid username-password pair"), ConfigurationError),
        (redis.ResponseError("DB index is out of range"), ConfigurationError),
        (redis.ResponseError("unknown command 'AUTH', with args beginning with: 'else' 'secret' "),
         ConfigurationError),
        (redis.ConnectionError("DENIED Redis is running in protected mode"), ConfigurationError),
        (redis.ConnectionError("cannot log in with CANARY"), QueueUnavailable),
        (redis.ResponseError("OOM command not allowed when used memory > 'maxmemory'. script: 1"),
         QueueUnavailable),
        (redis.exceptions.BusyLoadingError("Redis is loading the dataset"), QueueUnavailable),
        (redis.exceptions.ReadOnlyError("You can't write against a replica"), QueueUnavailable),
        (redis.ResponseError("MISCONF Redis is configured to save RDB"), QueueUnavailable),
        (redis.ResponseError("WRONGTYPE Operation against a key"), QueueUnavailable),
    ],
)  # fmt: skip
def test_an_error_tells_a_mistake_from_an_absence(
    client: RedisClient, error: redis.RedisError, meaning: type[Exception]
) -> None:
    told = client.meaning(error)
    assert type(told) is meaning
    assert not any(word in str(told) for word in ("CANARY", "secret")) and str(told)
