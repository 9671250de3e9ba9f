"""What a list page looks like, to tell an empty page from something that is no page.

The elements of a page are counted by tag and class, the keys of a JSON answer by name. A
true empty page is made of what pages with items are made of: the same frame, no rows. A
challenge, an error in a 200 answer and a redesigned list are made of something else. Pure.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Set

_LONGEST = 300_000  # characters of a page that are looked at
_MOST = 3000  # kinds of elements remembered of a site
_FIRST, _EVERY = 20, 50  # pages that are learnt from
ALIEN = 0.3  # share of unknown elements from which on a page is odd

_ELEMENT = re.compile(r"<([a-zA-Z][\w:-]*)((?:[^<>\"']|\"[^\"]*\"|'[^']*')*)>")
_CLASS = re.compile(r"""(?i)(?:^|\s)class\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))""")
_KEY = re.compile(r'"((?:[^"\\]|\\.){1,60})"\s*:')
_SAYS_NOTHING = frozenset(
    [
        "html",
        "head",
        "body",
        "title",
        "meta",
        "script",
        "style",
        "link",
        "base",
        "br",
        "noscript",
        "template",
    ]
)


def elements(text: str) -> Counter[str]:
    """The elements of a page by kind; of JSON its keys. Empty for a page of neither."""
    text = text[:_LONGEST].lstrip("\ufeff \t\r\n")
    if text[:1] in ("{", "["):
        return Counter([text[0], *_KEY.findall(text)])
    found: Counter[str] = Counter()
    for tag, attributes in _ELEMENT.findall(text):
        tag = tag.lower()
        if tag in _SAYS_NOTHING:
            continue
        given = _CLASS.search(attributes)
        classes = (given[1] or given[2] or given[3] or "").split() if given else []
        found.update(f"{tag}.{name}" for name in classes) if classes else found.update([tag])
    return found


def alien(page: Counter[str], known: Set[str]) -> float:
    """The share of a page's elements that no page with items has, from 0 to 1.

    A page without any element is wholly alien: there is nothing of the list in it.
    """
    total = page.total()
    strange = sum(count for kind, count in page.items() if kind not in known)
    return strange / total if total else 1.0


class Looks:
    """What the pages of one site that held items are made of.

    The first pages are all learnt from, later ones now and then: a list does not change its
    looks with every page, and looking costs time.
    """

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._pages = 0

    def wants(self) -> bool:
        """Whether the next page with items is to be learnt from; counts it."""
        self._pages += 1
        few = self._pages <= _FIRST or self._pages % _EVERY == 0
        return few and len(self._known) < _MOST

    def learn(self, text: str) -> None:
        """*text* is a page that held items."""
        self._known.update(elements(text))

    def odd(self, made_of: Counter[str]) -> bool | None:
        """Is a page unlike the pages with items? None while none of them was seen."""
        return alien(made_of, self._known) > ALIEN if self._known else None
