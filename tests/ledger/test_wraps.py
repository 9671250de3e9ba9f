"""What a pipeline wraps around the engine, be the ledger there or not."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from scrapy_resume.exceptions import UnsupportedScrapy
from scrapy_resume.wraps import watch


class Engine:
    """What is wrapped, as Scrapy 2.19 has it."""

    def __init__(self) -> None:
        self.closed: list[str] = []

    async def close_spider_async(self, *, reason: str = "cancelled") -> None:
        self.closed.append(reason)

    def needs_backout(self) -> bool:
        return False


def fail() -> None:
    raise RuntimeError("no")


def test_the_engine_closes_also_if_the_pipeline_cannot_prepare_for_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine = Engine()
    watch(engine, fail, lambda: False)
    asyncio.run(engine.close_spider_async(reason="finished"))
    assert engine.closed == ["finished"]
    assert [record.__dict__["action"] for record in caplog.records] == ["closing"]


@pytest.mark.parametrize("crowded", [False, True])
def test_no_more_downloads_while_it_is_crowded(crowded: bool) -> None:
    engine = Engine()
    watch(engine, fail, lambda: crowded)
    assert engine.needs_backout() is crowded


@pytest.mark.parametrize("name", ["close_spider_async", "needs_backout"])
@pytest.mark.parametrize("there", [None, lambda spider: None])
def test_another_shape_is_refused_in_a_sentence(name: str, there: Any) -> None:
    engine = Engine()
    setattr(engine, name, there)
    with pytest.raises(UnsupportedScrapy, match=rf"Scrapy [\d.]+: Engine\.{name}\(\) (is|takes)"):
        watch(engine, fail, lambda: False)
