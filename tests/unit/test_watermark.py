"""Ranges of pages and positions, held against plain sets."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_resume.watermark import PageRanges, Position

PAGES = st.integers(0, 40)
SETS = st.sets(PAGES)


def ranges(pages: set[int]) -> PageRanges:
    return PageRanges.of((page, page) for page in pages)


def top(first: int, committed: set[int]) -> int:
    """The watermark by definition: the last page before the first hole."""
    page = first
    while page in committed:
        page += 1
    return page - 1


@given(SETS)
def test_ranges_are_the_set_they_were_made_of(pages: set[int]) -> None:
    made = ranges(pages)
    assert list(made) == sorted(pages)
    assert (len(made), bool(made), made.highest) == (
        len(pages),
        bool(pages),
        max(pages, default=None),
    )
    assert all((page in made) == (page in pages) for page in range(45))
    assert PageRanges.parse(str(made)) == made


@given(SETS)
def test_ranges_are_disjoint_and_not_adjacent(pages: set[int]) -> None:
    pairs = ranges(pages).ranges
    assert all(low <= high for low, high in pairs)
    assert all(high + 1 < low for (_, high), (low, _) in pairwise(pairs))


@given(SETS, PAGES)
def test_add_and_remove_are_those_of_a_set(pages: set[int], page: int) -> None:
    assert ranges(pages).add(page) == ranges(pages | {page})
    assert ranges(pages).remove(page) == ranges(pages - {page})


@given(st.lists(st.tuples(PAGES, PAGES).map(sorted).map(tuple)))
def test_ranges_may_overlap_when_they_are_merged(pairs: list[tuple[int, int]]) -> None:
    expected = {page for low, high in pairs for page in range(low, high + 1)}
    assert set(PageRanges.of(pairs)) == expected


def test_ranges_as_text() -> None:
    assert str(PageRanges.parse(" 14, 6-9,10-12 ")) == "6-12,14"
    assert PageRanges.parse("") == PageRanges.parse(None) == PageRanges()
    for text in ("x", "1-", "-2", "1-2-3", "3-1", "1;2"):
        with pytest.raises(ValueError):
            PageRanges.parse(text)


@given(first=st.integers(0, 5), steps=st.lists(PAGES, max_size=60))
def test_the_watermark_never_jumps_over_a_hole_and_never_goes_back(
    first: int, steps: list[int]
) -> None:
    position, committed = Position(version=0, cur_page=first - 1), set[int]()
    for page in (page for page in steps if page >= first):
        before = position
        position = position.with_page(page, written=1)
        committed.add(page)
        assert position.cur_page == top(first, committed) >= before.cur_page
        assert set(position.ahead) == {p for p in committed if p > position.cur_page}
        assert position.highest == max(committed)
        assert position.page_count == position.written_count == len(committed)
        assert all(position.has(p) for p in committed)
    missing = [page for page in range(first, 31) if page not in committed]
    assert list(position.missing(30)) == missing


def test_before_any_page_nothing_is_committed() -> None:
    for first in (0, 1, 5):
        position = Position(version=0, cur_page=first - 1)
        assert position.highest == first - 1
        assert not position.has(first)
        assert list(position.missing(first)) == [first]


@given(st.permutations(range(1, 12)))
def test_any_order_of_the_pages_ends_the_same(order: list[int]) -> None:
    position = Position(version=0, cur_page=0)
    for page in order:
        position = position.with_page(page)
    assert (position.cur_page, str(position.ahead)) == (11, "")


def test_a_page_is_counted_once() -> None:
    once = Position(version=3, cur_page=0).with_page(1, written=2, dropped=3, quarantined=4)
    assert once.with_page(1, written=2, cursor="again", digests="again") is once
    counts = (once.written_count, once.dropped_count, once.quarantined_count)
    assert counts == (2, 3, 4)


def test_cursor_and_digests_stay_unless_given() -> None:
    position = Position(version=0, cur_page=0, cursor="a", digests="b")
    kept, given = position.with_page(1), position.with_page(1, cursor="c", digests="d")
    assert (kept.cursor, kept.digests) == ("a", "b")
    assert (given.cursor, given.digests) == ("c", "d")


@given(held=SETS, committed=SETS)
def test_a_held_page_is_on_record_until_it_is_committed(
    held: set[int], committed: set[int]
) -> None:
    position = Position(version=0, cur_page=-1)
    for page in held:
        position = position.with_failed(page)
    for page in committed:
        position = position.with_page(page)
    assert set(position.failed) == held - committed
    assert all(position.with_failed(page) is position for page in committed)


@given(st.sets(st.integers(1, 30), min_size=1), st.integers(1, 30))
def test_an_end_takes_the_pages_past_it_back_and_no_other(pages: set[int], end: int) -> None:
    position = Position(0, 0)
    for page in pages:
        position = position.with_page(page)
    ended = position.ending_at(end)
    kept = {page for page in pages if page <= end}
    assert {page for page in range(1, 31) if ended.has(page)} == kept
    assert ended.page_count == len(kept)
    assert ended.highest <= end
