"""The ledger's parts by themselves: self-check, duplicates, kinds of errors, cancellation."""

from __future__ import annotations

import asyncio
import gc
import weakref
from types import SimpleNamespace
from typing import Any

import pytest
from scrapy import Request
from scrapy.exceptions import CloseSpider, DownloadTimeoutError, IgnoreRequest
from scrapy.http import HtmlResponse, Response
from scrapy.settings import Settings
from scrapy.signalmanager import SignalManager
from scrapy.spidermiddlewares.httperror import HttpError
from scrapy.utils.request import RequestFingerprinter
from twisted.internet.defer import succeed

from scrapy_resume import clock
from scrapy_resume.cancellation import is_stray
from scrapy_resume.duplicates import Duplicates
from scrapy_resume.exceptions import NotAPage, SiteBlocked, UnsupportedScrapy
from scrapy_resume.ledger import Ledger, OpenPage
from scrapy_resume.page import ErrorKind, Page, Shard, Where
from scrapy_resume.troubles import retry_after, safe_text, safe_url, trouble_from


class Engine:
    """What the ledger wraps, as Scrapy 2.19 has it."""

    def __init__(self) -> None:
        self.downloader = SimpleNamespace(
            fetch=lambda request, spider=None: None,
            handlers=SimpleNamespace(download_request_async=lambda request: None),
        )
        self.scraper = SimpleNamespace(
            enqueue_scrape=lambda result, request: None,
            call_spider_async=lambda result, request: None,
            handle_spider_output_async=lambda result, request, response: None,
            start_itemproc_async=lambda item, *, response: None,
            itemproc=SimpleNamespace(process_item_async=lambda item: None),
        )

    def crawl(self, request: Request) -> None: ...

    async def close_spider_async(self, *, reason: str = "cancelled") -> None: ...


@pytest.fixture
def crawler() -> Any:
    return SimpleNamespace(
        settings=Settings(),
        signals=SignalManager(),
        request_fingerprinter=RequestFingerprinter(),
        stats=SimpleNamespace(inc_value=lambda *_, **__: None),
    )


@pytest.fixture
def ledger(crawler: Any) -> Ledger:
    return Ledger(crawler, SimpleNamespace())


@pytest.fixture(autouse=True)
def asyncio_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scrapy_resume.ledger.is_asyncio_available", lambda: True)


def test_install_and_uninstall(ledger: Ledger) -> None:
    engine = Engine()
    before = engine.crawl
    ledger.install(engine)
    assert engine.crawl != before
    ledger.uninstall()
    assert engine.crawl == before


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        ("downloader", "fetch"),
        ("scraper", "enqueue_scrape"),
        ("scraper", "call_spider_async"),
        ("scraper", "start_itemproc_async"),
    ],
)
def test_missing_name_is_refused_in_a_sentence(ledger: Ledger, owner: str, name: str) -> None:
    engine = Engine()
    delattr(getattr(engine, owner), name)
    with pytest.raises(UnsupportedScrapy, match=rf"Scrapy [\d.]+: .*{name}\(\) is missing"):
        ledger.install(engine)
    assert engine.crawl.__func__ is Engine.crawl


@pytest.mark.parametrize(
    "changed",
    [lambda item: None, lambda response, item: None, lambda item, *, response, more: None],
)
def test_other_parameters_are_refused(ledger: Ledger, changed: Any) -> None:
    engine = Engine()
    engine.scraper.start_itemproc_async = changed
    with pytest.raises(UnsupportedScrapy, match=r"instead of \(item, response\)"):
        ledger.install(engine)


def test_more_optional_parameters_are_accepted(ledger: Ledger) -> None:
    engine = Engine()
    engine.scraper.call_spider_async = lambda result, request, spider=None: None
    ledger.install(engine)


def test_a_missing_part_of_the_engine_is_refused(ledger: Ledger) -> None:
    engine = Engine()
    del engine.scraper.itemproc
    with pytest.raises(UnsupportedScrapy, match="process_item_async"):
        ledger.install(engine)


def test_no_garbage_collector_is_needed_for_a_response(ledger: Ledger) -> None:
    """With its tree it takes a megabyte, but few objects, and those are what is counted."""
    engine, kept = Engine(), []
    engine.scraper.enqueue_scrape = lambda result, request: succeed(kept.append(result.css("a")))
    ledger.install(engine)
    request, response = Request("http://site"), HtmlResponse("http://site", body=b"<a>1</a>")
    ledger.dequeued(request)
    gone = weakref.ref(response)
    gc.disable()
    try:
        engine.scraper.enqueue_scrape(response, request)
        del response
        assert gone() is None
    finally:
        gc.enable()
    assert kept[0].css("::text").get() == "1"  # what a callback keeps of it stays good


def test_a_response_can_be_read_on_after_its_callback(ledger: Ledger) -> None:
    engine = Engine()
    engine.scraper.enqueue_scrape = lambda result, request: succeed(result.css("a") and None)
    ledger.install(engine)
    request, response = Request("http://site"), HtmlResponse("http://site", body=b"<a>1</a>")
    ledger.dequeued(request)
    engine.scraper.enqueue_scrape(response, request)
    assert response.css("a::text").get() == "1"


def page(attempt: int = 1, *, repair: bool = False) -> OpenPage:
    return OpenPage("t", Page(1, Shard("s"), attempt=attempt), repair)


def url(number: int) -> Request:
    return Request(f"http://x.invalid/{number}")


def committed(duplicates: Duplicates, *numbers: int) -> None:
    done = page()
    for number in numbers:
        assert not duplicates.drops(done, url(number), None)
        duplicates.remember(done.fingerprints)


def test_memory_of_committed_pages_is_bounded(crawler: Any) -> None:
    duplicates = Duplicates(crawler, 3)
    for number in range(10):
        committed(duplicates, number)
    assert len(duplicates) == 3
    assert duplicates.drops(page(), url(9), None)
    assert not duplicates.drops(page(), url(0), None)


def test_the_least_recently_used_is_forgotten(crawler: Any) -> None:
    duplicates = Duplicates(crawler, 2)
    committed(duplicates, 1)
    committed(duplicates, 2)
    assert duplicates.drops(page(), url(1), None)
    committed(duplicates, 3)
    assert duplicates.drops(page(), url(1), None)
    assert not duplicates.drops(page(), url(2), None)


@pytest.mark.parametrize("again", [page(2), page(repair=True)])
def test_retries_and_repairs_ignore_committed_pages(crawler: Any, again: OpenPage) -> None:
    duplicates = Duplicates(crawler, 9)
    committed(duplicates, 1)
    assert not duplicates.drops(again, url(1), None)
    assert duplicates.drops(again, url(1), None)


def http_error(status: int, **headers: str) -> HttpError:
    return HttpError(Response("http://x.invalid/", status=status, headers=headers), "Ignoring")


@pytest.mark.parametrize(
    ("exc", "kind"),
    [
        *((http_error(status), ErrorKind.RETRYABLE) for status in (408, 429, 500, 502, 503, 504)),
        *((http_error(status), ErrorKind.PERMANENT) for status in (400, 401, 403, 404, 410, 301)),
        (IgnoreRequest("robots"), ErrorKind.PERMANENT),
        (DownloadTimeoutError(), ErrorKind.RETRYABLE),
        (ConnectionResetError(), ErrorKind.RETRYABLE),
        (TypeError(), ErrorKind.CODE),
        (NotAPage(), ErrorKind.RETRYABLE),
        (SiteBlocked(), ErrorKind.BLOCKED),
        (CloseSpider("enough"), ErrorKind.RETRYABLE),
    ],
)
def test_kinds_of_download_errors(exc: Exception, kind: ErrorKind) -> None:
    assert trouble_from(Where.PAGE, exc, downloading=True).kind is kind


def test_an_error_of_the_callback_is_code() -> None:
    assert trouble_from(Where.PAGE, ConnectionResetError()).kind is ErrorKind.CODE


def test_trouble_tells_status_and_retry_after() -> None:
    trouble = trouble_from(Where.PAGE, http_error(429, **{"Retry-After": "7"}), downloading=True)
    assert (trouble.status, trouble.retry_after, trouble.error_class) == (429, 7.0, "HttpError")


def test_retry_after_as_a_date(monkeypatch: pytest.MonkeyPatch) -> None:
    from datetime import datetime

    monkeypatch.setattr(clock, "utc_now", lambda: datetime(2026, 1, 1, 12, 0, 0))
    for text, seconds in [
        ("Thu, 01 Jan 2026 12:00:30 GMT", 30.0),
        ("Thu, 01 Jan 2026 11:00:00 GMT", 0.0),
        ("soon", None),
        ("-5", None),
    ]:
        response = Response("http://x.invalid/", headers={"Retry-After": text})
        assert retry_after(response) == seconds


def test_error_texts_are_short_and_hold_no_secrets() -> None:
    text = safe_text("GET https://me:secret@x.invalid/a?token=t0p&page=2 " + "x" * 500)
    assert text.startswith("GET https://x.invalid/a?token=…&page=… xxx")
    assert len(text) == 200


def test_a_url_keeps_what_asks_for_the_record() -> None:
    given = "https://me:pw@x.invalid:8080/a?id=7&api_key=t0p&page=2#f"
    assert safe_url(given) == "https://x.invalid:8080/a?id=7&api_key=…&page=2#f"


def stray_in_task(*, cancelled: bool) -> bool:
    async def main() -> bool:
        task = asyncio.current_task()
        assert task is not None
        if cancelled:
            task.cancel()
        try:
            await asyncio.sleep(0)
            raise asyncio.CancelledError
        except asyncio.CancelledError as exc:
            return is_stray(exc, running=not cancelled)

    return asyncio.run(main())


def test_a_cancelled_error_nobody_sent_is_stray() -> None:
    assert stray_in_task(cancelled=False)


def test_a_cancellation_that_was_sent_is_not() -> None:
    assert not stray_in_task(cancelled=True)


def test_without_a_loop_nobody_cancels() -> None:
    assert is_stray(asyncio.CancelledError(), running=True)


@pytest.mark.parametrize("running", [True, False])
def test_python_3_10_goes_by_whether_the_crawl_runs(
    monkeypatch: pytest.MonkeyPatch, running: bool
) -> None:
    monkeypatch.setattr(asyncio, "current_task", object)
    assert is_stray(asyncio.CancelledError(), running=running) is running


@pytest.mark.parametrize("exc", [KeyboardInterrupt(), SystemExit(), GeneratorExit()])
def test_the_end_of_the_process_is_never_stray(exc: BaseException) -> None:
    assert not is_stray(exc, running=True)
