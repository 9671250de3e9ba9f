"""What the spiders make of real answers of the site, and whole crawls of it."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from example_project.items import Character
from example_project.site import catalogue
from example_project.spiders.api import ApiSpider
from example_project.spiders.blocks import DEMO, BlocksSpider
from example_project.spiders.chain import ChainSpider

from example_project import demo
from scrapy_resume import NotAPage, Shard
from scrapy_resume.page import Page

PROJECT = Path(__file__).parents[2] / "example_project"
HARD = (0x00, 0x09, 0x0D, 0x20, 0x26, 0x3C, 0x85, 0xA0, 0xB2, 0x0301, 0x05D0, 0x0660, 0x200F,
        0x2028, 0xFEFF, 0xFFFD, 0x17000, 0x1F600, 0x20000, 0xE0041)  # fmt: skip


def planned(spider: Any, client: Any) -> list[Shard]:
    """The shards of *spider*, its fetches answered by *client*."""

    async def fetch(request: Any) -> Any:
        return client.get(request.url[request.url.index("/", 8) :])

    async def collect() -> list[Shard]:
        spider.fetch = fetch
        return [shard async for shard in spider.plan()]

    return asyncio.run(collect())


def test_blocks_plans_a_shard_for_every_few_pages(client: Any) -> None:
    shards = planned(BlocksSpider(blocks="Mathematical Operators, Arrows"), client)
    assert [(s.spec, s.first_page, s.last_page) for s in shards] == [
        ("mathematical-operators", 1, 4),
        ("mathematical-operators", 5, 6),
        ("arrows", 1, 3),
    ]
    everything = planned(BlocksSpider(blocks="all"), client)
    assert {shard.spec for shard in everything} == catalogue.blocks().keys()
    with pytest.raises(ValueError, match="no block 'Nonsense'"):
        planned(BlocksSpider(blocks="Arrows,Nonsense"), client)


def test_the_demo_is_a_few_thousand_characters_of_many_kinds() -> None:
    codes = catalogue.codes(DEMO)
    kinds = {catalogue.record(code)["bidirectional"] for code in codes}
    assert 2000 < len(codes) < 4000 and {"L", "R", "AL", "NSM", "ON"} <= kinds


def test_blocks_reads_lists_and_details(client: Any) -> None:
    spider = BlocksSpider()
    page = Page(2, Shard("arrows", spec="arrows"))
    url = spider.page_request(page).url.removeprefix(spider.base)
    response = client.get(url)
    details: list[Any] = list(spider.parse_page(response, page))
    assert len(details) == 50 and details[0].callback == spider.parse_character
    assert details[0].url.endswith("/character/21C2")
    rows = list(BlocksSpider(details="0").parse_page(response, page))
    assert rows == [Character(**catalogue.summary(0x21C2 + n)) for n in range(50)]


@pytest.mark.parametrize("code", HARD, ids=lambda code: f"U+{code:04X}")
def test_hard_characters_survive_lists_and_details(client: Any, code: int) -> None:
    row = next(ChainSpider().parse(client.get(f"/chain?from={code:X}&rows=1")))
    assert row == Character(**catalogue.summary(code)) and row.char == chr(code)
    detail = BlocksSpider().parse_character(client.get(f"/character/{code:X}"))
    assert detail == Character(**catalogue.record(code))


def test_chain_names_the_next_page(site: Any, client: Any) -> None:
    spider = ChainSpider(start=f"{site.url}/chain?block=Arrows&rows=100")
    rows: list[Any] = list(spider.parse(client.get("/chain?block=Arrows&rows=100")))
    following = rows.pop()
    assert len(rows) == 100
    last: list[Any] = list(spider.parse(client.get(following.url.removeprefix(site.url))))
    assert [row.code for row in rows + last] == [f"U+{c:04X}" for c in range(0x2190, 0x2200)]


def test_api_walks_by_tokens(client: Any) -> None:
    spider = ApiSpider(blocks="Emoticons,Arrows", limit="50")
    shards = list(spider.plan())
    assert [shard.key for shard in shards] == ["Emoticons", "Arrows"]
    token, found = None, []
    for number in (1, 2):
        page = Page(number, shards[0], token)
        response = client.get(spider.page_request(page).url.removeprefix(spider.base))
        spider.check_page(response, page)
        assert spider.stated_total(response) == 80
        *rows, last = spider.parse_page(response, page)
        token = getattr(last, "cursor", None)
        found += rows if token else [*rows, last]
    assert found == [Character(**catalogue.record(0x1F600 + n)) for n in range(80)]
    assert [shard.key for shard in ApiSpider().plan()] == ["all"]


def test_api_does_not_take_an_error_for_a_page(site: Any, client: Any) -> None:
    site.behave(page=1, body='{"error": "rate limited"}', content_type="application/json")
    with pytest.raises(NotAPage):
        ApiSpider().check_page(client.get("/api/characters"), Page(1, Shard("all")))


def scrapy(*arguments: str, home: Path) -> subprocess.Popen[str]:
    """Start scrapy inside the example project."""
    command = [sys.executable, "-m", "scrapy", *arguments]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RESUME_")}
    environment = {**kept, "PYTHONPATH": str(PROJECT.parent), "RESUME_HOME": str(home)}
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command, cwd=PROJECT, env=environment, stdout=pipe, stderr=pipe, text=True
    )


def stored(home: Path, crawl: subprocess.Popen[str]) -> list[dict[str, Any]]:
    """The items in the order of their keys, when the crawl is over."""
    _, log = crawl.communicate(timeout=180)
    assert crawl.returncode == 0 and "'finish_reason': 'finished'" in log, log
    with closing(sqlite3.connect(home / "resume.db")) as db:
        rows = db.execute("SELECT payload FROM resume_item ORDER BY item_key").fetchall()
    return [json.loads(row[0]) for row in rows]


def test_it_is_a_scrapy_project(tmp_path: Path) -> None:
    names, _ = scrapy("list", home=tmp_path).communicate(timeout=180)
    assert names.split() == ["api", "blocks", "books", "chain"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "names",
    [("blocks", "api"), pytest.param(("chain", "books"), marks=pytest.mark.stress)],
    ids="+".join,
)
def test_spiders_crawl_the_site(site: Any, tmp_path: Path, names: tuple[str, str]) -> None:
    some = ["-a", f"base={site.url}", "-a", "blocks=Emoticons"]
    arguments = {
        "blocks": some,
        "api": [*some, "-a", "limit=7"],
        "chain": ["-a", f"start={site.url}/chain?block=Emoticons&rows=9"],
        "books": ["-a", f"start={site.url}/books/"],
    }
    crawls = {name: scrapy("crawl", name, *arguments[name], home=tmp_path / name) for name in names}
    items: dict[str, Any] = {name: stored(tmp_path / name, crawl) for name, crawl in crawls.items()}
    records = [asdict(Character(**catalogue.record(0x1F600 + n))) for n in range(80)]
    rows = [asdict(Character(**catalogue.summary(0x1F600 + n))) for n in range(80)]
    books = {book.upc: book.title for book in site.bookshop.books}
    expected = {"blocks": records, "api": records, "chain": rows, "books": books}
    if "books" in items:
        items["books"] = {item["upc"]: item["title"] for item in items["books"]}
    assert items == {name: expected[name] for name in names}


@pytest.mark.slow
def test_the_demo_kills_a_crawl_twice_and_finds_everything(capfd: Any) -> None:
    assert demo.main("Arrows,Emoticons") == 0
    said = capfd.readouterr().out
    assert said.count("kill -9 after") == 2
    assert "0 characters are missing, 0 too many, 0 differ" in said
    assert "Verdict of the run: complete" in said
