"""What the command costs others, its help, and mistakes on the command line."""

from __future__ import annotations

import re
import subprocess
import sys
from argparse import ArgumentTypeError
from typing import Any

import pytest

from scrapy_resume.commands import actparser
from tests.commands.conftest import Scrapy

_VERBS = (
    "status", "why", "run", "plan", "reap", "relay", "pause", "unpause", "cancel", "retry",
    "restart", "backfill", "reset", "quarantine", "health", "db",
)  # fmt: skip
_ACT = ("TASK", "--reason TEXT", "--dry-run", "--json")


def test_other_commands_of_scrapy_import_three_small_modules() -> None:
    program = """if True:
        import sys
        import scrapy.cmdline
        before = set(sys.modules)
        import scrapy_resume.commands.resume as module
        module.ResumeCommand().short_desc()
        print(*sorted(set(sys.modules) - before))
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.split() == [
        "scrapy_resume",
        "scrapy_resume.commands",
        "scrapy_resume.commands.resume",
    ], done.stderr


def test_scrapy_lists_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "scrapy"], capture_output=True, text=True)
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("  resume ")]
    assert "resumable crawls" in line


@pytest.mark.parametrize("words", [("--help",), ("-h",)])
def test_the_help_names_every_verb(scrapy: Scrapy, words: tuple[str, ...]) -> None:
    outcome = scrapy("resume", *words)
    assert outcome.code == 0
    assert set(re.findall(r"^    ([a-z]+)\b", outcome.out, re.MULTILINE)) == set(_VERBS)
    assert "-s NAME=VALUE" in outcome.out


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (("status",), ("--watch", "--json", "[TASK]")),
        (("why",), ("--json", "TASK")),
        (("run",), ("-a NAME=VALUE", "--output FILE", "--overwrite-output FILE", "SPIDER")),
        (("plan",), ("-a NAME=VALUE", "--json", "SPIDER")),
        (("pause",), (*_ACT, "--site SITE", "--for TIME")),
        (("unpause",), (*_ACT, "--site SITE")),
        (("cancel",), _ACT),
        (("retry",), (*_ACT, "--shards LIST", "--pages LIST", "--confirm TASK_ID")),
        (("restart",), (*_ACT, "--confirm TASK_ID")),
        (("backfill",), ("SPIDER", "--pages A-B", *_ACT[1:], "--confirm TASK_ID")),
        (("reset",), (*_ACT, "--confirm TASK_ID")),
        (("quarantine",), ("list", "show", "requeue", "resolve")),
        (("quarantine", "list"), ("[TASK]", "--all", "--limit N", "--json")),
        (("quarantine", "show"), ("ID", "--json")),
        (("quarantine", "requeue"), ("[IDS]", "--task TASK", *_ACT[1:])),
        (("quarantine", "resolve"), ("[IDS]", "--resolution TEXT", *_ACT[1:])),
        (("health",), ("show", "set")),
        (("health", "show"), ("[SITE]", "--json")),
        (("health", "set"), ("SITE", "STATE", "--for TIME", *_ACT[1:])),
        (("db",), ("upgrade", "check")),
        (("db", "check"), ("--json",)),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("before", [True, False])
def test_each_verb_has_its_own_help(
    scrapy: Scrapy, words: tuple[str, ...], wanted: tuple[str, ...], before: bool
) -> None:
    outcome = scrapy("resume", *(("-h", *words) if before else (*words, "--help")))
    assert outcome.code == 0
    assert f"scrapy resume {' '.join(words)} [-h]" in outcome.out
    assert all(text in outcome.out for text in wanted)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("stats",), "invalid choice: 'stats'"),
        (("status", "--josn"), "unrecognized arguments: --josn"),
        (("status", "1", "2"), "unrecognized arguments: 2"),
        (("status", "--watch", "--json"), "not allowed with"),
        (("why",), "required: TASK"),
        (("run",), "required: SPIDER"),
        (("run", "books", "-a", "blocks"), "invalid -a value, use -a NAME=VALUE"),
        (("db",), "required: ACT"),
        (("db", "drop"), "invalid choice: 'drop'"),
        (("status", "-s", "RESUME_LEASE"), "Invalid -s value"),
        (("run", "books"), "run needs a spider and so a Scrapy project"),
        (("plan", "books"), "plan needs a spider and so a Scrapy project"),
    ],
    ids=" ".join,
)
def test_a_mistake_on_the_line_is_a_usage_error(
    scrapy: Scrapy, words: tuple[str, ...], said: str
) -> None:
    outcome = scrapy("resume", *words)
    assert (outcome.code, outcome.out) == (2, "")
    assert said in outcome.err


def test_without_a_verb_it_prints_its_help_as_an_error(scrapy: Scrapy) -> None:
    outcome = scrapy("resume")
    assert (outcome.code, outcome.out) == (2, "")
    assert "status" in outcome.err


@pytest.mark.parametrize("at", [0, 1, 2])
def test_options_of_scrapy_stand_anywhere(scrapy: Scrapy, sqlite_url: str, at: int) -> None:
    words = ["status", "--json"]
    words[at:at] = ["-s", f"RESUME_DATABASE_URL={sqlite_url}", "-L", "ERROR"]
    outcome = scrapy("resume", *words)
    assert (outcome.code, outcome.json) == (0, {"tasks": []})


@pytest.mark.parametrize("kind", [actparser.numbers, actparser.ranges, actparser.one_range])
def test_a_number_that_no_database_holds_is_a_mistake_on_the_line(kind: Any) -> None:
    assert kind(f"1,{2**62 - 1}" if kind is actparser.ranges else "7")
    with pytest.raises(ArgumentTypeError, match="too large"):
        kind(str(2**62))


def test_bytes_of_the_line_that_are_no_text_are_taken_for_question_marks() -> None:
    assert actparser.words("caf\udce9 ") == actparser.plain("caf\udce9") == "caf?"
