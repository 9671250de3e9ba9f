"""``python -m example_project.site``: serve the local site; prints its address first."""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
from typing import Any

from example_project.site.site import Site


def main() -> None:
    options = vars(_parser().parse_args())
    rules: list[dict[str, Any]] = options.pop("behave")
    settings = {name: options.pop(name) for name in ("past_end", "totals", "robots")}
    site = Site(**options, remember=False)
    for rule in rules:
        site.behave(**rule)
    _apply(site, **settings)
    try:
        asyncio.run(_serve(site))
    except OSError as exc:
        sys.exit(f"cannot serve {site.url}: {exc.strerror}")


def _apply(site: Site, past_end: str, totals: bool, robots: str | None) -> None:
    site.listing.past_end, site.listing.totals = past_end, totals
    if robots is not None:
        site.access.robots = robots.replace("\\n", "\n")


async def _serve(site: Site) -> None:
    task = asyncio.ensure_future(site.serve(lambda: print(site.url, flush=True)))
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(signum, task.cancel)
    try:
        await task
    except asyncio.CancelledError:
        site.log.close()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m example_project.site", description=__doc__)
    add = parser.add_argument
    add("--host", default="127.0.0.1", help="address to bind, ::1 too")
    add("--port", type=int, default=8008, help="0 takes a free one (default 8008)")
    add("--log", metavar="FILE", help="append one JSON line for each request")
    add("--pages", type=int, default=12, help="pages of /list (default 12)")
    add("--rows", type=int, default=10, help="rows of each (default 10)")
    add("--filler", type=int, default=0, help="more characters in each row's title")
    add("--books", type=int, default=60, help="books at /books/ (default 60)")
    add("--delay", type=float, default=0.0, metavar="SECONDS", help="hold back every answer")
    add("--fail", type=float, default=0.0, metavar="SHARE", help="share that fails, 0 to 1")
    add("--fail-status", type=int, default=503, help="their status (default 503)")
    add("--shift", type=int, default=0, metavar="N", help="new top row every N list requests")
    add("--seed", type=int, default=0, help="which requests fail (default 0)")
    add("--past-end", choices=("empty", "first", "404"), default="empty")
    add("--totals", action="store_true", help="list pages state the number of rows")
    add("--robots", metavar="TEXT", help="contents of robots.txt")
    add(
        "--behave",
        type=json.loads,
        action="append",
        default=[],
        metavar="JSON",
        help='a rule, such as {"page": 5, "status": 503, "times": 2}; may be repeated',
    )
    return parser


if __name__ == "__main__":
    main()
