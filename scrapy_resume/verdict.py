"""What a run says of itself at the end, from the shards' rows and nothing else.

Pure. ``blocked``, which needs every open shard to be blocked, outranks ``nothing_read``,
since it says why nothing was read; ``nothing_read`` outranks ``incomplete``. A run is never
complete while a shard is not done, and never when no page was read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum


class Verdict(str, Enum):
    """The five outcomes of a run."""

    COMPLETE = "complete"
    COMPLETE_WITH_REJECTS = "complete_with_rejects"
    INCOMPLETE = "incomplete"
    BLOCKED = "blocked"
    NOTHING_READ = "nothing_read"

    @property
    def finish_reason(self) -> str:
        """Scrapy's finish reason: ``finished`` only if everything was read."""
        whole = self in (Verdict.COMPLETE, Verdict.COMPLETE_WITH_REJECTS)
        return "finished" if whole else f"resume_{self.value}"

    @property
    def exit_code(self) -> int:
        """The exit code of ``scrapy resume run``."""
        return _EXIT_CODES[self]


_EXIT_CODES = {
    Verdict.COMPLETE: 0,
    Verdict.COMPLETE_WITH_REJECTS: 10,
    Verdict.INCOMPLETE: 11,
    Verdict.BLOCKED: 12,
    Verdict.NOTHING_READ: 13,
}

_NAMED = 3  # reasons that a sentence lists at most


@dataclass(frozen=True, slots=True)
class Tally:
    """*count* shards of a run that share a status, a kind of error and a reason."""

    status: str
    error_kind: str | None
    reason: str
    count: int


def decide(
    tallies: Iterable[Tally], *, planned: bool, pages: int, rejects: int
) -> tuple[Verdict, str]:
    """The verdict of a run and the sentence that explains it.

    *tallies* cover every shard; *planned* says that they do. *pages* and *rejects*
    are the pages read and committed and the records in quarantine over all shards.
    """
    open_ = [tally for tally in tallies if tally.status != "done"]
    count = sum(tally.count for tally in open_)
    if open_ and all(tally.error_kind == "blocked" for tally in open_):
        return Verdict.BLOCKED, f"{_shards(count)} not done, blocked: {_reasons(open_)}"
    if pages == 0:
        why = f"{_shards(count)} not done: {_reasons(open_)}" if open_ else "no list had a page"
        return (
            Verdict.NOTHING_READ,
            f"nothing was read; {why if planned else 'the run is unplanned'}",
        )
    if not planned:
        return Verdict.INCOMPLETE, "the run is not planned to its end"
    if open_:
        return Verdict.INCOMPLETE, f"{_shards(count)} not done: {_reasons(open_)}"
    if rejects:
        return Verdict.COMPLETE_WITH_REJECTS, f"read to the end; {rejects} in quarantine"
    return Verdict.COMPLETE, "every page was read"


def _shards(count: int) -> str:
    return f"{count} shard{'s' if count != 1 else ''}"


def _reasons(tallies: Sequence[Tally]) -> str:
    ranked = sorted(tallies, key=lambda tally: (tally.error_kind is None, -tally.count))
    named = [f"{tally.count} {tally.status} ({tally.reason})" for tally in ranked[:_NAMED]]
    rest = sum(tally.count for tally in ranked[_NAMED:])
    return "; ".join(named + ([f"{rest} more"] if rest else []))
