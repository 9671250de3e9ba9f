"""What became of an operator's act."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ActResult:
    """*counts* is how much of what the act changed, *sentences* say it to a person.

    Of a dry run they are what it would change. A site belongs to no run.
    """

    kind: str
    task_ids: tuple[int, ...]
    dry_run: bool
    counts: dict[str, int] = field(default_factory=dict)
    sentences: tuple[str, ...] = ()
