"""``python -m tests.ledger.crawls MODE [NAME...]``: crawl paths, print one JSON line each.

A process has one reactor, so each mode (asyncio, epoll, reactorless) is a process.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import sys
import tempfile
import threading
import warnings
from time import monotonic
from typing import Any

from scrapy.crawler import AsyncCrawlerRunner, CrawlerRunner
from scrapy.exceptions import ScrapyDeprecationWarning
from scrapy.utils.defer import deferred_from_coro
from scrapy.utils.reactor import install_reactor
from twisted.python.log import PythonLoggingObserver

from tests.ledger.harness import PathSpider, Recorder, TableScheduler
from tests.ledger.mutants import MUTANTS
from tests.ledger.paths import PATHS
from tests.ledger.site import start_site

REACTORS = {
    "asyncio": "twisted.internet.asyncioreactor.AsyncioSelectorReactor",
    "epoll": "twisted.internet.epollreactor.EPollReactor",
    "reactorless": None,
}
HANGS_AFTER = 30.0  # seconds


def settings_for(mode: str) -> dict[str, Any]:
    """The settings of every path's crawl."""
    reactor = {"TWISTED_REACTOR": REACTORS[mode]} if REACTORS[mode] else {}
    return {
        **reactor,
        "TWISTED_REACTOR_ENABLED": bool(reactor),
        "SCHEDULER": TableScheduler,
        "EXTENSIONS": {Recorder: 0},
        "CONCURRENT_ITEMS": 4,
        "RETRY_TIMES": 1,
        "REDIRECT_MAX_TIMES": 3,
        "TELNETCONSOLE_ENABLED": False,
        "REMOTE_CONTROL_ENABLED": False,
        "MEMUSAGE_ENABLED": False,
        "LOGSTATS_INTERVAL": 0,
        "HTTPCACHE_DIR": tempfile.mkdtemp(prefix="ledger-cache-"),
    }


async def crawl(runner: Any, name: str) -> dict[str, Any]:
    """Walk one path; returns what its recorder saw."""
    crawler = runner.create_crawler(PATHS[name].spider)
    started = monotonic()
    timer = threading.Timer(HANGS_AFTER, _hang, [name])
    timer.start()
    try:
        await runner.crawl(crawler)
    finally:
        timer.cancel()
    recorder = crawler.recorder
    outcome, seconds = recorder.outcome(), round(monotonic() - started, 3)
    return {"name": name, "outcome": outcome, "problems": recorder.problems(), "took": seconds}


def _hang(name: str) -> None:
    print(json.dumps({"name": name, "outcome": "hangs", "problems": []}), flush=True)
    os._exit(3)


class Witness(logging.Handler):
    """Notes the errors of loggers that no path should make speak."""

    SILENT = ("asyncio", "twisted", "py.warnings")

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.name.startswith(self.SILENT):
            self.found.append(self.format(record)[-2000:])


async def crawl_all(runner: Any, names: list[str], witness: Witness) -> None:
    """Walk the paths one after the other."""
    for name in names:
        print(json.dumps(await crawl(runner, name)), flush=True)
    gc.collect()
    end = {"name": "the end", "outcome": "reached", "problems": witness.found}
    print(json.dumps(end), flush=True)


def main(mode: str, names: list[str]) -> None:
    warnings.simplefilter("error", ScrapyDeprecationWarning)
    level = os.environ.get("LEDGER_LOG", "CRITICAL")
    witness = Witness()
    logging.getLogger().addHandler(witness)
    logging.getLogger().addHandler(shown := logging.StreamHandler(sys.stderr))
    shown.setLevel(level)
    logging.getLogger().setLevel(min(shown.level, logging.ERROR))
    PythonLoggingObserver("twisted").start()
    PathSpider.site = start_site()
    Recorder.ledger_class = MUTANTS[os.environ.get("LEDGER_MUTANT", "none")]
    names = names or list(PATHS)
    if mode == "reactorless":
        runner = AsyncCrawlerRunner(settings_for(mode))
        asyncio.run(crawl_all(runner, names, witness))
        return
    install_reactor(REACTORS[mode])
    from twisted.internet.task import react

    runner = (CrawlerRunner if mode == "epoll" else AsyncCrawlerRunner)(settings_for(mode))
    react(lambda _: deferred_from_coro(crawl_all(runner, names, witness)))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
