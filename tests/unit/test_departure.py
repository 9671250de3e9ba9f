"""How a process leaves: what its slot says of it afterwards."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, MagicMock

import pytest

from scrapy_resume import departure, journalreplay
from scrapy_resume.departure import Departure
from scrapy_resume.exceptions import StoreUnavailable
from scrapy_resume.store import leases, workers
from scrapy_resume.work import Work


def leave(*, registered: bool, told: bool) -> bool:
    """Whether the slot of a process that leaves says that it ended in order."""
    loop: Any = MagicMock(link=None, task=None, journalling=None)
    loop.provisional.close = loop.control.run = AsyncMock()
    loop.flow.release_all = loop.control.stop = loop.control.run
    if not told:
        loop.control.run = AsyncMock(side_effect=StoreUnavailable("away"))
    loop.work.registered = registered
    asyncio.run(Departure(loop).complete())
    clean: bool = loop.slot.free.call_args.kwargs["clean"]
    return clean


def test_a_process_that_could_say_so_has_ended_in_order() -> None:
    assert leave(registered=True, told=True)


def test_a_process_that_could_not_say_so_looks_dead() -> None:
    assert not leave(registered=True, told=False)


def test_a_process_that_never_saw_the_database_leaves_its_predecessors_death_on_record() -> None:
    assert not leave(registered=False, told=True)


def test_the_database_is_waited_for_until_some_time_after_the_grace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    timers: list[tuple[float, Any]] = []

    def later(seconds: float, call: Any) -> Any:
        timers.append((seconds, call))
        return MagicMock()

    monkeypatch.setattr(departure, "call_later", later)
    loop: Any = MagicMock()
    loop.settings.grace = 8.0
    leaving = Departure(loop)
    leaving.begin()
    leaving.begin()  # a second sign changes nothing
    (grace, out_of_grace), (last, out_of_time) = timers
    assert grace == 8 and last > grace
    loop.flow.release_all = AsyncMock()
    monkeypatch.setattr(departure, "deferred_from_coro", lambda coro: coro.close())
    out_of_grace()
    told = [name for name, *_ in loop.mock_calls if name in ("flow.abandon", "ledger.abort")]
    assert told == ["flow.abandon", "ledger.abort"]  # or its failures would count as the site's
    loop.session.database.cut.assert_not_called()
    out_of_time()
    loop.session.database.cut.assert_called_once()
    leaving.over()
    stat, took = loop.crawler.stats.set_value.call_args.args
    assert stat == "resume/stop/seconds" and took >= 0


def test_a_process_is_on_record_once_its_predecessors_shards_are_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def away(*args: Any, **kwargs: Any) -> None:
        raise StoreUnavailable("away")

    monkeypatch.setattr(leases, "reclaim_worker", away)
    monkeypatch.setattr(journalreplay, "steps", lambda *args, **kwargs: iter(()))
    monkeypatch.setattr(workers, "namesakes", lambda *args, **kwargs: [])
    database: Any = SimpleNamespace(require_claims=lambda: None)
    slot: Any = SimpleNamespace(worker="w", instance="i", host="h", pid=1, earlier=set(),
                                directory=None, signature="w on h")  # fmt: skip
    settings: Any = SimpleNamespace(shards=1, lease=15, run="auto")
    work = Work(database, settings, SimpleNamespace(), slot)  # type: ignore[arg-type]
    with pytest.raises(StoreUnavailable):
        work.open()
    assert not work.registered
