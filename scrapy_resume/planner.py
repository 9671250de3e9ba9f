"""Planning a run: by one process, under a fenced lease, while the others wait for it."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any

from scrapy_resume.exceptions import LeaseLost, ResumeError
from scrapy_resume.page import Shard
from scrapy_resume.planning import Plan
from scrapy_resume.startitems import StartItems

if TYPE_CHECKING:
    from scrapy_resume.claimloop import ClaimLoop

logger = logging.getLogger(__name__)

_READ_ONCE = (
    "Planning was taken over while this process read start(), and who took it over did not end"
    " it; start() cannot be read twice, so the run is planned at the next start"
)


class Planner:
    """Plans the run of one claim loop, or waits until another process has."""

    def __init__(self, loop: ClaimLoop) -> None:
        self._loop = loop
        self._start_read = self._lost = False

    async def plan(self, start: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """Return once the run is planned; yields the items that ``start()`` yields."""
        loop = self._loop
        assert loop.task is not None
        while loop.task.planned_at is None and loop.task.finished_at is None:
            token = await loop.ask(loop.work.claim_planning, loop.task.id, self._lost)
            if token is None:
                await loop.wakeup.wait(loop.settings.heartbeat)
            elif self._start_read:
                raise ResumeError(_READ_ONCE)
            else:
                async for item in self._plan_as(token, self._noted(start)):
                    yield item
            loop.task = await loop.ask(loop.work.reload, loop.task.id)

    async def _noted(self, start: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """What ``start()`` yields; it is noted that some of it is gone."""
        self._start_read = True
        async for output in start:
            yield output

    async def _plan_as(self, token: int, start: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """Plan under the lease that *token* fences."""
        loop = self._loop
        assert loop.task is not None
        task_id = loop.task.id

        async def store(shards: Sequence[Shard], first_no: int) -> None:
            await loop.ask(loop.work.add_shards, task_id, token, shards, first_no)

        loop.heartbeat.planning = token
        plan, items = Plan(loop.spider, store), StartItems(loop.crawler.signals, loop.wakeup)
        try:
            while await loop.ask(loop.work.clear_plan, task_id, token):
                pass  # what a dead planner left, one bounded transaction at a time
            async for item in plan.read(start):
                items.sent()
                yield item
            await items.processed()
            if items.failures:
                await loop.ask(loop.work.set_aside, task_id, items.failures)
            if loop.session.store_loose_rows is not None:
                await loop.session.store_loose_rows()
            await loop.ask(loop.work.finish_plan, task_id, token, plan.count)
            logger.info(
                "Planned %d shard(s) of run %d of %r", plan.count, loop.task.run_no, loop.task.name,
                extra={"action": "planned"},
            )  # fmt: skip
            loop.tell_others()
        except LeaseLost:
            self._lost = True
            logger.warning(
                "Planning took too long and was taken over by another process, or was cancelled",
                extra={"action": "planning_lost"},
            )
        finally:
            loop.heartbeat.planning = None
