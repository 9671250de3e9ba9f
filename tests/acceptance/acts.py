"""What happens to a fleet, drawn from a seed before anything starts."""

from __future__ import annotations

import random
from dataclasses import dataclass

# How often each act is drawn. Each is drawn once before any is drawn again.
ACTS = {
    "kill": 3,
    "kill, go on elsewhere": 2,
    "freeze": 3,
    "freeze in a commit": 3,
    "kill in the journal": 2,
    "flush redis": 2,
    "restart redis": 1,
    "freeze redis": 1,
    "restart mariadb": 1,
    "freeze mariadb": 1,
}
_SETTLING = 1.5  # seconds that a server is left alone after an act


@dataclass(frozen=True)
class Act:
    """*what* happens *at* a time (seconds), to which worker, and how long it *lasts*."""

    at: float
    what: str
    worker: int = 0
    lasts: float = 0.0

    @property
    def server(self) -> str | None:
        """The server that it strikes; None: a worker."""
        last = _server(self.what)
        return last if last in ("redis", "mariadb") else None

    def __str__(self) -> str:
        whom = "" if self.server else f" worker {self.worker}"
        return f"{self.what}{whom}" + (f" for {self.lasts:.1f} s" if self.lasts else "")


def drawn(seed: int, seconds: float, *, pause: float, workers: int, lease: float) -> list[Act]:
    """The acts of *seconds* seconds, about one every *pause* seconds; the same for a seed.

    What is frozen stays so for longer than a *lease*.
    """
    dice = random.Random(seed)
    acts: list[Act] = []
    names: list[str] = []
    free = {"redis": 0.0, "mariadb": 0.0}
    at = 1.5 * pause
    while at < seconds:
        if not names:
            names = _shuffled(dice, first=not acts)
        what = names.pop()
        # The first one takes only what others lost, and rarely gets to a page's end.
        worker = dice.randrange(" in " in what, workers)
        at = max(at, free.get(_server(what), 0.0))
        act = Act(at, what, worker, _lasting(what, dice, lease))
        if act.server is not None:
            free[act.server] = at + act.lasts + _SETTLING
        acts.append(act)
        at += pause * dice.uniform(0.5, 1.5)
    return acts


def _server(what: str) -> str:
    return what.rpartition(" ")[2]


def _shuffled(dice: random.Random, *, first: bool) -> list[str]:
    names = [name for name, often in ACTS.items() for _ in range(1 if first else often)]
    dice.shuffle(names)
    return names


def _lasting(what: str, dice: random.Random, lease: float) -> float:
    if what == "freeze in a commit":
        return 0.0  # the driver thaws it once it is there
    if what.startswith("freeze"):
        return lease * dice.uniform(1.8, 3.5)
    return dice.uniform(0.0, 1.5) if what.startswith("restart") else 0.0
