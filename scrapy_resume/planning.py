"""What a crawl works on: the name of its task, and the shards of its run."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from scrapy import Request

from scrapy_resume import cursor
from scrapy_resume.exceptions import ConfigurationError
from scrapy_resume.page import Shard
from scrapy_resume.plain import iterate
from scrapy_resume.store.plans import CHUNK
from scrapy_resume.troubles import safe_url

if TYPE_CHECKING:
    from scrapy import Spider

    from scrapy_resume.mixins import ResumeSpiderMixin

_SECRET_WORDS = frozenset(
    {
        "apikey", "auth", "authorization", "cookie", "cookies", "credential", "credentials",
        "passphrase", "passwd", "password", "pwd", "secret", "sessionid", "token",
    }
)  # fmt: skip
_SECRET_KEYS = re.compile(r"(api|access|private|secret|auth)[_-]?key\Z", re.IGNORECASE)
_MAX_NAME = 190
_JOB = "_job"  # what scrapyd calls the argument

Store: TypeAlias = "Callable[[Sequence[Shard], int], Awaitable[None]]"

logger = logging.getLogger(__name__)


def identity_arguments(spider: Spider, given: dict[str, Any]) -> dict[str, str]:
    """The ``-a`` arguments that select the list, by name and sorted.

    ``identity_args`` names them; by default all count that do not begin with ``_`` and
    do not look like a secret, which is logged. A job's id never counts: it is new every time.
    """
    chosen = getattr(spider, "identity_args", None)
    if chosen is None:
        public = [name for name in given if not name.startswith("_")]
        chosen = [name for name in public if not _looks_secret(name)]
        if left_out := sorted(set(public) - set(chosen)):
            logger.info(
                "Not part of the task's name, since it looks like a secret: %s; name the arguments"
                " that select the list in identity_args", ", ".join(left_out),
                extra={"action": "secret_argument"},
            )  # fmt: skip
    return {name: str(given[name]) for name in sorted(chosen) if name in given and name != _JOB}


def job_id(given: dict[str, Any], environ: Mapping[str, str] = os.environ) -> str | None:
    """What the scheduler that started this process calls it, if one did.

    scrapyd gives it as the argument ``_job``, Scrapy Cloud as the variable ``SCRAPY_JOB``.
    """
    return str(given.get(_JOB) or environ.get("SCRAPY_JOB") or "") or None


def _quoted(value: str) -> str:
    """*value* as it is, or quoted where it could be taken for more than one argument."""
    plain = value and not re.search(r"[\s=\"']", value)
    return value if plain else json.dumps(value, ensure_ascii=False)


def _looks_secret(name: str) -> bool:
    words = re.split(r"[_-]", name.lower())
    return not _SECRET_WORDS.isdisjoint(words) or _SECRET_KEYS.search(name) is not None


def task_name(spider_name: str, arguments: dict[str, str]) -> str:
    """The task's name: the spider's and its identity arguments, at most 190 characters."""
    pairs = (f"{key}={_quoted(value)}" for key, value in arguments.items())
    name = " ".join([spider_name, *pairs])
    if len(name.encode()) <= _MAX_NAME:
        return name
    mark = hashlib.blake2b(name.encode(), digest_size=8).hexdigest()
    short = name.encode()[: _MAX_NAME - 20].decode(errors="ignore")
    return f"{short} #{mark}"


def arguments_text(arguments: dict[str, str]) -> str:
    """The identity arguments as JSON text, the same for every order they came in."""
    return json.dumps(arguments, ensure_ascii=False, sort_keys=True)


def default_site(spider: Spider) -> str:
    """The site shards belong to unless they say otherwise."""
    domains = getattr(spider, "allowed_domains", None) or []
    return getattr(spider, "site", None) or next(iter(domains), None) or spider.name


def chain_shard(request: Request, number: int, spider: Spider) -> Shard:
    """The chain that begins with a start request. Raises ResumeError for one JSON cannot hold."""
    saved = cursor.of_request(request, spider)
    url = safe_url(request.url)
    key = url if request.method == "GET" else f"{request.method} {url}"
    mark = hashlib.blake2b(cursor.dump(saved).encode(), digest_size=6).hexdigest()
    return Shard(f"{number}:{mark}:{key}"[:_MAX_NAME], cursor=saved, ordered=True)


def checked(shards: Iterable[Any]) -> list[Shard]:
    """*shards*, each of them valid. Raises ConfigurationError naming the one that is not."""
    return [_checked(shard) for shard in shards]


def _checked(shard: Any) -> Shard:
    if not isinstance(shard, Shard):
        raise ConfigurationError(f"plan() yielded {type(shard).__name__}; it must yield Shard")
    _check_types(shard)
    if shard.last_page is not None and shard.last_page < shard.first_page:
        raise ConfigurationError(
            f"shard {shard.key!r} ends at page {shard.last_page} before its first page"
            f" {shard.first_page}"
        )
    return shard


def _check_types(shard: Shard) -> None:
    wanted = {
        "key": str, "first_page": int, "last_page": (int, type(None)), "priority": int,
        "site": (str, type(None)), "ordered": (bool, type(None)),
    }  # fmt: skip
    for name, types in wanted.items():
        value = getattr(shard, name)
        if not isinstance(value, types):  # type: ignore[arg-type]
            raise ConfigurationError(
                f"plan() yielded Shard({shard.key!r}) with {name}={value!r}, which is a"
                f" {type(value).__name__}"
            )


class Plan:
    """The shards of one run, from ``plan()`` and from the spider's start().

    They are handed to *store* in chunks of at most 1,000, with the number of the first, as
    they come: a plan of any size takes little memory. :attr:`count` says how many there
    were.
    """

    def __init__(self, spider: ResumeSpiderMixin, store: Store) -> None:
        self.count = 0
        self._spider, self._store = spider, store
        self._chunk: list[Shard] = []

    async def read(self, start: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """Store every shard; yields the items that start() yields among its requests.

        Raises ConfigurationError for an output that is no shard.
        """
        spider = self._spider
        async for shard in iterate(spider.plan()):
            await self._add(self._ordered(_checked(shard)))
        if not spider.plans_pages or spider.has_own_start:
            async for output in start:
                if isinstance(output, Request):
                    await self._add(chain_shard(output, self.count + 1, spider))
                else:
                    yield output
        await self._flush()

    async def _add(self, shard: Shard) -> None:
        self._chunk.append(shard)
        self.count += 1
        if len(self._chunk) >= CHUNK:
            await self._flush()

    async def _flush(self) -> None:
        if self._chunk:
            chunk, self._chunk = self._chunk, []
            await self._store(chunk, self.count - len(chunk) + 1)

    def _ordered(self, shard: Shard) -> Shard:
        if shard.ordered is not None:
            return shard
        numbered = shard.last_page is not None or self._spider.is_numbered
        return replace(shard, ordered=shard.cursor is not None or not numbered)
