"""What an empty page of a list looks like, and what looks like none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_resume.looks import Looks, alien, elements

FRAME = """<!DOCTYPE html><html><head><title>Shop</title><script>if (a<b) {}</script></head>
<body class="shop"><nav class="menu"><a class="logo" href="/">Shop</a></nav>%s
<footer class="foot">&copy; <a href='/imprint' class=legal>Imprint</a></footer></body></html>"""
ROW = '<li class="row card" data-key="%d"><a class="title" href="/%d">T</a><b class="price">1</b>'
LIST = FRAME % ("<ul class='rows'>" + "".join(ROW % (n, n) for n in range(10)) + "</ul>")
JSON = '{"page": 1, "rows": [{"key": "a", "price": 1}], "next": "/list?page=2"}'

EMPTY = {
    "the frame": FRAME % "",
    "the frame and an empty list": FRAME % "<ul class='rows'></ul>",
    "a sentence": FRAME % "<p class='none'>Nothing was found</p>",
    "rows that are sold out": LIST.replace('class="row card"', 'class="row card sold-out"'),
    "other rows": LIST.replace("T</a>", "U</a>"),
}
ODD = {
    "a challenge": "<html><head><title>Just a moment...</title></head><body><h1>Checking that you"
    " are human</h1><form id='challenge-form'></form></body></html>",
    "a login": "<html><body><form class='login'><input name='user'><button>Log in</button></form>",
    "rows of another kind": LIST.replace("row card", "entry").replace("title", "headline"),
    "an error in words": "400 bad request",
    "an error in JSON": '{"error": {"code": "rate_limited"}}',
    "spaces": " \n ",
    "another design": FRAME.replace("menu", "top").replace("legal", "law").replace("logo", "brand")
    % "<main class='grid'></main>",
}


@pytest.mark.parametrize("page", EMPTY.values(), ids=EMPTY)
def test_a_page_made_of_the_same_is_like_the_list(page: str) -> None:
    looks = Looks()
    looks.learn(LIST)
    assert looks.odd(elements(page)) is False


@pytest.mark.parametrize("page", ODD.values(), ids=ODD)
def test_a_page_made_of_something_else_is_odd(page: str) -> None:
    looks = Looks()
    looks.learn(LIST)
    assert looks.odd(elements(page)) is True


def test_json_is_told_by_its_keys() -> None:
    looks = Looks()
    looks.learn(JSON)
    assert not looks.odd(elements('{"page": 13, "rows": [], "next": null}'))
    assert looks.odd(elements('{"error": {"code": "rate_limited", "retry": 5}}'))
    assert looks.odd(elements("<html><body><h1>Sorry</h1></body></html>"))
    looks.learn('[{"key": "a"}]')
    assert not looks.odd(elements("[]"))


def test_nothing_is_odd_before_a_page_with_items_was_seen() -> None:
    assert Looks().odd(elements(LIST)) is None


def test_only_some_pages_are_learnt_from() -> None:
    looks = Looks()
    wanted = [looks.wants() for _ in range(1000)]
    assert all(wanted[:20]) and 20 < sum(wanted) < 60


@given(st.text())
def test_any_text_is_looked_at(text: str) -> None:
    looks = Looks()
    looks.learn(text)
    looks.odd(elements(text))


@given(st.lists(st.sampled_from(["a", "b.c", "li.row"]), min_size=1), st.sets(st.text()))
def test_the_share_of_strange_elements(made_of: list[str], known: set[str]) -> None:
    page = elements("".join(_tag(kind) for kind in made_of))
    assert 0 <= alien(page, known) <= 1
    assert alien(page, set(page)) == 0
    assert alien(page, set()) == 1


def _tag(kind: str) -> str:
    tag, _, name = kind.partition(".")
    return f'<{tag} class="{name}">' if name else f"<{tag}>"


def test_a_long_page_of_brackets_costs_little() -> None:
    assert elements("<a " * 200_000) == {}
    assert elements('<a class="' * 100_000).total() < 100_001
