"""Batches: rows of no page wait for company and are written many at a time.

At any moment there is at most one batch that is being written and one that gathers. A
batch goes when one of its limits is reached: rows, bytes, or the time that its first row
has waited. When the gathering one is full while the other is still being written, whoever
brings the next row waits; so a slow or absent database slows the crawl down instead of
filling the memory. What a killed process loses is these two batches at most.
"""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from scrapy.utils.asyncio import call_later
from scrapy.utils.defer import maybe_deferred_to_future
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from scrapy_resume.commitstats import count_rows
from scrapy_resume.patience import Patience
from scrapy_resume.store.checkpoints import CommitResult
from scrapy_resume.store.items import Row
from scrapy_resume.store.quarantine import QuarantineRecord

logger = logging.getLogger(__name__)

Loose: TypeAlias = Row | QuarantineRecord
"""A row, or the record of an item that no row can be made of."""

BATCH_BYTES = 1_000_000
"""A batch goes when its values, as text, are about this long."""

_OTHER_VALUE = 8  # bytes that a value which is no text counts for


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """When a batch goes; *delay* in seconds."""

    rows: int
    delay: float
    size: int = BATCH_BYTES


class Batches:
    """Takes rows of no page and stores them in the order in which they came."""

    def __init__(
        self,
        patience: Patience[CommitResult],
        store: Callable[[Sequence[Loose]], CommitResult],
        limits: BatchLimits,
        *,
        inc_stat: Callable[..., None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._patience, self._store, self._limits = patience, store, limits
        self._inc, self._on_failure = inc_stat, on_failure
        self._gathering: list[Loose] = []
        self._size = 0
        self._writing = 0  # rows
        self._queue: deque[tuple[Loose, Deferred[None]]] = deque()
        self._timer: Any = None
        self._due = self._eager = False
        self._idle: list[Deferred[None]] = []
        self._broken_by: BaseException | None = None
        self._lost = 0

    async def add(self, row: Loose) -> None:
        """Keep *row* for the next batch; waits while there is no room for it."""
        if self._broken_by is not None:
            self._lose(1)
        elif not self._queue and not self._full:
            self._gather(row)
            self._consider()
        else:
            room: Deferred[None] = Deferred()
            self._queue.append((row, room))
            await maybe_deferred_to_future(room)

    @property
    def crowded(self) -> bool:
        """Does someone wait for room?"""
        return bool(self._queue)

    async def flush(self) -> None:
        """Store everything that waits. Raises what made it impossible."""
        while self._broken_by is None and (self._writing or self._gathering):
            self._due = True
            self._consider()
            idle: Deferred[None] = Deferred()
            self._idle.append(idle)
            await maybe_deferred_to_future(idle)
        if self._broken_by is not None:
            raise self._broken_by

    def hurry(self, within: float) -> None:
        """The crawl is stopping: write without waiting for company, *within* seconds if away."""
        self._eager = True
        self._patience.hurry(within)
        self._consider()

    async def close(self) -> None:
        """Store what is left, and say how many rows were lost, if any."""
        with contextlib.suppress(Exception):  # it was said when the crawl began to close
            await self.flush()
        if self._lost:
            logger.error(
                "%d items of no page were not stored and are lost: %s", self._lost,
                self._broken_by, extra={"action": "items_lost"},
            )  # fmt: skip

    @property
    def _full(self) -> bool:
        return len(self._gathering) >= self._limits.rows or self._size >= self._limits.size

    def _gather(self, row: Loose) -> None:
        self._gathering.append(row)
        self._size += size_of(row)

    def _consider(self) -> None:
        """Write the batch that gathers, if it is time and none is being written."""
        if not self._gathering:
            return
        if self._full or self._due or self._eager or self._limits.delay == 0:
            if not self._writing:
                self._write()
        elif self._timer is None:
            self._timer = call_later(self._limits.delay, self._time_is_up)

    def _time_is_up(self) -> None:
        self._timer, self._due = None, True
        self._consider()

    def _write(self) -> None:
        self._cancel_timer()
        rows, self._gathering, self._size = self._gathering, [], 0
        self._writing, self._due = len(rows), False
        written = self._patience.call(self._store, rows)
        self._admit()
        written.addCallbacks(self._written, self._broken)

    def _admit(self) -> None:
        """Take rows whose bringers wait, in their order, while there is room."""
        while self._queue and not self._full:
            row, room = self._queue.popleft()
            self._gather(row)
            if not room.called:
                room.callback(None)
        self._consider()

    def _written(self, result: CommitResult) -> None:
        self._writing = 0
        self._inc("batches/written")
        count_rows(self._inc, result)
        self._consider()
        self._tell()

    def _broken(self, failure: Failure) -> None:
        """What waits is lost, and so is what still comes: say so, and close the crawl."""
        self._broken_by = failure.value or RuntimeError("unknown")
        self._lose(self._writing + len(self._gathering) + len(self._queue))
        self._writing, self._size = 0, 0
        self._gathering.clear()
        waiting, self._queue = self._queue, deque()
        for _, room in waiting:
            if not room.called:
                room.callback(None)
        self._tell()
        self._on_failure(self._broken_by)

    def _lose(self, rows: int) -> None:
        self._lost += rows
        self._inc("items/lost", rows)

    def _tell(self) -> None:
        """Wake those who wait in :meth:`flush`; they look again."""
        idle, self._idle = self._idle, []
        for waiting in idle:
            waiting.callback(None)

    def _cancel_timer(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()


def size_of(row: Loose) -> int:
    """About how long the values of *row* are as text."""
    if isinstance(row, QuarantineRecord):
        return len(row.error) + len(row.item_key or "")
    sizes = (
        len(value) if isinstance(value, (str, bytes)) else _OTHER_VALUE
        for value in row.values.values()
    )
    return sum(sizes)
