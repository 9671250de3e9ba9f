"""What is left for a process that holds no shard: to ask again, to wait, or to end.

An empty claim never means that the run is over. A process stays while others hold
shards that it would take, since those may come back, and while one falls due within
``RESUME_MAX_WAIT``. It ends when the run is over, or when nothing of the rest can
become its own.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scrapy_resume.claimloop import ClaimLoop
    from scrapy_resume.store.leases import Outlook

logger = logging.getLogger(__name__)


class Prospects:
    """Judges the outlook for one claim loop. *reason* says why it ended before the run."""

    def __init__(self, loop: ClaimLoop) -> None:
        self.reason: str | None = None
        self._loop = loop

    async def none(self) -> bool:
        """Whether this process may end; else the claimer knows when to ask again."""
        loop = self._loop
        assert loop.task is not None
        outlook = await loop.ask(loop.work.outlook, loop.task.id)
        if outlook.finished or not outlook.pending + outlook.running + outlook.paused:
            return True
        if waits := self._waits(outlook):
            loop.claimer.ask_in(min(*waits, loop.settings.heartbeat))  # the run may be over then
            return False
        self._say_why(outlook, loop.task.id)
        return True

    def _waits(self, outlook: Outlook) -> list[float]:
        settings, runs = self._loop.settings, outlook.desired == "run"
        waits = []
        if outlook.due and runs:  # others were quicker, or have it locked just now
            waits.append(self._loop.claimer.pause)
        if outlook.leased_elsewhere or (outlook.capped and runs):
            waits.append(settings.heartbeat)
        if outlook.next_due is not None and outlook.next_due <= settings.max_wait and runs:
            waits.append(outlook.next_due)
        if outlook.next_try is not None and outlook.next_try <= settings.max_wait and runs:
            waits.append(max(outlook.next_try, self._loop.claimer.pause))
        return waits

    def _say_why(self, outlook: Outlook, task_id: int) -> None:
        settings, why = self._loop.settings, []
        if outlook.other:
            given = ", ".join(
                f"RESUME_{name.upper()}={value if isinstance(value, str) else ','.join(value)}"
                for name in ("lanes", "priorities", "sites")
                if (value := getattr(settings, name))
            )
            why.append(f"{outlook.other} unfinished shard(s) are not for {given}")
        if outlook.desired == "pause":
            why.append(f"the run is paused (scrapy resume unpause {task_id})")
        if outlook.parked:
            why.append(f"{outlook.parked} shard(s) are parked with their site")
        if why:
            self.reason = f"nothing is left that this process takes: {' and '.join(why)}"
            logger.info("The run goes on, but %s", self.reason, extra={"action": "nothing_for_us"})
