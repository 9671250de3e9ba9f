"""The arguments of every verb, declared in one place.

Scrapy's own options have been taken out before these are read, so they may stand
anywhere on the line.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from scrapy.cmdline import ScrapyArgumentParser
from scrapy.commands import ScrapyHelpFormatter
from scrapy.utils.conf import arglist_to_dict

from scrapy_resume.commands import actparser
from scrapy_resume.commands.subparsers import EPILOG, PROG, Parser, as_json, below


def read(words: Sequence[str], into: argparse.Namespace) -> None:
    """Read *words* into *into*: ``verb`` and its arguments. Exits for help and for mistakes."""
    parser = build()
    parser.parse_args(words, namespace=into)
    if into.verb is None:
        parser.print_help(sys.stderr)
        sys.exit(2)
    if into.verb == "pause" and into.seconds is not None and into.site is None:
        parser.error("--for is for a --site; a task is paused until it is unpaused")
    if into.verb in ("run", "plan"):
        try:
            into.spargs = arglist_to_dict(into.spargs)
        except ValueError:
            parser.error("invalid -a value, use -a NAME=VALUE")


def build() -> Parser:
    """The parser of ``scrapy resume``; each verb has its own below it."""
    parser = ScrapyArgumentParser(
        prog=PROG,
        description="Run resumable crawls, and show what they have done and what is left.",
        epilog=EPILOG,
        formatter_class=ScrapyHelpFormatter,
    )
    verb = below(parser, "verb", "VERB", "Verbs")
    verb("status", "show the runs of tasks, their shards and who works on them", _status)
    verb("why", "say what of a task is unfinished, held by whom and for what reason", _why)
    verb("run", "crawl with a spider; the exit code is the run's verdict", _run)
    verb("plan", "plan a spider's run and show its shards, without crawling them", _plan)
    verb("reap", "take back what dead workers hold, and end runs that nobody ended", _reap)
    verb("relay", "store what a journal still holds, as of a disk that came back", _relay)
    actparser.declare(verb)
    verb("db", "create, upgrade or check the tables", _db)
    return parser


def _status(parser: Parser) -> None:
    parser.add_argument(
        "task",
        nargs="?",
        metavar="TASK",
        help="a task's id or name, to see its shards too; default: every task",
    )
    output = parser.add_mutually_exclusive_group()
    output.add_argument(
        "--watch", action="store_true", help="show it anew every 2 seconds until Ctrl-C"
    )
    as_json(output)


def _why(parser: Parser) -> None:
    parser.add_argument("task", metavar="TASK", help="a task's id or name")
    parser.add_argument(
        "--values", action="store_true", help="show the values that rows were refused for too"
    )
    as_json(parser)


def _run(parser: Parser) -> None:
    _spider(parser)
    parser.add_argument(
        "-o",
        "--output",
        action="append",
        metavar="FILE",
        help="append the items of this crawl to FILE, or to stdout for -; FILE:FORMAT says the"
        " format (may be repeated)",
    )
    parser.add_argument(
        "-O",
        "--overwrite-output",
        action="append",
        metavar="FILE",
        help="the same, but FILE is emptied first (may be repeated)",
    )


def _plan(parser: Parser) -> None:
    _spider(parser)
    as_json(parser)


def _reap(parser: Parser) -> None:
    as_json(parser)


def _relay(parser: Parser) -> None:
    parser.add_argument(
        "--journal",
        required=True,
        metavar="PATH",
        help="a journal, the directory of a slot, or a RESUME_HOME with all its slots",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="say what would be stored, and store nothing"
    )
    as_json(parser)


def _db(parser: Parser) -> None:
    act = below(parser, "act", "ACT", "Acts")
    act("upgrade", "create the tables or bring them to this version", lambda one: None)
    act("check", "say what is wrong with the tables; exit code 1 if anything is", as_json)


def _spider(parser: Parser) -> None:
    parser.add_argument("spider", metavar="SPIDER", help="name of a spider of this project")
    parser.add_argument(
        "-a",
        dest="spargs",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="set spider argument (may be repeated)",
    )
