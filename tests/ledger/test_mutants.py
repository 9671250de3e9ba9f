"""Take one safeguard of the ledger away, and the path table has to notice."""

from __future__ import annotations

import pytest

from tests.ledger.mutants import MUTANTS
from tests.ledger.paths import PATHS
from tests.ledger.runs import Outcomes, Run
from tests.ledger.test_paths import compared

pytestmark = pytest.mark.mutant

NOTICED = {
    "NoCrawl": ("CallbackList", "OffsiteDirect", "OffsiteList", "RetryStatus", "RedirectList"),
    "NoFetch": ("CallbackList", "RetryStatus", "RedirectList", "CrawlInDownloaderMiddleware"),
    "NoEnqueueScrape": ("CallbackList", "Status404", "ItemFails"),
    "NoCallSpider": ("CallbackList", "Status404", "RaisesInDetail", "ErrbackYields"),
    "NoStartItem": ("CallbackList", "ItemFails", "ItemDropped"),
    "NoProcessItem": ("CallbackList", "ItemFails", "ItemDropped"),
    "NoContext": ("CallbackList", "CrawlInCallback", "CrawlInPipeline"),
    "NoCatch": ("EnqueueRaises", "EnqueueRaisesForList"),
    "NoTags": ("CallbackList", "MiddlewareAdds", "MiddlewareReplacesRequests"),
    "NoSpiderError": ("MiddlewareRaisesInOutputOfList", "MiddlewareReturnsFromInputOfList"),
    "NoExhausted": ("MiddlewareStopsReadingDetail",),
}
FAIL_CLOSED = (
    "NoCrawl", "NoFetch", "NoEnqueueScrape", "NoCallSpider", "NoStartItem", "NoProcessItem",
)  # fmt: skip


def walked(mutant: str, names: tuple[str, ...]) -> Outcomes:
    mode = "epoll" if mutant == "NoTags" else "asyncio"
    outcomes = Run(mode, "newest", *names, mutant=mutant).outcomes()
    assert set(names) <= set(outcomes)
    return outcomes


@pytest.mark.parametrize("mutant", NOTICED)
def test_missing_safeguard_is_noticed(mutant: str) -> None:
    outcomes = walked(mutant, NOTICED[mutant])
    for name in NOTICED[mutant]:
        expected = PATHS[name].expected("asyncio")
        found = outcomes[name]
        assert found["problems"] or compared(found["outcome"], expected) != expected, name


@pytest.mark.parametrize("mutant", FAIL_CLOSED)
def test_no_page_is_complete_when_a_hook_is_bypassed(mutant: str) -> None:
    outcomes = walked(mutant, NOTICED[mutant])
    for name in NOTICED[mutant]:
        for page in outcomes[name]["outcome"]["pages"].values():
            assert page["closed"] == 0 or page["decision"] == "failed", name


def test_every_mutant_is_tried() -> None:
    assert set(NOTICED) == set(MUTANTS) - {"none"}
