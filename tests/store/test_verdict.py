"""The verdict, as a rule over tallies."""

from __future__ import annotations

import pytest

from scrapy_resume.verdict import Tally, Verdict, decide

DONE = Tally("done", None, "read", 3)
FRESH = Tally("pending", None, "planned", 2)
RUNNING = Tally("running", None, "claimed", 1)
BLOCKED = Tally("pending", "blocked", "captcha", 1)
FAILED = Tally("failed", "permanent", "410 Gone", 1)
RETRIED = Tally("failed", None, "gave up after 10 attempts", 1)


@pytest.mark.parametrize(
    ("tallies", "planned", "pages", "rejects", "verdict"),
    [
        ([DONE], True, 5, 0, "complete"),
        ([DONE], True, 5, 1, "complete_with_rejects"),
        ([DONE], True, 0, 0, "nothing_read"),
        ([DONE], True, 0, 3, "nothing_read"),
        ([], True, 0, 0, "nothing_read"),
        ([], False, 0, 0, "nothing_read"),
        ([DONE], False, 5, 0, "incomplete"),
        ([DONE, FAILED], True, 5, 0, "incomplete"),
        ([DONE, FAILED], True, 5, 3, "incomplete"),
        ([FAILED], True, 0, 0, "nothing_read"),
        ([DONE, FRESH], True, 5, 0, "incomplete"),
        ([DONE, RUNNING], True, 5, 0, "incomplete"),
        ([DONE, RETRIED], True, 5, 0, "incomplete"),
        ([DONE, BLOCKED], True, 5, 0, "blocked"),
        ([BLOCKED, BLOCKED], True, 0, 0, "blocked"),
        ([DONE, BLOCKED, FRESH], True, 5, 1, "incomplete"),
        ([DONE, BLOCKED, RUNNING], True, 5, 0, "incomplete"),
        ([BLOCKED, FRESH], True, 0, 0, "nothing_read"),
        ([DONE, BLOCKED, FAILED], True, 5, 0, "incomplete"),
    ],
)
def test_verdicts(
    tallies: list[Tally], planned: bool, pages: int, rejects: int, verdict: str
) -> None:
    decided, reason = decide(tallies, planned=planned, pages=pages, rejects=rejects)
    assert decided.value == verdict
    assert reason


def test_what_follows_from_a_verdict() -> None:
    assert {verdict.value: verdict.exit_code for verdict in Verdict} == {
        "complete": 0, "complete_with_rejects": 10, "incomplete": 11, "blocked": 12,
        "nothing_read": 13,
    }  # fmt: skip
    finished = [verdict.value for verdict in Verdict if verdict.finish_reason == "finished"]
    assert finished == ["complete", "complete_with_rejects"]
    assert Verdict.BLOCKED.finish_reason == "resume_blocked"


def test_a_sentence_names_few_reasons_and_counts_the_rest() -> None:
    tallies = [Tally("failed", "permanent", f"reason {n}", n) for n in range(1, 6)]
    _, reason = decide(tallies, planned=True, pages=1, rejects=0)
    assert reason == (
        "15 shards not done: 5 failed (reason 5); 4 failed (reason 4); 3 failed (reason 3); 3 more"
    )
