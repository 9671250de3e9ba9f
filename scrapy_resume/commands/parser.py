"""The arguments of every verb, declared in one place.

Scrapy's own options have been taken out before these are read, so they may stand
anywhere on the line.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

from scrapy.cmdline import ScrapyArgumentParser
from scrapy.commands import ScrapyHelpFormatter
from scrapy.utils.conf import arglist_to_dict

PROG = "scrapy resume"
EPILOG = (
    "Scrapy's own options work with every verb: -s NAME=VALUE, -L LEVEL, --logfile FILE, --nolog,"
    " --pidfile FILE, --profile FILE, --pdb. Give the database's address by the environment"
    " variable RESUME_DATABASE_URL, where others cannot see its password."
)
_Parser = argparse.ArgumentParser


def read(words: Sequence[str], into: argparse.Namespace) -> None:
    """Read *words* into *into*: ``verb`` and its arguments. Exits for help and for mistakes."""
    parser = build()
    parser.parse_args(words, namespace=into)
    if into.verb is None:
        parser.print_help(sys.stderr)
        sys.exit(2)
    if into.verb in ("run", "plan"):
        try:
            into.spargs = arglist_to_dict(into.spargs)
        except ValueError:
            parser.error("invalid -a value, use -a NAME=VALUE")


def build() -> _Parser:
    """The parser of ``scrapy resume``; each verb has its own below it."""
    parser = ScrapyArgumentParser(
        prog=PROG,
        description="Run resumable crawls, and show what they have done and what is left.",
        epilog=EPILOG,
        formatter_class=ScrapyHelpFormatter,
    )
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", title="Verbs")

    def verb(name: str, meaning: str, add: Callable[[_Parser], None]) -> None:
        one = verbs.add_parser(
            name,
            help=meaning,
            description=f"{meaning[0].upper()}{meaning[1:]}.",
            epilog=EPILOG,
            formatter_class=ScrapyHelpFormatter,
        )
        add(one)

    verb("status", "show the runs of tasks, their shards and who works on them", _status)
    verb("why", "say what of a task is unfinished, held by whom and for what reason", _why)
    verb("run", "crawl with a spider; the exit code is the run's verdict", _run)
    verb("plan", "plan a spider's run and show its shards, without crawling them", _plan)
    verb("reap", "take back what dead workers hold, and end runs that nobody ended", _reap)
    verb("db", "create, upgrade or check the tables", _db)
    return parser


def _status(parser: _Parser) -> None:
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
    _json(output)


def _why(parser: _Parser) -> None:
    parser.add_argument("task", metavar="TASK", help="a task's id or name")
    parser.add_argument(
        "--values", action="store_true", help="show the values that rows were refused for too"
    )
    _json(parser)


def _run(parser: _Parser) -> None:
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


def _plan(parser: _Parser) -> None:
    _spider(parser)
    _json(parser)


def _reap(parser: _Parser) -> None:
    _json(parser)


def _db(parser: _Parser) -> None:
    acts = parser.add_subparsers(dest="act", metavar="ACT", title="Acts", required=True)
    for name, meaning in (
        ("upgrade", "create the tables or bring them to this version"),
        ("check", "say what is wrong with the tables; exit code 1 if anything is"),
    ):
        act = acts.add_parser(
            name,
            help=meaning,
            description=f"{meaning[0].upper()}{meaning[1:]}.",
            epilog=EPILOG,
            formatter_class=ScrapyHelpFormatter,
        )
        if name == "check":
            _json(act)


def _spider(parser: _Parser) -> None:
    parser.add_argument("spider", metavar="SPIDER", help="name of a spider of this project")
    parser.add_argument(
        "-a",
        dest="spargs",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="set spider argument (may be repeated)",
    )


def _json(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object instead, for scripts"
    )
