"""Items that a spider's ``start()`` yields: waits until the pipelines are through.

They belong to no page. The plan of a run must not be published before they are
stored, since after a crash a planned run never runs ``start()`` again.
"""

from __future__ import annotations

from typing import Any

from scrapy import signals
from scrapy.signalmanager import SignalManager

from scrapy_resume.threads import Wakeup

_OUTCOMES = (signals.item_scraped, signals.item_dropped)


class StartItems:
    """Counts the items handed to the engine against those the pipelines are done with."""

    def __init__(self, signal_manager: SignalManager, wakeup: Wakeup) -> None:
        self._signals, self._wakeup = signal_manager, wakeup
        self._open = 0
        self._listening = False
        self.failures: list[BaseException] = []

    def sent(self) -> None:
        """An item is about to be yielded."""
        if not self._listening:
            self._listening = True
            for outcome in _OUTCOMES:
                self._signals.connect(self._done, outcome)
            self._signals.connect(self._failed, signals.item_error)
        self._open += 1

    def _done(self, response: Any = None) -> None:
        if response is None:
            self._open -= 1
            self._wakeup.set()

    def _failed(self, failure: Any, response: Any = None) -> None:
        if response is None:
            self.failures.append(failure.value)
        self._done(response)

    async def processed(self) -> None:
        """Wait until every item sent was scraped, dropped or failed."""
        while self._open > 0:
            await self._wakeup.wait()
        if self._listening:
            for outcome in _OUTCOMES:
                self._signals.disconnect(self._done, outcome)
            self._signals.disconnect(self._failed, signals.item_error)
