"""The connection to Redis: whose settings it follows, its time limits, what its errors mean.

Every limit is ours, whatever the settings of scrapy-redis or a URL say: redis-py 5 waits
for ever by default, and from 6 on it repeats commands whose reply was lost. Here nothing
waits longer than TIMEOUT, and only a connection that was found closed is tried anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib.resources import files
from typing import TYPE_CHECKING, Any, TypeVar

import redis
from redis import RedisError
from redis.backoff import NoBackoff
from redis.retry import Retry
from scrapy.utils.misc import load_object
from scrapy_redis.connection import SETTINGS_PARAMS_MAP, get_redis

from scrapy_resume.exceptions import ConfigurationError, QueueUnavailable
from scrapy_resume.redisaddress import OFF, RedisAddress

if TYPE_CHECKING:
    from scrapy.settings import BaseSettings

    from scrapy_resume.settings import ResumeSettings

T = TypeVar("T")

TIMEOUT = 2.0  # seconds that one command, or one attempt to connect, may take

_OURS = frozenset(
    {"socket_timeout", "socket_connect_timeout", "socket_keepalive", "timeout", "retry"}
    | {"retry_on_timeout", "retry_on_error", "decode_responses", "health_check_interval"}
    | {"protocol", "max_connections", "single_connection_client", "url", "redis_cls"}
)
_WHERE = ("host", "port", "db", "username", "password", "unix_socket_path", "path")
_REFUSALS = (
    "no permission", "can't run this", "acl failure", "unknown command", "db index", "invalid db",
    "denied", "certificate_verify_failed", "select is not allowed",
)  # fmt: skip


@dataclass(frozen=True)
class RedisClient:
    """A client that has not connected yet. *shown* is its address for logs and people."""

    redis: redis.Redis = field(repr=False)
    shown: str
    secret: str | None = field(default=None, repr=False)

    @classmethod
    def of(cls, settings: ResumeSettings, crawler_settings: BaseSettings) -> RedisClient | None:
        """The client of our own settings, else of scrapy-redis'; None if neither names a Redis.

        Raises ConfigurationError.
        """
        if settings.redis_url == OFF:
            return None
        address = settings.redis_address
        if address is not None:
            return _connect(address, {})
        params = dict(crawler_settings.getdict("REDIS_PARAMS"))
        for name, param in SETTINGS_PARAMS_MAP.items():
            if crawler_settings.get(name):
                params[param] = crawler_settings.get(name)
        if not any(params.get(name) for name in ("url", *_WHERE)):
            return None
        if params.get("url"):
            return _connect(RedisAddress.parse(str(params["url"]), "REDIS"), params)
        return _connect(None, params)

    def ask(self, call: Callable[..., T], *args: Any) -> T:
        """``call(*args)``. A connection found closed is tried anew, once: each of our steps may
        be repeated. Raises QueueUnavailable, or ConfigurationError if Redis refuses us."""
        try:
            try:
                return call(*args)
            except redis.ConnectionError:
                return call(*args)
        except RedisError as error:
            raise self.meaning(error) from None

    def script(self, name: str) -> Callable[..., Any]:
        """The step ``lua/<name>.lua``; to be made by :meth:`ask`."""
        source = (files("scrapy_resume") / "lua" / f"{name}.lua").read_text("utf-8")
        step: Callable[..., Any] = self.redis.register_script(source)
        return step

    def close(self) -> None:
        """Close all connections; blocks for no longer than a moment."""
        self.redis.close()
        self.redis.connection_pool.disconnect()

    def meaning(self, error: RedisError) -> QueueUnavailable | ConfigurationError:
        """*error* as ours, without a secret in its text."""
        text = str(error).partition(", with args beginning")[0].partition(" script:")[0]
        if self.secret and len(self.secret) > 3:
            text = text.replace(self.secret, "***")
        if _refuses(error):
            return ConfigurationError(f"Redis at {self.shown} refuses us: {text[:200]}")
        if isinstance(error, redis.OutOfMemoryError) or "OOM command" in text:
            return QueueUnavailable("it is full: it takes no writes at its maxmemory", heals=False)
        if isinstance(error, redis.TimeoutError):
            return QueueUnavailable(f"no answer within {TIMEOUT:g} s")
        return QueueUnavailable(text[:200] or type(error).__name__)


def _refuses(error: RedisError) -> bool:
    if isinstance(error, (redis.AuthenticationError, redis.exceptions.AuthorizationError)):
        return True
    if isinstance(error, redis.exceptions.NoPermissionError):
        return True
    text = str(error).lower()
    return any(sign in text for sign in _REFUSALS)


def _connect(address: RedisAddress | None, params: Mapping[str, Any]) -> RedisClient:
    options: dict[str, Any] = {k: value for k, value in params.items() if k not in _OURS}
    options |= {
        "socket_timeout": TIMEOUT,
        "retry": Retry(NoBackoff(), 0),
        "decode_responses": False,
        "protocol": 2,
    }
    if not (address.scheme == "unix" if address else params.get("unix_socket_path")):
        options |= {"socket_connect_timeout": TIMEOUT, "socket_keepalive": True}
    if address is not None:
        query = tuple(option for option in address.query if option[0] not in _OURS)
        options["url"] = replace(address, query=query).url
    redis_cls = params.get("redis_cls") or redis.Redis
    redis_cls = load_object(redis_cls) if isinstance(redis_cls, str) else redis_cls
    try:
        client = get_redis(redis_cls=redis_cls, **options)
        client.connection_pool.make_connection()  # connects to nothing, but reads the options
    except (TypeError, ValueError, AttributeError, RedisError) as error:
        raise ConfigurationError(f"The settings of Redis hold {_complaint(error)}") from None
    if address is not None:
        return RedisClient(client, address.redacted_url, address.password)
    return RedisClient(client, _shown(params), params.get("password"))


def _complaint(error: Exception) -> str:
    """What redis-py finds wrong; names of options only, since values may be secret."""
    name = str(error).rpartition("unexpected keyword argument ")[2]
    if isinstance(error, TypeError) and name != str(error):
        return f"an option that redis-py does not know: {name}"
    return f"an option that redis-py cannot use ({type(error).__name__})"


def _shown(params: Mapping[str, Any]) -> str:
    if params.get("unix_socket_path"):
        return f"unix://{params['unix_socket_path']}"
    host = str(params.get("host") or "localhost")
    host = f"[{host.strip('[]')}]" if ":" in host else host
    return f"redis://{host}:{params.get('port') or 6379}/{params.get('db') or 0}"
