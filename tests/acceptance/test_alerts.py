"""Who is told what: signals, stats, the web hook of the documentation, Spidermon."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

from tests.acceptance.harness import CHAIN, NUMBERED, Bench, Crawl, wait_until
from tests.acceptance.test_res import ONE_BY_ONE, PICKY, WITH_PICKY
from tests.docs.pages import block

RECORDER = """\
import asyncio
import json

from scrapy_resume import signals

NAMES = ("site_blocked", "shard_failed", "records_quarantined", "crawl_stalled")


class Recorder:
    def __init__(self, crawler):
        self.late = crawler.settings.getfloat("LATE")
        self.handlers = [self.handler(name) for name in NAMES]
        for name, handler in zip(NAMES, self.handlers):
            crawler.signals.connect(handler, getattr(signals, name))

    @classmethod
    def from_crawler(cls, crawler):
        return cls(crawler)

    def handler(self, name):
        async def handle(spider, **facts):
            await asyncio.sleep(self.late)
            facts.pop("signal", None), facts.pop("sender", None)
            if "records" in facts:
                facts["records"] = [(one.kind, one.item_key) for one in facts["records"]]
            with open("told.jsonl", "a") as told:
                print(json.dumps([name, spider.name, facts]), file=told)

        return handle
"""
RECORDED = 'EXTENSIONS = {"bench.recorder.Recorder": 500}\n'
REFUSED: dict[str, Any] = {"RESUME_HEALTH_LEAST": 4, "RESUME_PAGE_RETRIES": 0, "RETRY_TIMES": 0}
BOUNDED = NUMBERED + "    shard_pages = 12\n"


def told(bench: Bench) -> list[tuple[str, dict[str, Any]]]:
    """The signals that were sent, in order."""
    path = bench.directory / "told.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [(name, facts) for name, _, facts in map(json.loads, lines)]


def test_a_blocked_site_is_told_once_by_a_handler_that_takes_its_time(sqlite_bench: Bench) -> None:
    bench = sqlite_bench
    bench.site.behave(path="/list", skip=2, status=403)
    bench.write(BOUNDED, settings=RECORDED, recorder=RECORDER)
    crawl = bench.crawl(**REFUSED, LATE=1)
    [(name, facts)] = told(bench)
    assert name == "site_blocked" and "HTTP 403" in facts["reason"]
    assert facts["site"] == bench.shard["site"]
    assert crawl.stats["resume/shards/blocked"] == 1
    assert "resume/shards/failed" not in crawl.stats


def test_a_site_that_is_tried_in_vain_is_told_once(sqlite_bench: Bench) -> None:
    bench = sqlite_bench
    bench.site.behave(path="/list", skip=2, status=403)
    bench.write(BOUNDED, settings=RECORDED, recorder=RECORDER)
    waits = {"RESUME_HEALTH_WAIT": 0.1, "RESUME_HEALTH_WAIT_MAX": 0.1, "RESUME_MAX_WAIT": 60}
    crawl = bench.start(**REFUSED, **waits)
    wait_until(lambda: crawl.log.count("is tried with one page") >= 3)
    bench.site.heal()
    assert crawl.wait().stats["resume/health/probes_failed"] >= 2
    assert [name for name, _ in told(bench)] == ["site_blocked"]


def test_a_shard_whose_page_is_blocked_is_told_too(sqlite_bench: Bench) -> None:
    """The window of its site has seen too little to say so."""
    bench = sqlite_bench
    bench.site.behave(page=6, redirect="/login")
    bench.write(CHAIN, settings=RECORDED, recorder=RECORDER)
    crawl = bench.crawl(**ONE_BY_ONE)
    [(name, facts)] = told(bench)
    assert name == "site_blocked" and "/login" in facts["reason"]
    assert "resume/health/blocked" not in crawl.stats


def test_a_failed_shard_is_told(sqlite_bench: Bench) -> None:
    bench = sqlite_bench
    bench.site.behave(page=6, next_page=3)
    bench.write(CHAIN, settings=RECORDED, recorder=RECORDER)
    crawl = bench.crawl()
    [(name, facts)] = told(bench)
    assert (name, facts["shard_no"]) == ("shard_failed", 1)
    assert "loop" in facts["reason"] and facts["shard_key"] == bench.shard["shard_key"]
    assert crawl.stats["resume/shards/failed"] == 1


def test_what_is_set_aside_is_told(sqlite_bench: Bench) -> None:
    bench = sqlite_bench
    bench.write(CHAIN, settings=WITH_PICKY + RECORDED, pipelines=PICKY, recorder=RECORDER)
    crawl = bench.crawl()
    assert told(bench) == [("records_quarantined", {"records": [["item", "k043"]]})]
    assert crawl.stats["resume/items/quarantined"] == 1


def test_a_stall_is_told(sqlite_bench: Bench) -> None:
    """Once for each of them: tests/unit/test_stallwatch.py."""
    bench = sqlite_bench
    bench.write(CHAIN, settings=RECORDED, recorder=RECORDER)
    held = bench.site.behave(page=3, hold=True, times=1)
    crawl = bench.start(RESUME_STALLED_AFTER=0.4)
    held.wait()
    crawl.wait_until_logged("No page of the run was stored for ")
    held.release()
    assert crawl.wait().finish_reason == "finished"
    names = [name for name, _ in told(bench)]
    assert set(names) == {"crawl_stalled"} and crawl.stats["resume/stalled"] == len(names)
    facts = told(bench)[0][1]
    assert facts["seconds"] >= 0.4 and "scrapy resume why rows" in facts["reason"]


def test_a_handler_that_fails_harms_nobody(sqlite_bench: Bench) -> None:
    bench = sqlite_bench
    broken = RECORDER.replace("await asyncio.sleep(self.late)", "raise ValueError('no hook')")
    bench.write(CHAIN, settings=WITH_PICKY + RECORDED, pipelines=PICKY, recorder=broken)
    crawl = bench.crawl()
    assert bench.task["verdict"] == "complete_with_rejects"
    assert "no hook" in crawl.log and crawl.finish_reason == "finished"


@contextmanager
def chat_room() -> Iterator[tuple[str, list[str]]]:
    """A web hook's address, and what was posted to it."""
    posted: list[str] = []

    class Room(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            posted.append(json.loads(body)["text"])
            self.send_response(204)
            self.end_headers()

        def log_message(self, *args: Any) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Room) as server:
        thread = Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/", posted
        server.shutdown()
        thread.join()


def test_the_web_hook_of_the_documentation(sqlite_bench: Bench) -> None:
    bench = sqlite_bench
    hook = block("docs/how-to/alerts.md", "python", "class Webhook").text
    bench.site.behave(page=8, redirect="/login")
    settings = WITH_PICKY + 'EXTENSIONS = {"bench.webhook.Webhook": 500}\n'
    bench.write(CHAIN, settings=settings, pipelines=PICKY, webhook=hook)
    with chat_room() as (url, posted):
        bench.crawl(ALERT_URL=url)
    assert posted[0] == "rows: 1 records set aside: 'no such colour'"
    assert "is blocked: " in posted[1] and len(posted) == 2


# Spidermon

SPIDERMON = """\
EXTENSIONS = {"spidermon.contrib.scrapy.extensions.Spidermon": 500}
SPIDERMON_ENABLED = True
SPIDERMON_ENGINE_STOP_MONITORS = ["scrapy_resume.spidermon.ResumeMonitorSuite"]
"""
MONITORS = ("Run", "Sites", "Shards", "Records", "Progress")


def failed_monitors(crawl: Crawl) -> list[str]:
    """Which of the suite's monitors failed, each of which has had its say."""
    results = {
        name: next(line for line in crawl.log.splitlines() if f"[Spidermon] {name}/" in line)
        for name in MONITORS
    }
    assert all(line.endswith(("... OK", "... FAIL")) for line in results.values())
    return [name for name, line in results.items() if line.endswith("FAIL")]


def test_nobody_is_told_that_all_is_well(sqlite_bench: Bench) -> None:
    """Neither a handler nor Spidermon."""
    bench = sqlite_bench
    both = SPIDERMON.replace("}\n", ', "bench.recorder.Recorder": 500}\n')
    bench.write(NUMBERED, settings=both, recorder=RECORDER)
    crawl = bench.crawl(RESUME_STALLED_AFTER=30)
    assert (crawl.finish_reason, told(bench)) == ("finished", [])
    assert failed_monitors(crawl) == []


def test_spidermon_fails_the_crawl_of_a_blocked_site(sqlite_bench: Bench) -> None:
    bench = sqlite_bench
    bench.site.behave(path="/list", skip=2, status=403)
    bench.write(BOUNDED, settings=SPIDERMON)
    crawl = bench.crawl(**REFUSED)
    assert failed_monitors(crawl) == ["Run", "Sites"]
    assert "the run is blocked: 1 shard not done, blocked: " in crawl.log


def test_spidermon_tells_what_failed_and_what_was_set_aside(sqlite_bench: Bench) -> None:
    bench = sqlite_bench
    bench.site.behave(page=6, next_page=3)
    held = bench.site.behave(page=2, hold=True, times=1)
    bench.write(CHAIN, settings=WITH_PICKY + SPIDERMON, pipelines=PICKY)
    crawl = bench.start(RESUME_STALLED_AFTER=0.3)
    held.wait()
    crawl.wait_until_logged("No page of the run was stored")
    held.release()
    assert failed_monitors(crawl.wait()) == ["Run", "Shards", "Records", "Progress"]
    assert "1 records are in quarantine; 0 are tolerated" in crawl.log


def test_the_suite_of_the_documentation_tolerates_some_records(sqlite_bench: Bench) -> None:
    bench = sqlite_bench
    suite = block("docs/how-to/alerts.md", "python", "class FewRejects").text
    settings = SPIDERMON.replace(
        "scrapy_resume.spidermon.ResumeMonitorSuite", "bench.own.ShopSuite"
    )
    bench.write(CHAIN, settings=WITH_PICKY + settings, pipelines=PICKY, own=suite)
    crawl = bench.crawl()
    assert bench.task["verdict"] == "complete_with_rejects"
    assert "2 monitors in" in crawl.log and "... FAIL" not in crawl.log


def test_without_spidermon_one_sentence_says_what_to_install() -> None:
    code = "import sys; sys.modules['spidermon'] = None; import scrapy_resume.spidermon"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    said = 'ImportError: scrapy_resume.spidermon needs Spidermon: pip install "scrapy-resume['
    assert done.returncode == 1 and said in done.stderr.splitlines()[-1]


def test_a_plain_spider_has_no_run_to_fail(sqlite_bench: Bench) -> None:
    bench = sqlite_bench
    plain = "class Rows(scrapy.Spider):\n    name = 'rows'\n    start_urls = [SITE + '/list']\n"
    plain += "\n    def parse(self, response):\n        yield from ()\n"
    bench.write(plain, settings=SPIDERMON)
    crawl = bench.crawl()
    assert "... FAIL" not in crawl.log and "the spider does not resume" in crawl.log
