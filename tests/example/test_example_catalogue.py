"""The catalogue is Python's unicodedata, whole, exact and once, on every way to it."""

from __future__ import annotations

import sys
import unicodedata
from itertools import pairwise
from typing import Any

import pytest
from example_project.site import catalogue


def assigned() -> list[int]:
    """Told without the block table: assigned, no surrogate, not private."""
    kinds = ((code, unicodedata.category(chr(code))) for code in range(sys.maxunicode + 1))
    return [code for code, kind in kinds if kind not in ("Cn", "Cs", "Co")]


@pytest.fixture(scope="module")
def everything() -> list[int]:
    return assigned()


def test_the_blocks_hold_every_assigned_character_once(everything: list[int]) -> None:
    blocks = list(catalogue.blocks().values())
    assert [code for block in blocks for code in block.codes] == everything
    assert len(everything) > 140_000
    assert all(block.first <= block.codes[0] and block.codes[-1] <= block.last for block in blocks)
    assert all(one.last < other.first for one, other in pairwise(blocks))


def test_every_record_equals_unicodedata(everything: list[int], client: Any) -> None:
    records, token = [], ""
    while token is not None:
        answer = client.json(f"/api/characters?limit=1000&token={token}")
        assert answer["total"] == len(everything)
        records += answer["characters"]
        token = answer["next"]
    assert [record["char"] for record in records] == [chr(code) for code in everything]
    for record in records:
        char = record["char"]
        assert record["code"] == f"U+{ord(char):04X}"
        assert record["category"] == unicodedata.category(char)
        assert record["digit"] == unicodedata.digit(char, None)
        assert record["bidirectional"] == unicodedata.bidirectional(char)
        assert record["combining"] == unicodedata.combining(char)
        assert record["mirrored"] == bool(unicodedata.mirrored(char))
        assert record["decomposition"] == unicodedata.decomposition(char)


def test_names_are_unique_and_unicodedata_s_wherever_it_has_one(everything: list[int]) -> None:
    names = {code: catalogue.name(code) for code in everything}
    assert len(set(names.values())) == len(names)
    unnamed = [code for code in everything if names[code] != unicodedata.name(chr(code), None)]
    assert all(catalogue.block_of(code).name.startswith("Tangut") for code in unnamed if code > 159)
    assert names[0x0A] == "<control-000A>" and names[0x17000] == "TANGUT IDEOGRAPH-17000"


def test_the_chain_covers_everything_once_and_html_carries_it(
    everything: list[int], client: Any
) -> None:
    codes: list[str] = []
    href: str | None = "/chain?rows=1000"
    while href:
        root = client.get(href).selector.root
        part = root.xpath("//tr/@data-code")
        shown = [chr(int(code[2:], 16)) for code in part]
        visible = [char for char in shown if unicodedata.category(char) != "Cc"]
        assert root.xpath("//td[1]/text()") == visible
        assert root.xpath("//td[2]/a/text()") == [catalogue.name(ord(c)) for c in shown]
        codes += part
        href = next(iter(root.xpath("//a[@class='next']/@href")), None)
    assert codes == [f"U+{code:04X}" for code in everything]


def test_the_pages_of_a_block_hold_its_characters(client: Any) -> None:
    blocks = client.json("/api/blocks")
    assert client.get("/").css("a.block::text").getall() == [block["name"] for block in blocks]
    arrows = next(block for block in blocks if block["name"] == "Arrows")
    codes: list[str] = []
    for number in range(1, arrows["pages"] + 1):
        page = client.get(f"/block/arrows?page={number}")
        codes += page.css("tr.character::attr(data-code)").getall()
        assert bool(page.css("a.next")) == (number < arrows["pages"])
    assert codes == [f"U+{code:04X}" for code in range(0x2190, 0x2200)]
    assert client.get(f"/block/arrows?page={arrows['pages'] + 1}").status == 404


def test_a_selection_of_blocks(client: Any) -> None:
    answer = client.json("/api/characters?block=Emoticons,Arrows&limit=1000")
    assert [r["block"] for r in answer["characters"]] == ["Arrows"] * 112 + ["Emoticons"] * 80
    page = client.get("/chain?block=Emoticons&rows=30")
    assert page.css("p.total::text").get() == "80 characters"
    assert page.css("a.next::attr(href)").get() == "/chain?from=1F61E&block=Emoticons&rows=30"
    assert client.get("/chain?block=Nonsense").status == 404


@pytest.mark.parametrize(
    "path",
    [
        "/character/D800",
        "/character/E000",
        "/character/0378",
        "/character/110000",
        "/character/",
        "/character/xyz",
        "/block/nonsense",
        "/nonsense",
    ],
)
def test_what_is_no_character_is_not_there(client: Any, path: str) -> None:
    assert client.get(path).status == 404


def test_a_token_is_checked_and_can_expire(site: Any, client: Any) -> None:
    token = client.json("/api/characters?limit=5")["next"]
    again = [client.json(f"/api/characters?limit=5&token={token}") for _ in range(2)]
    assert again[0] == again[1] and again[0]["characters"][0]["code"] == "U+0005"
    for bad in (f"A{token}", token[:-4], "%00", "none"):
        answer = client.get(f"/api/characters?token={bad}")
        assert (answer.status, answer.json()) == (400, {"code": "INVALID_PAGE_TOKEN"})
    site.expire_tokens()
    answer = client.get(f"/api/characters?token={token}")
    assert (answer.status, answer.json()) == (400, {"code": "EXPIRED_PAGE_TOKEN"})
