"""``python -m scrapy_resume.testing URL``: check a database once, or for a while."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path

from scrapy_resume.store.errors import describe
from scrapy_resume.testing.observer import Observer


def main(arguments: list[str] | None = None) -> int:
    """``python -m scrapy_resume.testing URL``: 0 all is well, 1 violations, 2 a mistake."""
    parser = argparse.ArgumentParser(
        prog="python -m scrapy_resume.testing",
        description="Check a database against the promises I1 to I7; only reads.",
    )
    url = os.environ.get("RESUME_DATABASE_URL")
    parser.add_argument("url", nargs="?", default=url, help="default: RESUME_DATABASE_URL")
    parser.add_argument("--prefix", default="resume_", help="what the tables' names begin with")
    parser.add_argument("--served", type=Path, help="JSON: item keys by page, or by shard and page")
    parser.add_argument("--watch", type=float, default=0, metavar="SECONDS", help="look on so long")
    given = parser.parse_args(arguments)
    if not given.url:
        parser.error("there is no URL and no RESUME_DATABASE_URL in the environment")
    try:
        served = json.loads(given.served.read_text()) if given.served else None
        observer = Observer(given.url, prefix=given.prefix, served=served)
        observer.look()
        if given.watch:
            with observer.watching():
                time.sleep(given.watch)
    except Exception as error:
        print(f"the check failed: {describe(error)}", file=sys.stderr)
        return 2
    for violation in observer.violations:
        print(violation)
    print(
        f"{len(observer.violations)} violations in {observer.looks} looks"
        f" at {observer.tasks} tasks and {observer.shards} shards"
    )
    return 1 if observer.violations else 0


if __name__ == "__main__":
    sys.exit(main())
