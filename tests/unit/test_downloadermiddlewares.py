"""SiteHealthMiddleware by itself: which answers count, and who has to wait."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from scrapy import Request, Spider
from scrapy.exceptions import (
    DownloadConnectionRefusedError,
    DownloadFailedError,
    DownloadTimeoutError,
    IgnoreRequest,
    NotConfigured,
    NotSupported,
)
from scrapy.http import Response
from scrapy.utils.test import get_crawler
from twisted.internet.error import ConnectionLost

from scrapy_resume.downloadermiddlewares import SiteHealthMiddleware, SiteRests
from scrapy_resume.health import HealthLimits, Signal, SiteState
from scrapy_resume.openpage import OpenPage
from scrapy_resume.page import ErrorKind, Page, Shard, Where
from scrapy_resume.settings import ResumeSettings
from scrapy_resume.sitewatch import SiteWatch
from scrapy_resume.troubles import trouble_from
from scrapy_resume.visits import Visit

URL = "http://site.invalid/list?page=6"


class Watch(SiteWatch):
    """Keeps what it is told."""

    def __init__(self) -> None:
        super().__init__(HealthLimits(least=3), inc_stat=lambda *_: None)
        self.noted: list[tuple[str, Signal, str]] = []

    def note(self, site: str, signal: Signal, detail: str = "", about: str = "") -> None:
        self.noted.append((site, signal, detail))
        super().note(site, signal, detail, about)


class Bench:
    """A middleware whose session knows the requests that are :meth:`asked`."""

    def __init__(self, **given: Any) -> None:
        self.visits: dict[Request, Visit] = {}
        self.watch, self.checks = Watch(), set[OpenPage]()
        checks = SimpleNamespace(of=lambda page: page if page in self.checks else None)
        doubts = SimpleNamespace(checks=checks)
        self.shards = {1: SimpleNamespace(site="site"), 2: SimpleNamespace(site="other")}
        flow = SimpleNamespace(
            site_of=lambda page: "site", doubts=doubts, shards=self.shards
        )  # fmt: skip
        crawler = get_crawler(Spider, {"CONCURRENT_REQUESTS": 8})
        session = SimpleNamespace(
            settings=ResumeSettings(**given), watch=self.watch, crawler=crawler,
            ledger=SimpleNamespace(visit_of=self.visits.get), loop=SimpleNamespace(flow=flow),
        )  # fmt: skip
        self.middleware = SiteHealthMiddleware(cast(Any, session))

    def asked(self, *, is_list: bool = True) -> Request:
        request = Request(f"{URL}&n={len(self.visits)}")
        page = OpenPage("t", Page(6, Shard("s")))
        self.visits[request] = Visit(page, request, is_list)
        return request

    def page_of(self, request: Request) -> OpenPage:
        page = self.visits[request].page
        assert page is not None
        return page


def answer(status: int = 200, flags: tuple[str, ...] = (), **headers: str) -> Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Response(URL, status, headers=named, flags=list(flags))


@pytest.mark.parametrize("status", [200, 204, 304, 404, 500])
def test_an_answer_that_is_no_refusal_is_a_good_sign(status: int) -> None:
    bench = Bench()
    response = answer(status)
    assert bench.middleware.process_response(bench.asked(), response) is response
    assert bench.watch.noted == [("site", Signal.OK, f"HTTP {status}")]


@pytest.mark.parametrize("status", [401, 403, 407, 429, 503, 999])
def test_a_refusal_is_a_bad_one(status: int) -> None:
    bench = Bench()
    bench.middleware.process_response(bench.asked(is_list=False), answer(status))
    assert bench.watch.noted == [("site", Signal.STATUS, f"HTTP {status}")]


def test_which_statuses_are_refusals_may_be_set() -> None:
    bench = Bench(health_statuses=[500])
    for status in (500, 403):
        bench.middleware.process_response(bench.asked(), answer(status))
    assert [signal for _, signal, _ in bench.watch.noted] == [Signal.STATUS, Signal.OK]


def test_a_cached_answer_says_nothing() -> None:
    bench = Bench()
    request = bench.asked()
    bench.middleware.process_response(request, answer(403, ("cached",), Retry_After="9"))
    assert not bench.watch.noted and not bench.watch.resting("site")


def test_requests_of_no_page_are_left_alone() -> None:
    bench = Bench()
    bench.watch.rest("site", 20)
    request = Request("http://site.invalid/robots.txt")
    assert bench.middleware.process_request(request) is None
    bench.middleware.process_response(request, answer(503, Retry_After="9"))
    bench.middleware.process_exception(request, DownloadTimeoutError())
    assert not bench.watch.noted


@pytest.mark.parametrize(
    ("error", "signal"),
    [
        (DownloadTimeoutError(), Signal.TIMEOUT),
        (TimeoutError(), Signal.TIMEOUT),
        (ConnectionLost(), Signal.CONNECTION),
        (DownloadConnectionRefusedError(), Signal.CONNECTION),
        (DownloadFailedError(), Signal.CONNECTION),
        (OSError("tunnel"), Signal.CONNECTION),
        (IgnoreRequest("Forbidden by robots.txt"), None),
        (NotSupported("ftp"), None),
        (SiteRests("the site rests"), None),
        (TypeError("a bug of a middleware"), None),
    ],
)
def test_which_exceptions_are_signs(error: Exception, signal: Signal | None) -> None:
    bench = Bench()
    bench.middleware.process_exception(bench.asked(), error)
    assert [noted for _, noted, _ in bench.watch.noted] == ([] if signal is None else [signal])


def test_a_download_that_nobody_waits_for_says_nothing() -> None:
    bench = Bench()
    request = bench.asked()
    bench.page_of(request).closed = True
    bench.middleware.process_exception(request, ConnectionLost())
    assert not bench.watch.noted


@pytest.mark.parametrize("is_list", [True, False])
def test_retry_after_is_for_the_whole_site(is_list: bool) -> None:
    """A list page is not repeated by Scrapy at once: the page is, when the time is over."""
    bench = Bench()
    request = bench.asked(is_list=is_list)
    bench.middleware.process_response(request, answer(429, Retry_After="7"))
    assert 6 < bench.watch.resting("site") <= 7
    assert request.meta.get("dont_retry") is (True if is_list else None)


def test_a_good_answer_may_have_the_header_too() -> None:
    bench = Bench()
    request = bench.asked()
    bench.middleware.process_response(request, answer(200, Retry_After="7"))
    assert not bench.watch.resting("site") and "dont_retry" not in request.meta


def test_requests_wait_while_the_site_rests_and_only_so_many() -> None:
    bench = Bench()

    async def crawl() -> None:
        bench.watch.rest("site", 0.2)
        waits = [bench.middleware.process_request(bench.asked()) for _ in range(2)]
        tasks = [asyncio.ensure_future(cast(Any, wait)) for wait in waits]
        await asyncio.sleep(0.05)
        with pytest.raises(SiteRests) as told:  # a quarter of CONCURRENT_REQUESTS waits already
            bench.middleware.process_request(bench.asked())
        trouble = trouble_from(Where.REQUEST, told.value)
        assert trouble.kind is ErrorKind.BLOCKED and 0 < (trouble.retry_after or 0) <= 0.2
        del bench.shards[2]  # nobody else needs the places
        waits.append(bench.middleware.process_request(bench.asked()))
        tasks.append(asyncio.ensure_future(cast(Any, waits[-1])))
        assert not any(task.done() for task in tasks)
        await asyncio.gather(*tasks)
        assert not bench.watch.resting("site")
        assert bench.middleware.process_request(bench.asked()) is None

    asyncio.run(crawl())


def test_nobody_waits_for_longer_than_the_longest_wait() -> None:
    bench = Bench(max_wait=60)
    bench.watch.rest("site", 61)
    with pytest.raises(SiteRests):
        bench.middleware.process_request(bench.asked())


def test_a_request_whose_page_is_gone_stops_waiting() -> None:
    bench = Bench()

    async def crawl() -> None:
        bench.watch.rest("site", 1.2)
        request = bench.asked()
        wait = asyncio.ensure_future(cast(Any, bench.middleware.process_request(request)))
        await asyncio.sleep(0)
        bench.page_of(request).closed = True
        with pytest.raises(IgnoreRequest):
            await wait

    asyncio.run(crawl())


def test_a_blocked_site_is_asked_nothing_but_the_check() -> None:
    bench = Bench()
    for _ in range(3):
        bench.middleware.process_response(bench.asked(), answer(403))
    assert bench.watch.judgement("site").state is SiteState.BLOCKED
    request = bench.asked()
    with pytest.raises(SiteRests, match="HTTP 403"):
        bench.middleware.process_request(request)
    bench.checks.add(bench.page_of(request))
    assert bench.middleware.process_request(request) is None


@pytest.mark.parametrize("given", [{"RESUME_HEALTH": False}, {"RESUME_ENABLED": False}])
def test_switched_off_it_is_not_there(given: dict[str, Any]) -> None:
    with pytest.raises(NotConfigured):
        SiteHealthMiddleware.from_crawler(get_crawler(Spider, given))


def test_it_stands_where_every_answer_passes_once() -> None:
    """Above RetryMiddleware, so that it sees what is retried; below those that follow."""
    crawler = get_crawler(Spider, {"ADDONS": {"scrapy_resume.ResumeAddon": 500}})
    placed = crawler.settings.getdict("DOWNLOADER_MIDDLEWARES")
    (ours,) = [order for cls, order in placed.items() if "SiteHealth" in str(cls)]
    base = crawler.settings.getdict("DOWNLOADER_MIDDLEWARES_BASE")
    orders = {path.rpartition(".")[2]: order for path, order in base.items()}
    assert orders["RetryMiddleware"] < ours < orders["MetaRefreshMiddleware"]
    assert orders["RobotsTxtMiddleware"] < ours < orders["HttpCacheMiddleware"]
