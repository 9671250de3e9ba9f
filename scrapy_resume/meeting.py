"""Meeting Redis: does it let us do all we need, and will it keep what we put there?"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from scrapy_resume.exceptions import ConfigurationError

if TYPE_CHECKING:
    from scrapy_resume.shardqueue import ShardQueue

logger = logging.getLogger(__name__)


class Meeting:
    """Called when Redis is met. Every step is rehearsed: a Redis that answers may be full, or
    have forbidden some steps meanwhile, and would be back and away by turns.

    Raises QueueUnavailable, or ConfigurationError if Redis refuses us.
    """

    def __init__(self, queue: ShardQueue, shown: str, *, refuse_eviction: bool) -> None:
        self._queue, self._shown, self._refuse = queue, shown, refuse_eviction
        self._known = False

    def __call__(self) -> None:
        self._queue.rehearse()
        if self._known:
            return
        policy = self._queue.eviction_policy()
        if policy is None:
            logger.info(
                "Cannot check what Redis at %s does when it is full, since it allows neither INFO"
                " nor CONFIG; its maxmemory-policy should be noeviction", self._shown,
                extra={"action": "redis_eviction_unknown"},
            )  # fmt: skip
        elif policy != "noeviction":
            self._evicts(policy)
        self._known = True

    def _evicts(self, policy: str) -> None:
        text = (
            f"Redis at {self._shown} has the maxmemory-policy {policy}, so it may throw our keys"
            " away when it is full. No page is lost by that, but work may be found later. Set it to"
            " noeviction"
        )
        if self._refuse:
            raise ConfigurationError(f"{text} (RESUME_ON_REDIS_EVICTION is refuse)")
        logger.warning("%s", text, extra={"action": "redis_eviction"})
