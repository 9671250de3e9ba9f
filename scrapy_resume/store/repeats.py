"""How often a failed transaction is repeated, and how long is waited before.

Each wait is longer than the one before, up to a limit, and partly random, so that many
processes that met the same trouble do not come back together. The repeating ends soon
when the server is away: who asked knows whether to be patient, and says so in the log.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable

from scrapy_resume import clock
from scrapy_resume.exceptions import ConfigurationError, StoreUnavailable
from scrapy_resume.store.errors import cause, describe, error_kind, is_full, refuses_us

ATTEMPTS = 8
AWAY_FOR = 10.0  # seconds after which a server that is away is given up for now
FULL_FOR = 60.0  # the same for a server that has no connection left for us
LATE_FOR = 1.0  # the same for deadlocks, once the crawl has used up its grace
LONGEST_WAIT = 2.0  # seconds


class Repeats:
    """The failures of one transaction so far, counted by cause in :attr:`counts`."""

    def __init__(self, place: str, attempts: int, deadline: Callable[[], float]) -> None:
        self.counts: Counter[str] = Counter()
        self._place, self._attempts, self._deadline = place, attempts, deadline
        self._started = clock.monotonic()

    def after(self, exc: Exception) -> None:
        """Wait before the next attempt, or raise what is final.

        That is StoreUnavailable, ConfigurationError if the server refuses us, or *exc* if
        repeating cannot help.
        """
        if refuses_us(exc):
            raise ConfigurationError(f"{self._place} refuses us: {describe(exc)}") from exc
        kind = error_kind(exc)
        if kind not in ("retry", "reconnect"):
            raise exc
        self.counts[cause(exc)] += 1
        attempt = self.counts.total()
        if self._over(exc, attempt, lost=kind == "reconnect"):
            raise StoreUnavailable(
                f"{self._place} failed {attempt} times, last with: {describe(exc)}", self.counts
            ) from exc
        first = 0.02 if kind == "retry" else 0.05
        time.sleep(random.uniform(0.2, 1) * min(LONGEST_WAIT, first * 2**attempt))

    def _over(self, exc: Exception, attempt: int, *, lost: bool) -> bool:
        now = clock.monotonic()
        late = now > self._deadline()
        if is_full(exc) and not late and self._attempts > 1:
            return now - self._started > FULL_FOR
        # A connection may be dead while the server is well: a second attempt is always made.
        patience = AWAY_FOR if not late else 0.0 if lost else LATE_FOR
        used_up = (lost or late) and attempt > 1 and now - self._started > patience
        return used_up or attempt >= self._attempts
