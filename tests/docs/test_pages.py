"""Links lead somewhere, commands and settings exist, and words are the house's own."""

from __future__ import annotations

import argparse
import re
import shlex
from pathlib import Path

import pytest

from scrapy_resume.commands import parser
from scrapy_resume.settings import _FIELDS
from tests.docs.pages import DOCS, PAGES, ROOT, Block, blocks, name_of, prose, rows

_LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")
_NOT_OUR_WORDS = re.compile(
    r"\b(bookmarks?|high.water|savepoints?|dead.letters?|dlq|sweepers?|janitors?|rescuers?|snooze"
    r"|keepalives?|look.?backs?|chaos)\b",
    re.IGNORECASE,
)

every_page = pytest.mark.parametrize("page", PAGES, ids=name_of)


@every_page
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in _LINK.findall(prose(page)):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{name_of(page)} links to {target}"
        if anchor:
            assert anchor in _anchors(file), f"{name_of(page)} links to {target}"


def _anchors(file: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", file.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_page_is_in_the_index() -> None:
    targets = [target.partition("#")[0] for target in _LINK.findall(prose(DOCS / "index.md"))]
    linked = {(DOCS / target).resolve() for target in targets}
    assert [name_of(page) for page in PAGES if page not in linked] == ["docs/index.md"]


@every_page
def test_every_setting_exists(page: Path) -> None:
    named = set(re.findall(r"\bRESUME_[A-Z_]*[A-Z]\b", page.read_text()))
    assert named <= set(_FIELDS)


def _commands() -> list[tuple[Block, list[str]]]:
    found = []
    for block in blocks("sh"):
        for line in block.text.splitlines():
            words = shlex.split(line.partition("&")[0], comments=True) if "scrapy " in line else []
            if words[:2] == ["scrapy", "resume"]:
                found.append((block, words[2:]))
    return found


@pytest.mark.parametrize(("block", "words"), _commands(), ids=str)
def test_every_command_is_understood(block: Block, words: list[str]) -> None:
    parser.read(words, argparse.Namespace())


def test_every_target_of_make_exists() -> None:
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"`?make (\w+)", (ROOT / "README.md").read_text())) <= targets


def test_the_glossary_is_sorted_and_says_everything_once() -> None:
    words = [row[0].lower() for row in rows((DOCS / "glossary.md").read_text())]
    assert words == sorted(words) and len(words) == len(set(words))


@every_page
def test_words_are_the_house_s_own(page: Path) -> None:
    assert _NOT_OUR_WORDS.findall(page.read_text()) == []
