"""Check a database against what this package promises, from outside.

For tests, drills and anyone who wants proof::

    from scrapy_resume.testing import Observer, check

    assert check(url) == []                           # at any moment, also after a kill
    served = {1: ["k001", "k002"], 2: ["k003"]}       # keys that the site serves, by page
    assert check(url, served=served) == []

    with Observer(url).watching(0.1) as observer:     # while crawls run
        ...
    assert observer.violations == []

or ``python -m scrapy_resume.testing URL``. A checker only reads, and every look is one
consistent snapshot. The invariants:

* I1: every item of a committed page is in its table, or in quarantine, or counted as dropped.
* I2: a resumed run stores what an undisturbed one does (compare :func:`stored_items`).
* I3: nothing is lost silently: counters and records agree, and the verdict is true.
* I4: a watermark moves backwards only by an act on record.
* I5: a shard has one owner; what has no valid token changes nothing.
* I6: the fencing token grows at every change of owner.
* I7: a final state is left only by an act on record, and every state has its reason.
"""

from __future__ import annotations

from scrapy_resume.testing.observer import Observer, check, stored_items
from scrapy_resume.testing.snapshot import Served
from scrapy_resume.testing.violation import Violation

__all__ = ["Observer", "Served", "Violation", "check", "stored_items"]
