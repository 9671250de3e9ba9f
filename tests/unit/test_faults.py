"""Fault points: what they do to the process, and when."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from scrapy_resume import faults
from scrapy_resume.exceptions import ConfigurationError, InjectedFault

PASSES = """
from scrapy_resume import faults
faults.arm({spec!r})
for number in range(1, 5):
    print(number, flush=True)
    faults.point("commit.before")
"""


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    faults.arm(None)


def start(spec: str) -> subprocess.Popen[str]:
    script = PASSES.format(spec=spec)
    return subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)


def passed(spec: str, name: str = "commit.before") -> int:
    """How often *name* is passed before it raises, of at most ten times."""
    faults.arm(spec)
    for number in range(10):
        try:
            faults.point(name)
        except InjectedFault:
            return number
    return 10


def test_kill_is_sigkill_at_exactly_the_nth_passage() -> None:
    with start("commit.before:3:kill") as process:
        out, _ = process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert out.split() == ["1", "2", "3"]


def test_stop_freezes_the_process_until_it_is_told_to_go_on() -> None:
    with start("commit.before:2:stop") as process:
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        assert os.WSTOPSIG(status) == signal.SIGSTOP
        process.send_signal(signal.SIGCONT)
        out, _ = process.communicate()
    assert process.returncode == 0
    assert out.split() == ["1", "2", "3", "4"]


def test_raise_happens_once_at_its_passage() -> None:
    assert passed("commit.before:3:raise") == 2
    assert passed("commit.before:1:raise, commit.before:2:raise") == 0
    with pytest.raises(InjectedFault, match=r"commit\.before"):
        faults.point("commit.before")
    faults.point("commit.before")


def test_sleep_waits_for_the_seconds_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    faults.arm("claim.after:2:sleep=1.5")
    for _ in range(3):
        faults.point("claim.after")
    assert slept == [1.5]


def test_points_are_counted_apart() -> None:
    assert passed("commit.before:1:raise", "commit.after") == 10


@pytest.mark.parametrize("spec", [None, "", " , "])
def test_disarmed_points_do_nothing(spec: str | None) -> None:
    faults.arm("commit.before:1:raise")
    faults.arm(spec)
    faults.point("commit.before")


def test_arming_starts_counting_anew() -> None:
    assert passed("commit.before:2:raise") == 1
    assert passed("commit.before:2:raise") == 1


@pytest.mark.parametrize(
    "spec",
    [
        "commit.before",
        "commit.before:1",
        "commit.before:0:kill",
        "commit.before:x:kill",
        "commit.before:1:explode",
        "commit.before:1:sleep=long",
        "nowhere:1:kill",
    ],
)
def test_a_spec_that_says_nothing_is_refused_whole(spec: str) -> None:
    with pytest.raises(ConfigurationError, match="POINT:N:ACTION"):
        faults.arm(f"commit.after:1:raise,{spec}")
    faults.point("commit.after")
