"""The reference page says neither more nor less than the parser and the exit codes."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from scrapy_resume.commands import parser
from scrapy_resume.commands.run import EXIT_CODES

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "commands.md").read_text()
SECTIONS = dict(re.findall(r"^## `scrapy resume ([^`]+)`\n(.*?)(?=^## |\Z)", PAGE, re.S | re.M))


def verbs(
    one: argparse.ArgumentParser, name: str = ""
) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Every verb that ends a line, with its parser: ``db check``."""
    below = [a for a in one._actions if isinstance(a, argparse._SubParsersAction)]
    if not below:
        yield name.strip(), one
    for action in below:
        for word, child in action.choices.items():
            yield from verbs(child, f"{name} {word}")


VERBS = dict(verbs(parser.build()))


def described(name: str) -> str:
    """The section of a verb; its heading is the usage line without options."""
    (section,) = [text for heading, text in SECTIONS.items() if heading.startswith(name)]
    return section


def test_every_verb_has_one_section_and_every_section_a_verb() -> None:
    assert len(SECTIONS) == len(VERBS)
    for name in VERBS:
        assert described(name)


@pytest.mark.parametrize("name", VERBS)
def test_the_options_are_those_of_the_parser(name: str) -> None:
    (heading,) = [heading for heading in SECTIONS if heading.startswith(name)]
    actions = [a for a in VERBS[name]._actions if a.dest != "help"]
    options = {option for action in actions for option in action.option_strings}
    assert set(re.findall(r"(?<![\w`-])`?(--?[a-zA-Z][\w-]*)", described(name))) - {"-s"} == options
    wanted = [
        f"[{action.metavar}]" if action.nargs == "?" else str(action.metavar)
        for action in actions
        if not action.option_strings
    ]
    assert heading == " ".join([name, *wanted])


def test_the_exit_codes_of_run() -> None:
    table = re.findall(r"^\| (\d+) \| `?(\w+)`? \|", described("run"), re.M)
    assert {word: int(code) for code, word in table if word in EXIT_CODES} == EXIT_CODES
    assert {int(code) for code, _ in table} == {*EXIT_CODES.values(), 1, 2}
