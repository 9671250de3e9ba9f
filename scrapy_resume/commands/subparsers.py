"""What the parsers of all verbs have in common: how a verb is declared, and its last words."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TypeAlias

from scrapy.commands import ScrapyHelpFormatter

PROG = "scrapy resume"
EPILOG = (
    "Scrapy's own options work with every verb: -s NAME=VALUE, -L LEVEL, --logfile FILE, --nolog,"
    " --pidfile FILE, --profile FILE, --pdb. Give the database's address by the environment"
    " variable RESUME_DATABASE_URL, where others cannot see its password."
)
Parser: TypeAlias = argparse.ArgumentParser
Declare: TypeAlias = Callable[[str, str, Callable[[Parser], None]], None]


def below(parser: Parser, dest: str, metavar: str, title: str) -> Declare:
    """Let words follow in *parser*: returns what declares one, with its meaning and arguments.

    Only the verb itself may be missing; then the help is printed.
    """
    words = parser.add_subparsers(dest=dest, metavar=metavar, title=title, required=dest != "verb")

    def declare(name: str, meaning: str, add: Callable[[Parser], None]) -> None:
        one = words.add_parser(
            name,
            help=meaning,
            description=f"{meaning[0].upper()}{meaning[1:]}.",
            epilog=EPILOG,
            formatter_class=ScrapyHelpFormatter,
        )
        add(one)

    return declare


def as_json(parser: argparse._ActionsContainer) -> None:
    """The option ``--json``."""
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object instead, for scripts"
    )
