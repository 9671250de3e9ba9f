"""Where a list page was answered from."""

from __future__ import annotations

import pytest

from scrapy_resume.moves import Moves, is_gate

LIST = "https://shop.example/list?page=6"


@pytest.mark.parametrize(
    "got",
    [
        LIST,
        "http://shop.example/list?page=6",
        "https://www.shop.example/list?page=6",
        "https://shop.example/list/?page=6&sid=1",
        "https://SHOP.example/List",
    ],
)
def test_the_same_list_is_no_move(got: str) -> None:
    assert not Moves().moved(LIST, got)


@pytest.mark.parametrize(
    "got",
    ["https://shop.example/login?next=/list", "https://shop.example/", "https://other.example/list",
     "https://shop.example/en/list?page=6"],
)  # fmt: skip
def test_another_path_or_host_is_a_move(got: str) -> None:
    assert Moves().moved(LIST, got)


def test_a_move_that_brought_items_is_trusted() -> None:
    moves = Moves()
    moves.learn("https://shop.example/list/1", "https://shop.example/en/list/1")
    assert not moves.moved("https://shop.example/list/27", "https://shop.example/en/list/27")
    assert moves.moved("https://shop.example/list/27", "https://shop.example/fr/list/27")


@pytest.mark.parametrize(
    ("path", "gate"),
    [
        ("/login", True), ("/user/sign-in", True), ("/captcha/v2", True), ("/challenge.html", True),
        ("/list", False), ("/authors", False), ("/logins-of-famous-people", False), ("/", False),
    ],
)  # fmt: skip
def test_a_gate_is_told_by_its_path(path: str, gate: bool) -> None:
    assert is_gate("https://shop.example" + path) is gate


def test_a_gate_and_a_list_that_never_moved_are_not_even_read() -> None:
    moves = Moves()
    assert moves.refused(LIST, "https://shop.example/login")
    assert not moves.refused(LIST, "https://shop.example/en/list")
    moves.learn(LIST, LIST)
    assert moves.refused(LIST, "https://shop.example/en/list")
    assert not moves.refused(LIST, LIST)


def test_an_address_that_is_none_is_compared_as_it_is() -> None:
    assert not Moves().moved("http://[", "http://[")
    assert Moves().moved("http://[", LIST)
