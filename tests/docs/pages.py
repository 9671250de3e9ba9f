"""The pages of the documentation, and what stands in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


class Block(NamedTuple):
    """A fenced block; *page* is the path of its page, *line* the first line of its text."""

    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(*languages: str) -> Iterator[Block]:
    """Every fenced block in one of *languages*, on all pages."""
    for page in PAGES:
        text = page.read_text()
        for match in _FENCE.finditer(text):
            if match[1] in languages:
                line = text.count("\n", 0, match.start()) + 2
                yield Block(name_of(page), line, match[1], match[2])


def block(page: str, language: str, containing: str = "") -> Block:
    """The one block of *page* in *language* that contains a text."""
    (found,) = [b for b in blocks(language) if b.page == page and containing in b.text]
    return found


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def prose(page: Path) -> str:
    """The text of *page* without its fenced blocks."""
    return _FENCE.sub("", page.read_text())


def section(page: str, heading: str) -> str:
    """What stands below the heading that begins so, to the next one of its level."""
    text = (ROOT / page).read_text()
    found = re.search(rf"^(#+) {re.escape(heading)}\b.*?\n(.*)", text, re.DOTALL | re.MULTILINE)
    assert found, f"{page} has no heading {heading!r}"
    return re.split(rf"^#{{1,{len(found[1])}}} ", found[2], flags=re.MULTILINE)[0]


def rows(text: str) -> list[list[str]]:
    """The cells of every table row in *text*, headings left out."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    headings = {at - 1 for at, row in enumerate(cells) if set("".join(row)) <= set("-: ")}
    return [row for at, row in enumerate(cells) if at not in headings and at - 1 not in headings]


def sides(diff: str) -> tuple[list[str], list[str]]:
    """The lines that a diff block takes away, and those that it adds."""
    lines = diff.splitlines()
    taken, added = ([line[1:] for line in lines if line[:1] == sign] for sign in "-+")
    return taken, added


def applied(diff: str, *, old: bool = False) -> str:
    """The text after the change that a diff block shows, or before it."""
    gone = "+" if old else "-"
    return "\n".join(line[1:] for line in diff.splitlines() if line[:1] != gone) + "\n"
