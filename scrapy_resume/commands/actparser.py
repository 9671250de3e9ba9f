"""The arguments of the operator's verbs: what they act on, why, and whether they really do."""

from __future__ import annotations

import argparse
import re

from scrapy_resume.commands.subparsers import Declare, Parser, as_json, below
from scrapy_resume.watermark import PageRanges

UNSAID = "no reason given"
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_MOST = 100_000
_HIGHEST = (1 << 62) - 1  # of a number that the database holds
_DURATION = re.compile(r"(\d+(?:\.\d+)?)([smhd]?)")


def declare(verb: Declare) -> None:
    """Declare the operator's verbs."""
    verb("pause", "have workers let go of a task, or of a site in every task", _pause)
    verb("unpause", "end the pause of a task or of a site", _unpause)
    verb("cancel", "end a run: what of it is not done fails with that reason", _act)
    verb("retry", "have what failed tried again: shards, pages, or the whole run", _retry)
    verb("restart", "have the shards of a run read again from their first pages", _dangerous)
    verb("backfill", "have a range of pages read again, behind all fresh work", _backfill)
    verb("reset", "erase a run's plan, checkpoints and quarantine; its items stay", _dangerous)
    verb("quarantine", "show what was set aside, put it back to work or resolve it", _quarantine)
    verb("health", "show how well sites are, or say so", _health)


def duration(text: str) -> float:
    """Seconds of ``90``, ``90s``, ``30m``, ``2h`` or ``1d``."""
    match = _DURATION.fullmatch(text.strip())
    seconds = float(match[1]) * _SECONDS[match[2]] if match else 0.0
    if not 0 < seconds <= 366 * 86400:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no time of up to 366 days, such as 90s, 30m, 2h or 1d"
        )
    return seconds


def ranges(text: str) -> PageRanges:
    """Numbers and ranges of them, as in ``1,4-6``."""
    try:
        found = PageRanges.parse(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list such as 1,4-6") from None
    if not found:
        raise argparse.ArgumentTypeError("no number is given")
    if found.ranges[-1][1] > _HIGHEST:
        raise argparse.ArgumentTypeError(f"{text!r} names a number that is too large")
    return found


def numbers(text: str) -> PageRanges:
    """As :func:`ranges`, for numbers that are taken one by one."""
    found = ranges(text)
    if len(found) > _MOST:
        raise argparse.ArgumentTypeError(f"{text!r} names {len(found)}; at most {_MOST} at once")
    return found


def positive(text: str) -> int:
    """A whole number from 1."""
    if not text.isdecimal() or len(text) > 18 or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1")
    return int(text)


def one_range(text: str) -> PageRanges:
    """One range, as in ``A-B``."""
    found = ranges(text)
    if len(found.ranges) != 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not one range such as 6-12")
    return found


def words(text: str) -> str:
    """A text that says something."""
    if not text.strip():
        raise argparse.ArgumentTypeError("it says nothing")
    return plain(text.strip())


def plain(text: str) -> str:
    """*text* with a ? for each byte of the line that was no text."""
    return text.encode("utf-8", "replace").decode()


def _act(parser: Parser) -> None:
    parser.add_argument("task", type=plain, metavar="TASK", help="a task's id or name")
    _why_and_how(parser)


def _dangerous(parser: Parser) -> None:
    _act(parser)
    _confirm(parser)


def _pause(parser: Parser) -> None:
    _task_or_site(parser)
    parser.add_argument(
        "--for",
        dest="seconds",
        type=duration,
        metavar="TIME",
        help="with a site: how long, as 90s, 30m, 2h or 1d; default: until it is unpaused",
    )


def _unpause(parser: Parser) -> None:
    _task_or_site(parser)


def _task_or_site(parser: Parser) -> None:
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("task", nargs="?", type=plain, metavar="TASK", help="a task's id or name")
    which.add_argument("--site", type=plain, metavar="SITE", help="a site instead, for every task")
    _why_and_how(parser)


def _retry(parser: Parser) -> None:
    _dangerous(parser)
    parser.add_argument(
        "--shards",
        type=numbers,
        metavar="LIST",
        help="only these shards, by number, as in 1,4-6; needs no confirmation",
    )
    parser.add_argument(
        "--pages", type=ranges, metavar="LIST", help="only these pages; needs no confirmation"
    )


def _backfill(parser: Parser) -> None:
    parser.add_argument(
        "task",
        type=plain,
        metavar="SPIDER",
        help="a spider whose arguments select nothing, or a task",
    )
    parser.add_argument(
        "--pages", type=one_range, metavar="A-B", required=True, help="the pages to read again"
    )
    _why_and_how(parser)
    _confirm(parser)


def _quarantine(parser: Parser) -> None:
    act = below(parser, "act", "ACT", "Acts")
    act("list", "list the records that are not resolved yet", _quarantine_list)
    act("show", "show one record whole", _quarantine_show)
    act("requeue", "have the pages of records read again", _records)
    act("resolve", "say that records need nothing more", _resolve)


def _quarantine_list(parser: Parser) -> None:
    parser.add_argument(
        "task", nargs="?", type=plain, metavar="TASK", help="only those of this task"
    )
    parser.add_argument("--all", action="store_true", help="those that are resolved too")
    parser.add_argument(
        "--limit", type=positive, default=100, metavar="N", help="at most so many; default: 100"
    )
    as_json(parser)


def _quarantine_show(parser: Parser) -> None:
    parser.add_argument("id", type=positive, metavar="ID", help="a record's id")
    as_json(parser)


def _records(parser: Parser) -> None:
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument(
        "ids", nargs="?", type=numbers, metavar="IDS", help="ids of records, as in 1,4-6"
    )
    which.add_argument(
        "--task",
        type=plain,
        metavar="TASK",
        help="all of this task's records that are not resolved instead",
    )
    _why_and_how(parser)


def _resolve(parser: Parser) -> None:
    _records(parser)
    parser.add_argument(
        "--resolution", type=words, metavar="TEXT", required=True, help="what became of it"
    )


def _health(parser: Parser) -> None:
    act = below(parser, "act", "ACT", "Acts")
    act("show", "show the sites on record, and those of unfinished runs", _health_show)
    act("set", "say how well a site is, whatever workers judged", _health_set)


def _health_show(parser: Parser) -> None:
    parser.add_argument("site", nargs="?", type=plain, metavar="SITE", help="only this one")
    as_json(parser)


def _health_set(parser: Parser) -> None:
    parser.add_argument(
        "site", type=plain, metavar="SITE", help="a site, as `health show` names it"
    )
    parser.add_argument(
        "state",
        metavar="STATE",
        choices=("healthy", "blocked", "paused"),
        help="healthy, blocked or paused",
    )
    parser.add_argument(
        "--for",
        dest="seconds",
        type=duration,
        metavar="TIME",
        help="how long it is blocked (needed) or paused, as 90s, 30m, 2h or 1d",
    )
    _why_and_how(parser)


def _why_and_how(parser: Parser) -> None:
    parser.add_argument(
        "--reason",
        type=words,
        default=UNSAID,
        metavar="TEXT",
        help="why, for the record of the act",
    )
    parser.add_argument("--dry-run", action="store_true", help="only say what it would change")
    as_json(parser)


def _confirm(parser: Parser) -> None:
    parser.add_argument(
        "--confirm",
        metavar="TASK_ID",
        help="the task's id, instead of typing it when asked for it",
    )
