"""``python crawl_all.py DIRECTORY``: crawl with every spider in it, all in one process.

Each directory below is one crawl's ``RESUME_HOME`` and holds its ``spider.py``. Prints a
JSON object: what became of each.
"""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from typing import Any

from scrapy import Spider
from scrapy.crawler import AsyncCrawlerProcess, Crawler

SETTINGS = {
    "ADDONS": {"scrapy_resume.ResumeAddon": 500},
    "LOG_LEVEL": "ERROR",
    "TELNETCONSOLE_ENABLED": False,
    "RESUME_PAGE_RETRY_DELAY": 0.05,
    "RESUME_PROGRESS": False,
}


def main(directory: Path) -> None:
    process = AsyncCrawlerProcess(SETTINGS)
    crawlers: dict[str, Crawler] = {}
    for file in sorted(directory.glob("*/spider.py")):
        home = file.parent
        settings = {**SETTINGS, "RESUME_HOME": str(home)}
        crawlers[home.name] = crawler = Crawler(_spider(file), settings)
        process.crawl(crawler)
    process.start()
    print(json.dumps({name: _outcome(crawler) for name, crawler in crawlers.items()}))


def _spider(file: Path) -> type[Spider]:
    made = runpy.run_path(str(file), run_name=f"docs_{file.parent.name}")
    (spider,) = [
        value
        for value in made.values()
        if isinstance(value, type) and issubclass(value, Spider) and "name" in vars(value)
    ]
    return spider


def _outcome(crawler: Crawler) -> list[Any]:
    return [crawler.stats.get_value(name) for name in ("finish_reason", "resume/verdict")]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
