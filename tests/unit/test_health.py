"""When a site counts as ill: every rule by itself, and all of them in any order."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_resume.health import HealthLimits, Judgement, Signal, SiteState, SiteWindow

LIMITS = HealthLimits(window=60, least=4, share=0.5, empty_pages=3)

LETTERS = {
    ".": Signal.OK, "s": Signal.STATUS, "t": Signal.TIMEOUT, "c": Signal.CONNECTION,
    "r": Signal.REDIRECT, "b": Signal.BLOCKED, "e": Signal.EMPTY, "o": Signal.ODD,
    "I": Signal.ITEMS,
}  # fmt: skip


def states(signals: str, limits: HealthLimits = LIMITS, every: float = 0.1) -> list[Judgement]:
    """How the site is after each of *signals*, which come *every* so many seconds."""
    window = SiteWindow(limits)
    return [
        window.note(LETTERS[letter], number * every, f"the {number}th")
        for number, letter in enumerate(signals)
    ]


def short(judgements: list[Judgement]) -> str:
    return "".join(judgement.state.value[0] for judgement in judgements)


@pytest.mark.parametrize(
    ("signals", "expected"),
    [
        # Answers: all bad in a row
        ("ssss", "hhsb"),
        ("tctc", "hhsb"),
        (".ssss", "hhhbb"),
        # a share of them, once there are enough
        ("..ss", "hhhh"),
        ("..sss", "hhhhb"),
        ("....s.s.s", "hhhhhhhhh"),
        ("......ss.ss", "hhhhhhhhhhh"),
        ("...s.s.ss", "hhhhhhhhh"),
        ("..s.ss", "hhhhhb"),
        (".s.", "hhh"),
        ("s", "h"),
        # Pages: empty ones are a suspicion, however many; items end it
        ("e", "s"),
        ("eeeeee", "ssssss"),
        ("IeeIe", "hsshs"),
        # what is not the list blocks after three in a row
        ("ooo", "ssb"),
        ("rrr", "ssb"),
        ("oer", "sss"),
        ("oero", "sssb"),
        ("ooIoo", "sshss"),
        ("ooIooo", "sshssb"),
        # The spider's word
        ("b", "b"),
        ("IIb", "hhb"),
        # and what is blocked stays so
        ("bII...", "bbbbbb"),
        ("sssss........", "hhsbbbbbbbbbb"),
        # answers do not end a suspicion about pages, nor pages one about answers
        ("e...", "ssss"),
        ("sssI", "hhss"),
    ],
)
def test_every_rule(signals: str, expected: str) -> None:
    assert short(states(signals)) == expected


def test_an_answer_counts_for_the_window_only() -> None:
    window = SiteWindow(LIMITS)
    for at in (0.0, 1.0, 2.0):
        window.note(Signal.STATUS, at)
    assert window.judgement.state is SiteState.SUSPECT
    assert window.note(Signal.OK, 62.5).state is SiteState.HEALTHY
    for at in (63.0, 64.0):
        assert window.note(Signal.TIMEOUT, at).state is SiteState.HEALTHY


def test_bad_answers_far_apart_are_no_row() -> None:
    every = states("ssssssss", every=20.0)  # three of them in any minute
    assert SiteState.BLOCKED not in {judgement.state for judgement in every}


def test_a_thousand_good_answers_do_not_outvote_a_site_that_refuses_now() -> None:
    judgements = states("." * 1000 + "s" * 4, every=0.001)
    assert judgements[-1].state is SiteState.BLOCKED
    half = states("." * 1000 + "s." * 8, every=0.001)
    assert half[-1].state is SiteState.BLOCKED  # of the latest sixteen


@pytest.mark.parametrize(("pages", "blocked"), [(1, False), (2, False), (3, True)])
@pytest.mark.parametrize("signals", ["ssssssss", ".s.s.s.s"])
def test_one_page_that_never_works_is_not_its_site(signals: str, pages: int, blocked: bool) -> None:
    window = SiteWindow(LIMITS)
    for number, letter in enumerate(signals):
        page = f"page {number // 2 % pages}" if "." in signals else f"page {number % pages}"
        window.note(LETTERS[letter], number * 0.1, about=page)
    assert (window.judgement.state is SiteState.BLOCKED) is blocked


def test_what_was_asked_long_ago_does_not_count_as_another_page() -> None:
    window = SiteWindow(LIMITS)
    for number in range(3):
        window.note(Signal.STATUS, number, about=f"page {number}")
    for number in range(40):
        window.note(Signal.STATUS, 70 + number * 0.1, about="page 9")
    assert window.judgement.state is SiteState.SUSPECT
    assert set(window._bad) == {"page 9"}


@pytest.mark.parametrize(
    ("signals", "words"),
    [
        ("ssss", "the last 4 answers were bad, the latest: the 3th"),
        ("..sss", "3 of the last 5 answers were bad, the latest: the 4th"),
        ("e", "1 page in a row held no items, the latest: the 0th"),
        ("ee", "2 pages in a row held no items, the latest: the 1th"),
        ("ooo", "3 pages in a row were not the list, the latest: the 2th"),
        ("b", "the 0th"),
        (".", "no sign of trouble"),
    ],
)
def test_the_reason_says_what_was_seen(signals: str, words: str) -> None:
    assert states(signals)[-1].reason == words


def test_pages_are_not_watched_with_a_limit_of_none() -> None:
    assert short(states("eoroeoroeo", HealthLimits(empty_pages=0))) == "h" * 10


def test_the_first_look_at_blocked_stays_the_reason() -> None:
    judgements = states("ssssb")
    assert judgements[4] == judgements[3]


ANSWERS = [Signal.OK, Signal.STATUS, Signal.TIMEOUT, Signal.CONNECTION]
ONE_OF = st.one_of(st.sampled_from(ANSWERS), st.sampled_from(list(LETTERS.values())))
SIGNALS = st.lists(ONE_OF, max_size=60)
PAUSES = st.lists(st.floats(0, 30, allow_nan=False), min_size=60, max_size=60)
BAD = (Signal.STATUS, Signal.TIMEOUT, Signal.CONNECTION)


@given(SIGNALS, PAUSES, st.integers(2, 6), st.floats(0.1, 1), st.integers(0, 5))
def test_a_site_is_judged_as_all_that_was_seen_says(
    signals: list[Signal], pauses: list[float], least: int, share: float, pages: int
) -> None:
    """The window against its definition, computed anew from the whole history."""
    limits = HealthLimits(60, least, share, pages)
    window = SiteWindow(limits)
    moments = list(accumulate(pauses))
    blocked = False
    for number, signal in enumerate(signals):
        judged = window.note(signal, moments[number], "it")
        seen = list(zip(signals, moments, strict=False))[: number + 1]
        blocked = blocked or _blocks(seen, limits)
        assert (judged.state is SiteState.BLOCKED) is blocked
        assert judged.reason
        assert len(window._answers) <= 4 * least  # bounded, however long a crawl runs


def _blocks(seen: list[tuple[Signal, float]], limits: HealthLimits) -> bool:
    now = seen[-1][1]
    if seen[-1][0] is Signal.BLOCKED:
        return True
    answers = [(s, at) for s, at in seen if s in (*BAD, Signal.OK)][-4 * limits.least :]
    bad = [s in BAD for s, at in answers if at > now - limits.window]
    row = next((n for n, one in enumerate(reversed(bad)) if not one), len(bad))
    several = bad.count(True) >= min(3, limits.least)  # each about something else
    if row >= limits.least and several:
        return True
    if several and len(bad) >= limits.least and bad.count(True) >= max(1, limits.share * len(bad)):
        return True
    wrong = 0
    for signal, _ in seen:
        wrong = 0 if signal is Signal.ITEMS else wrong + (signal in (Signal.ODD, Signal.REDIRECT))
    return 0 < limits.empty_pages <= wrong


@given(SIGNALS)
def test_no_site_is_blocked_without_a_bad_sign(signals: list[Signal]) -> None:
    good = [s for s in signals if s in (Signal.OK, Signal.ITEMS, Signal.EMPTY)]
    window = SiteWindow(LIMITS)
    for number, signal in enumerate(good):
        assert window.note(signal, number).state is not SiteState.BLOCKED


@given(SIGNALS)
def test_no_window_says_paused(signals: list[Signal]) -> None:
    window = SiteWindow(LIMITS)
    assert all(window.note(s, n).state is not SiteState.PAUSED for n, s in enumerate(signals))
