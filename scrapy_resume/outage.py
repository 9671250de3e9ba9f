"""What a log says of an outage of the database: one line when it begins, one when it is over.

Several duties of a crawl meet the same outage (commits, batches, heartbeats, claims), each
of them again and again. They report here; the first one that fails begins the outage, and
it is over when the last of them succeeded again.
"""

from __future__ import annotations

import logging

from scrapy_resume import clock

logger = logging.getLogger(__name__)


class Outage:
    """Whether the database of one crawl is away, as far as its duties know."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self.journal: str | None = None  # where pages go meanwhile, in words
        self._away: set[str] = set()
        self._since = 0.0

    @property
    def away(self) -> bool:
        """Whether some duty waits for the database."""
        return bool(self._away)

    def began(self, duty: str, error: BaseException) -> None:
        """*duty* failed because of *error*, and tries again."""
        if not self._away:
            self._since = clock.monotonic()
            lost = getattr(error, "repeats", {}).get("reconnects", 0)
            logger.warning(
                "The database is %s: %s; %s, for %g s at most (RESUME_STORE_PATIENCE)",
                "away" if lost else "busy", error,
                self.journal or "what has to be stored waits", self._patience,
                extra={"action": "store_away"},
            )  # fmt: skip
        self._away.add(duty)

    def ended(self, duty: str) -> None:
        """*duty* got through."""
        if duty in self._away:
            self._away.discard(duty)
            if not self._away:
                self._over()

    def closed(self) -> None:
        """The end of the crawl is on record: no duty is heard of again, and none is needed."""
        if self._away:
            self._away.clear()
            self._over()

    def _over(self) -> None:
        logger.warning(
            "The database is back after %.0f s", clock.monotonic() - self._since,
            extra={"action": "store_back"},
        )  # fmt: skip
