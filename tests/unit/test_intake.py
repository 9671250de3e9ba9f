"""What a process takes, from the text of its settings."""

from __future__ import annotations

import pytest

from scrapy_resume.intake import Intake


@pytest.mark.parametrize(
    ("lanes", "expected"),
    [
        ("", set()), ("fresh", {0}), (" resumed ", {1}), ("resumed,fresh", set()),
        ("fresh,,fresh", {0}),
    ],
)  # fmt: skip
def test_lanes_by_name(lanes: str, expected: set[int]) -> None:
    assert Intake.parse(lanes).lanes == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ()), ("3", ((3, 3),)), ("0-2,5", ((0, 2), (5, 5))), ("5, 0 - 2", ((0, 2), (5, 5))),
        ("0-4,2-3", ((0, 4),)), ("0-1,2-3", ((0, 3),)), ("-3--1,7", ((-3, -1), (7, 7))),
        ("-5", ((-5, -5),)),
    ],
)  # fmt: skip
def test_ranges_of_priorities(text: str, expected: tuple[tuple[int, int], ...]) -> None:
    assert Intake.parse("", text).priorities == expected


@pytest.mark.parametrize(
    ("lanes", "priorities", "message"),
    [
        ("late", "", "'late' is no lane; there are: fresh, resumed"),
        ("", "2-1", "'2-1' is no range"),
        ("", "0-2,x", "'x' is no range of priorities such as 3 or 0-2"),
        ("", "1.5", "'1.5' is no range"),
        ("", "99999999999", "is no range"),
    ],
)
def test_what_cannot_be_read_is_refused(lanes: str, priorities: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Intake.parse(lanes, priorities)


def test_everything_is_taken_unless_something_is_said() -> None:
    assert Intake().everything and Intake.parse("fresh,resumed").everything
    assert Intake().takes(1, -99, "anywhere")
    assert not Intake(sites=frozenset("a")).everything


@pytest.mark.parametrize(
    ("lane", "priority", "site", "taken"),
    [
        (0, 0, "a", True), (0, 5, "b", True), (1, 0, "a", False), (0, 3, "a", False),
        (0, 0, "c", False),
    ],
)  # fmt: skip
def test_every_part_must_agree(lane: int, priority: int, site: str, taken: bool) -> None:
    intake = Intake.parse("fresh", "0-2,5", ["a", "b"])
    assert intake.takes(lane, priority, site) is taken
