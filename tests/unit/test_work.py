"""What a process says of the next try when it ends before its run."""

from __future__ import annotations

import pytest

from scrapy_resume.store.outlook import Outlook
from scrapy_resume.work import _next_try


@pytest.mark.parametrize(
    ("outlook", "said"),
    [
        (Outlook(pending=14, other=14), ""),
        (Outlook(pending=14, other=8, parked=6), ""),
        (Outlook(pending=14, other=8), "; the next try is due at the next start"),
        (Outlook(pending=1), "; the next try is due at the next start"),
        (Outlook(pending=1, next_due=7.2), "; the next try is due in 7 s"),
        (Outlook(pending=1, due=1), "; the next try is due at once"),
        (Outlook(), ""),
    ],
)
def test_shards_of_others_are_not_due_at_the_next_start(outlook: Outlook, said: str) -> None:
    assert _next_try(outlook) == said
