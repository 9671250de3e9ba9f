"""Whether a list page was answered from where it was asked for. Pure.

A login, a captcha and a "too many requests" page are often reached by a redirect. So are
lists that merely moved, to ``/en/list`` say. What tells them apart is what came of it: a
move that brought items is learned and trusted from then on.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

_DIGITS = re.compile(r"\d+")
_GATE = re.compile(
    r"(?i)(?:^|[/_.-])(?:log-?in|sign-?in|sso|auth|captcha|challenge|verify|consent|blocked|denied"
    r"|forbidden|robot-?check|sorry)(?:$|[/_.-])"
)

Place = tuple[str, str]


def place(url: str) -> Place:
    """Host and path without what may differ between pages of one list."""
    try:
        parts = urlsplit(url)
        host = (parts.hostname or "").lower().removeprefix("www.")
    except ValueError:
        return url, ""
    return host, _DIGITS.sub("#", parts.path.rstrip("/").lower())


def is_gate(url: str) -> bool:
    """Does the path look like a login, a captcha or a refusal?"""
    return _GATE.search(place(url)[1]) is not None


class Moves:
    """Where the list pages of one site were asked for, and where they were found."""

    def __init__(self) -> None:
        self._found: set[tuple[Place, Place]] = set()

    def moved(self, asked: str, got: str) -> bool:
        """Is *got* another path or host than *asked*, and not known to hold items?"""
        way = place(asked), place(got)
        return way[0] != way[1] and way not in self._found

    def refused(self, asked: str, got: str) -> bool:
        """Must the answer not even be read? A gate, or a list that is known not to move."""
        home = place(asked)
        return self.moved(asked, got) and (is_gate(got) or (home, home) in self._found)

    def learn(self, asked: str, got: str) -> None:
        """The page asked for at *asked* was found at *got*, and held items."""
        if len(self._found) < 1000:
            self._found.add((place(asked), place(got)))
