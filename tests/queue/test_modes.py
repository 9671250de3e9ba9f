"""The link in every kind of event loop that Scrapy runs in."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from scrapy_resume.redisthread import PATIENCE
from tests.queue.modes import REACTORS
from tests.services import Redis

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("mode", REACTORS)
def test_red_8_in_every_kind_of_event_loop(server: Redis, mode: str) -> None:
    assert server.process is not None
    done = subprocess.run(
        [sys.executable, "-m", "tests.queue.modes", mode, server.url, str(server.process.pid)],
        cwd=ROOT, capture_output=True, text=True, timeout=180,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout)
    assert (told["taken"], told["frozen"]) == ([1], [[], [], []])
    assert told["closed"] == [True, True]
    assert told["wakes"] >= 2 and told["in the loop"]
    assert told["lag"] < 0.5  # a call in the loop would take 2 s
    assert told["took"] < PATIENCE + 1
