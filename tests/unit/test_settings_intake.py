"""The settings that say what a process takes."""

from __future__ import annotations

from typing import Any

import pytest

from scrapy_resume.exceptions import ConfigurationError
from scrapy_resume.settings import ResumeSettings


def read(**given: Any) -> ResumeSettings:
    return ResumeSettings.from_settings({f"RESUME_{n.upper()}": v for n, v in given.items()}, {})


def test_a_process_takes_everything_by_default() -> None:
    assert read().intake.everything
    assert read().site_shards == 0


@pytest.mark.parametrize("sites", ["a.example, b.example", ["a.example", "b.example"]])
def test_what_is_taken_may_be_declared(sites: Any) -> None:
    intake = read(lanes="fresh", priorities="0-2,5", sites=sites).intake
    assert intake.takes(0, 5, "a.example") and intake.takes(0, 1, "b.example")
    assert not intake.takes(1, 5, "a.example")
    assert not intake.takes(0, 3, "a.example")
    assert not intake.takes(0, 5, "c.example")


@pytest.mark.parametrize("empty", ["", ()])
def test_an_empty_declaration_takes_everything(empty: Any) -> None:
    assert read(lanes="", priorities="", sites=empty).intake.everything


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("lanes", "stale"), ("lanes", "fresh;resumed"), ("lanes", 0), ("priorities", "high"),
        ("priorities", "5-2"), ("priorities", "1--"), ("sites", 5), ("sites", [5]),
        ("site_shards", -1), ("loop_patience", 0), ("loop_patience", "nan"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_with_what_is_allowed(name: str, value: Any) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        read(**{name: value})
    said = str(refusal.value)
    assert said.startswith(f"RESUME_{name.upper()} is {value!r}; allowed ")
    assert "\n" not in said
