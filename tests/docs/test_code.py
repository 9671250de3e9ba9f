"""What the pages show as Python is Python, and may be copied as it stands."""

from __future__ import annotations

import ast

import pytest

from tests.docs.pages import Block, applied, block, blocks, sides


@pytest.mark.parametrize("shown", [*blocks("python")], ids=str)
def test_python_is_python(shown: Block) -> None:
    tree = ast.parse(shown.text)
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    if "ResumeSpiderMixin" in names:
        assert "from scrapy_resume import" in shown.text, "it cannot be copied as it is"


def test_the_front_page_changes_three_lines() -> None:
    shown = block("README.md", "diff").text
    taken, added = sides(shown)
    assert (len(taken), len(added)) == (2, 3)
    ast.parse(applied(shown, old=True))
    assert "resume" not in applied(shown, old=True)
