"""The characters of Python's own ``unicodedata``, by block.

Every assigned character is a record: all code points except unassigned ones (``Cn``),
surrogates (``Cs``, which no encoding can carry) and private use (``Co``, which have no
name). ``unicodedata`` has no blocks, so their ranges come from ``blocks.txt``; a block
in which this Python knows no character does not exist here.
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any, NamedTuple

NOT_CHARACTERS = frozenset({"Cn", "Cs", "Co"})


class Block(NamedTuple):
    """A named range of the code space and the assigned code points in it."""

    name: str
    slug: str
    first: int
    last: int
    codes: tuple[int, ...]


@cache
def blocks() -> dict[str, Block]:
    """Every block that holds a character, by slug, in code point order."""
    text = files("example_project.site").joinpath("blocks.txt").read_text("utf-8")
    found = (_block(line) for line in text.splitlines() if not line.startswith("#"))
    return {block.slug: block for block in found if block.codes}


def _block(line: str) -> Block:
    extent, name = line.split("; ")
    first, last = (int(end, 16) for end in extent.split(".."))
    codes = tuple(c for c in range(first, last + 1) if is_character(c))
    return Block(name, slug(name), first, last, codes)


def slug(name: str) -> str:
    """A block's name as it stands in URLs."""
    return name.strip().lower().replace(" ", "-")


def is_character(code: int) -> bool:
    """Whether the catalogue has a record for *code*."""
    return unicodedata.category(chr(code)) not in NOT_CHARACTERS


@lru_cache(64)
def codes(slugs: str = "") -> tuple[int, ...]:
    """The code points of the comma separated block *slugs* in order; of all when empty.

    Raises KeyError for a block that does not exist.
    """
    chosen = [blocks()[slug(part)] for part in slugs.split(",")] if slugs else blocks().values()
    return tuple(sorted(code for block in chosen for code in block.codes))


@cache
def _starts() -> list[Block]:
    return list(blocks().values())


def block_of(code: int) -> Block:
    """The block that holds *code*."""
    return _starts()[bisect_right(_starts(), code, key=lambda block: block.first) - 1]


def name(code: int) -> str:
    """The character's name; a control, which has none, gets its code point label."""
    char = chr(code)
    known = unicodedata.name(char, "")
    if known or unicodedata.category(char) == "Cc":
        return known or f"<control-{code:04X}>"
    return f"TANGUT IDEOGRAPH-{code:04X}"  # derived by rule; older Pythons do not know it


def summary(code: int) -> dict[str, Any]:
    """What the lists show of a character."""
    char = chr(code)
    return {
        "code": f"U+{code:04X}",
        "char": char,
        "name": name(code),
        "block": block_of(code).name,
        "category": unicodedata.category(char),
        "digit": unicodedata.digit(char, None),
    }


def record(code: int) -> dict[str, Any]:
    """Everything the catalogue knows of a character."""
    char = chr(code)
    return {
        **summary(code),
        "bidirectional": unicodedata.bidirectional(char),
        "combining": unicodedata.combining(char),
        "mirrored": bool(unicodedata.mirrored(char)),
        "decomposition": unicodedata.decomposition(char),
    }
