"""The name of a task, and the shards of its run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import pytest
import scrapy

from scrapy_resume import ResumeSpiderMixin, Shard
from scrapy_resume.exceptions import ConfigurationError
from scrapy_resume.planning import (
    Plan,
    arguments_text,
    checked,
    default_site,
    identity_arguments,
    job_id,
    task_name,
)


class Spider(ResumeSpiderMixin, scrapy.Spider):
    name = "books"


def named(**given: str) -> str:
    return task_name("books", identity_arguments(Spider(), given))


def test_the_order_of_arguments_does_not_matter() -> None:
    assert named(b="2", a="1") == named(a="1", b="2") == "books a=1 b=2"


@pytest.mark.parametrize("name", ["_job", "_version"])
def test_arguments_that_begin_with_an_underscore_are_not_part(name: str) -> None:
    assert named(**{name: "x"}) == "books"


@pytest.mark.parametrize(
    "name", ["token", "api_token", "password", "pwd", "api_key", "apikey", "access-key", "auth"]
)
def test_secrets_are_not_part_of_the_name(name: str) -> None:
    assert named(**{name: "canary"}) == "books"


@pytest.mark.parametrize("name", ["author", "key", "keyword", "category", "tokens_per_page"])
def test_words_that_only_resemble_a_secret_are_part(name: str) -> None:
    assert named(**{name: "x"}) == f"books {name}=x"


def test_identity_args_say_it_outright() -> None:
    spider = Spider()
    spider.identity_args = ("category",)
    assert identity_arguments(spider, {"category": "a", "note": "b"}) == {"category": "a"}


def test_a_job_s_id_is_never_part_of_the_name() -> None:
    spider = Spider()
    spider.identity_args = ("category", "_job")
    given = {"category": "a", "_job": "6487ec"}
    assert identity_arguments(spider, given) == {"category": "a"}


def test_the_id_of_a_job_is_scrapyd_s_argument_or_a_variable() -> None:
    environ = {"SCRAPY_JOB": "1/2/3"}
    assert job_id({"_job": "6487ec", "category": "a"}, environ) == "6487ec"
    assert job_id({"_job": ""}, environ) == job_id({}, environ) == "1/2/3"
    assert job_id({"job": "x"}, {}) is None


def test_a_long_name_stays_distinct() -> None:
    one, two = (task_name("books", {"q": "x" * 500 + end}) for end in ("a", "b"))
    assert one != two
    assert len(one.encode()) <= 190


def test_arguments_are_json_in_one_order() -> None:
    assert arguments_text({"b": "ü", "a": "1"}) == '{"a": "1", "b": "ü"}'


def test_the_site_is_the_first_allowed_domain_else_the_name() -> None:
    spider = Spider()
    assert default_site(spider) == "books"
    spider.allowed_domains = ["example.com", "other.example"]
    assert default_site(spider) == "example.com"
    spider.site = "mine"
    assert default_site(spider) == "mine"


def test_what_is_no_shard_is_refused() -> None:
    wrong: list[Any] = ["a"]
    with pytest.raises(ConfigurationError, match="must yield Shard"):
        checked(wrong)
    with pytest.raises(ConfigurationError, match="before its first page"):
        checked([Shard("a", 5, 3)])


async def nowhere(shards: Sequence[Shard], first_no: int) -> None:
    """Store nothing."""


@pytest.mark.parametrize(
    ("shard", "paging", "ordered"),
    [
        (Shard("a"), None, True),
        (Shard("a", last_page=3), None, False),
        (Shard("a"), "numbered", False),
        (Shard("a", cursor="t"), "numbered", True),
        (Shard("a", cursor="t", ordered=False), None, False),
    ],
)
def test_a_shard_is_a_chain_unless_its_pages_have_numbers(
    shard: Shard, paging: str | None, ordered: bool
) -> None:
    spider = Spider()
    spider.paging = paging
    assert Plan(spider, nowhere)._ordered(shard).ordered is ordered


class Many(Spider):
    """Plans shards, and starts with requests and an item."""

    plans_pages = False

    def plan(self) -> Iterator[Shard]:
        yield from (Shard(f"s{number}") for number in range(2500))

    async def start(self) -> AsyncIterator[Any]:
        yield scrapy.Request("http://example.com/1")
        yield {"an": "item"}
        yield scrapy.Request("http://example.com/2")


def read(plan: Plan, spider: Spider) -> list[Any]:
    async def outputs() -> list[Any]:
        return [output async for output in plan.read(spider.start())]

    return asyncio.run(outputs())


def test_a_plan_is_handed_on_in_chunks() -> None:
    chunks: list[tuple[int, list[str]]] = []

    async def store(shards: Sequence[Shard], first_no: int) -> None:
        chunks.append((first_no, [shard.key for shard in shards]))

    spider = Many()
    plan = Plan(spider, store)
    assert read(plan, spider) == [{"an": "item"}]
    assert [(first, len(keys)) for first, keys in chunks] == [(1, 1000), (1001, 1000), (2001, 502)]
    keys = [key for _, part in chunks for key in part]
    assert keys[:2500] == [f"s{number}" for number in range(2500)]
    assert [key.partition(":")[0] for key in keys[2500:]] == ["2501", "2502"]
    assert plan.count == 2502


def test_what_is_no_shard_ends_a_plan_that_was_begun() -> None:
    class Wrong(Many):
        def plan(self) -> Iterator[Any]:
            yield from (Shard(f"s{number}") for number in range(1000))
            yield "s1000"

    async def store(shards: Sequence[Shard], first_no: int) -> None:
        stored.extend(shards)

    stored: list[Shard] = []
    with pytest.raises(ConfigurationError, match="plan\\(\\) yielded str"):
        read(Plan(Wrong(), store), Wrong())
    assert len(stored) == 1000
