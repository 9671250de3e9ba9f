"""``scrapy resume run``: a crawl whose exit code is the verdict."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from scrapy.utils.conf import feed_process_params_from_cli

from scrapy_resume.commands.crawl import crawl, stat
from scrapy_resume.commands.subparsers import PROG
from scrapy_resume.commands.verbs import fail
from scrapy_resume.verdict import Verdict

if TYPE_CHECKING:
    from scrapy.settings import Settings

EXIT_CODES = {verdict.value: verdict.exit_code for verdict in Verdict} | {"nothing_to_do": 14}


def run(settings: Settings, opts: argparse.Namespace) -> int:
    """Crawl, and say on stderr why if anything is missing."""
    if opts.output or opts.overwrite_output:
        feeds = feed_process_params_from_cli(
            settings, opts.output, overwrite_output=opts.overwrite_output
        )
        settings.set("FEEDS", feeds, priority="cmdline")
    crawler = crawl(settings, opts)
    verdict, error = stat(crawler, "resume/verdict"), stat(crawler, "resume/error")
    if error and verdict != "nothing_to_do":
        return fail(str(error))
    if verdict not in EXIT_CODES:
        return fail(
            f"the crawl of {opts.spider} has no verdict"
            f" (finish reason: {stat(crawler, 'finish_reason')}); it keeps no checkpoint unless the"
            " add-on is on and the spider has ResumeSpiderMixin"
        )
    if verdict != Verdict.COMPLETE.value:
        reason = stat(crawler, "resume/verdict_reason") or error
        print(f"{PROG}: {verdict}: {reason}", file=sys.stderr)
    return EXIT_CODES[verdict]
