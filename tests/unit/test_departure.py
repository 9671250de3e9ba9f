"""How a process leaves: what its slot says of it afterwards."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from scrapy_resume.departure import Departure
from scrapy_resume.exceptions import StoreUnavailable
from scrapy_resume.store import leases
from scrapy_resume.work import Work


async def nothing(*args: Any) -> None:
    pass


def leave(*, registered: bool, told: bool) -> bool:
    """Whether the slot of a process that leaves says that it ended in order."""
    freed: list[bool] = []

    async def run(call: Any) -> None:
        if not told:
            raise StoreUnavailable("away")

    def no_matter(*args: Any) -> None:
        pass

    loop: Any = SimpleNamespace(
        flow=SimpleNamespace(stop=no_matter, release_all=nothing),
        heartbeat=SimpleNamespace(stop=no_matter),
        reaper=SimpleNamespace(stop=no_matter),
        work=SimpleNamespace(registered=registered, stopped=None),
        control=SimpleNamespace(run=run, stop=nothing),
        ledger=SimpleNamespace(uninstall=no_matter),
        slot=SimpleNamespace(free=lambda *, clean: freed.append(clean)),
        settings=SimpleNamespace(grace=0),
        link=None,
        task=None,
    )
    asyncio.run(Departure(loop).complete())
    return freed.pop()


def test_a_process_that_could_say_so_has_ended_in_order() -> None:
    assert leave(registered=True, told=True)


def test_a_process_that_could_not_say_so_looks_dead() -> None:
    assert not leave(registered=True, told=False)


def test_a_process_that_never_saw_the_database_leaves_its_predecessors_death_on_record() -> None:
    assert not leave(registered=False, told=True)


def test_a_process_is_on_record_once_its_predecessors_shards_are_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def away(*args: Any, **kwargs: Any) -> None:
        raise StoreUnavailable("away")

    monkeypatch.setattr(leases, "reclaim_worker", away)
    database: Any = SimpleNamespace(require_claims=lambda: None)
    slot: Any = SimpleNamespace(worker="w", instance="i", host="h", pid=1)
    settings: Any = SimpleNamespace(shards=1)
    work = Work(database, settings, SimpleNamespace(), slot)  # type: ignore[arg-type]
    with pytest.raises(StoreUnavailable):
        work.open()
    assert not work.registered
