"""How a page is judged from what it went through."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_resume.page import Decision, ErrorKind, Shard, Trouble, Where, judge

END = frozenset({404})
GRAVITY = [ErrorKind.BLOCKED, ErrorKind.CODE, ErrorKind.PERMANENT, ErrorKind.RETRYABLE]
TROUBLES = st.lists(
    st.builds(
        Trouble,
        where=st.sampled_from(Where),
        kind=st.sampled_from(ErrorKind),
        error_class=st.just("E"),
        error=st.just("e"),
        status=st.sampled_from([None, 404, 500]),
    ),
    max_size=5,
)


def trouble(
    where: Where, kind: ErrorKind = ErrorKind.RETRYABLE, status: int | None = None
) -> Trouble:
    return Trouble(where, kind, "E", "e", status=status)


def judged(*troubles: Trouble, hold: bool = False, ends: frozenset[int] = END) -> Decision:
    return judge(troubles, hold_records=hold, end_statuses=ends)[0]


def test_a_page_without_trouble_is_complete() -> None:
    assert judge([], hold_records=True, end_statuses=END) == (Decision.COMPLETE, None)


@pytest.mark.parametrize("where", [Where.REQUEST, Where.ITEM])
def test_a_failed_record_holds_its_page_only_if_told_to(where: Where) -> None:
    assert judged(trouble(where)) is Decision.COMPLETE
    assert judged(trouble(where), hold=True) is Decision.FAILED


def test_the_list_page_itself_failing_fails_the_page() -> None:
    assert judged(trouble(Where.PAGE)) is Decision.FAILED
    assert judged(trouble(Where.ITEM), trouble(Where.PAGE)) is Decision.FAILED


def test_an_end_status_of_the_list_page_alone_means_past_the_end() -> None:
    past = trouble(Where.PAGE, ErrorKind.PERMANENT, 404)
    assert judged(past) is Decision.MISSING
    assert judged(past, ends=frozenset()) is Decision.FAILED
    assert judged(trouble(Where.PAGE, status=500)) is Decision.FAILED
    assert judged(past, trouble(Where.PAGE, ErrorKind.CODE)) is Decision.FAILED
    assert judged(trouble(Where.REQUEST, status=404), hold=True) is Decision.FAILED


@pytest.mark.parametrize("order", list(permutations(GRAVITY)))
def test_the_gravest_trouble_decides_whatever_the_order(order: tuple[ErrorKind, ...]) -> None:
    troubles = [trouble(Where.PAGE, kind) for kind in order]
    for gravest in GRAVITY:
        decided = judge(troubles, hold_records=False, end_statuses=END)[1]
        assert decided is not None
        assert decided.kind is gravest
        troubles = [one for one in troubles if one.kind is not gravest]


@given(TROUBLES, st.booleans())
def test_a_page_is_complete_only_without_trouble_of_its_own(
    troubles: list[Trouble], hold: bool
) -> None:
    decision, decisive = judge(iter(troubles), hold_records=hold, end_statuses=END)
    fatal = [one for one in troubles if one.where is Where.PAGE or hold]
    assert (decision is Decision.COMPLETE) == (not fatal)
    assert decisive is None if not fatal else decisive in fatal
    if any(one.where is Where.PAGE for one in troubles):
        assert decisive is not None
        assert decisive.where is Where.PAGE


def test_a_shard_needs_only_its_key() -> None:
    shard = Shard("a")
    assert (shard.first_page, shard.last_page, shard.cursor, shard.priority) == (1, None, None, 0)
    assert (shard.site, shard.spec, shard.ordered) == (None, None, None)
