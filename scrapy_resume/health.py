"""When a site counts as ill: sliding windows over its answers and its list pages.

Two things are watched. *Answers*: each response, timeout and lost connection of any
request; the site is blocked when too large a share of the latest ones is bad, or when the
latest ones are all bad, unless all the bad ones were about the same one or two addresses.
*Pages*: each list page that was read; the site is suspect as soon as one holds no items, and
blocked when several in a row were something else than the list. What the spider itself says
(``SiteBlocked``) blocks at once.

A blocked window stays blocked: whoever may try the site again begins a new one. Pure: the
time is handed in, as seconds of any clock that does not go backwards.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from enum import Enum

STATUSES = frozenset({401, 403, 407, 429, 503, 999})


class Signal(str, Enum):
    """What is seen of a site.

    OK, STATUS, TIMEOUT and CONNECTION are answers to requests. ITEMS, EMPTY, ODD and
    REDIRECT are list pages: with items; without, but one that looks like the list; without,
    and unlike the list; answered from another address. BLOCKED is the last word of the
    spider, or of a page known to have items that has none any more.
    """

    OK = "ok"
    STATUS = "status"
    TIMEOUT = "timeout"
    CONNECTION = "connection"
    REDIRECT = "redirect"
    BLOCKED = "blocked"
    EMPTY = "empty"
    ODD = "odd"
    ITEMS = "items"


class SiteState(str, Enum):
    """How a site is; PAUSED is only ever an operator's word and no window's."""

    HEALTHY = "healthy"
    SUSPECT = "suspect"
    BLOCKED = "blocked"
    PAUSED = "paused"


@dataclass(frozen=True, slots=True)
class HealthLimits:
    """From where on a site is ill.

    *window* is how long an answer counts, in seconds. *least* is the number of answers
    before a share of bad ones says anything, and the number that in a row say everything;
    four times as many are remembered. *share* of bad answers, from 0 to 1. *empty_pages* is
    how many list pages in a row may hold nothing (0: any number, pages are not watched).
    """

    window: float = 60.0
    least: int = 10
    share: float = 0.5
    empty_pages: int = 5
    statuses: frozenset[int] = STATUSES


@dataclass(frozen=True, slots=True)
class Judgement:
    """How a site is, and the clause that says why."""

    state: SiteState
    reason: str


WELL = Judgement(SiteState.HEALTHY, "no sign of trouble")

_ANSWERS = frozenset({Signal.OK, Signal.STATUS, Signal.TIMEOUT, Signal.CONNECTION})
_WRONG = frozenset({Signal.ODD, Signal.REDIRECT})
_REMEMBERED = 4  # times `least` answers
_FEW = 3  # bad answers that are a suspicion; and of so many addresses that they can block


@dataclass(slots=True)
class SiteWindow:
    """What was seen of one site lately, and what follows from it."""

    limits: HealthLimits = field(default_factory=HealthLimits)
    judgement: Judgement = WELL
    without_items: int = 0
    wrong: int = 0
    _answers: deque[tuple[float, str]] = field(default_factory=deque)
    _bad: Counter[str] = field(default_factory=Counter)
    _count: int = 0
    _bad_in_row: int = 0
    _last_bad: str = ""
    _last_page: str = ""

    @property
    def refusals(self) -> int:
        """How many of the latest answers were bad, with no good one after the first of them."""
        return self._bad_in_row

    @property
    def refuses(self) -> bool:
        """Whether too many of the latest answers were bad, however few there are."""
        limits, bad = self.limits, self._bad.total()
        several = len(self._bad) >= min(_FEW, limits.least)
        return several and bad >= limits.share * len(self._answers)

    def note(self, signal: Signal, at: float, detail: str = "", about: str = "") -> Judgement:
        """Take in one *signal* of time *at*.

        *detail* is a few words for people, *about* what was asked for ("": something else
        each time).
        """
        if self.judgement.state is SiteState.BLOCKED:
            return self.judgement
        if signal in _ANSWERS:
            self._count += 1
            about = about or f"the {self._count}th"
            self._answer("" if signal is Signal.OK else about, at, detail or signal.value)
        else:
            self._page(signal, detail)
        self.judgement = self._judge(signal, at, detail)
        return self.judgement

    def _answer(self, bad: str, at: float, words: str) -> None:
        self._answers.append((at, bad))
        self._bad_in_row = self._bad_in_row + 1 if bad else 0
        if bad:
            self._bad[bad] += 1
            self._last_bad = words
        self._forget(at)

    def _forget(self, now: float) -> None:
        limits, answers = self.limits, self._answers
        while answers and (
            len(answers) > _REMEMBERED * limits.least or answers[0][0] <= now - limits.window
        ):
            bad = answers.popleft()[1]
            if bad:
                self._bad[bad] -= 1
                self._bad += Counter()  # without those that are none any more
        self._bad_in_row = min(self._bad_in_row, len(answers))

    def _page(self, signal: Signal, detail: str) -> None:
        if signal is Signal.ITEMS:
            self.without_items = self.wrong = 0
        elif signal is not Signal.BLOCKED:
            self.without_items += 1
            self.wrong += signal in _WRONG
            self._last_page = detail or signal.value

    def _judge(self, signal: Signal, at: float, detail: str) -> Judgement:
        if signal is Signal.BLOCKED:
            return Judgement(SiteState.BLOCKED, detail or "the spider says so")
        self._forget(at)
        found = [one for one in (self._judge_answers(), self._judge_pages()) if one is not None]
        blocked = [one for one in found if one.state is SiteState.BLOCKED]
        return next(iter(blocked or found), WELL)

    def _judge_answers(self) -> Judgement | None:
        limits, count, bad = self.limits, len(self._answers), self._bad.total()
        several = len(self._bad) >= min(_FEW, limits.least)  # else it may be one page's fault
        if self._bad_in_row >= limits.least and several:
            words = f"the last {self._bad_in_row} answers were bad, the latest: {self._last_bad}"
            return Judgement(SiteState.BLOCKED, words)
        if not bad or bad < limits.share * count:
            return None
        words = f"{bad} of the last {count} answers were bad, the latest: {self._last_bad}"
        if count >= limits.least and several:
            return Judgement(SiteState.BLOCKED, words)
        return Judgement(SiteState.SUSPECT, words) if bad >= _FEW else None

    def _judge_pages(self) -> Judgement | None:
        limit, count = self.limits.empty_pages, self.without_items
        if not limit or not count:
            return None
        if self.wrong >= limit:
            words = f"{self.wrong} pages in a row were not the list, the latest: {self._last_page}"
            return Judgement(SiteState.BLOCKED, words)
        words = f"{count} page{'s' if count > 1 else ''} in a row held no items"
        return Judgement(SiteState.SUSPECT, f"{words}, the latest: {self._last_page}")
