"""The recipes for supervisors give a crawl the signal and the time that it needs."""

from __future__ import annotations

import json
import re

from scrapy_resume.departure import SPARE
from scrapy_resume.settings import ResumeSettings
from tests.docs.pages import block

PAGE = "docs/how-to/deploy.md"
LAST = 2.0  # seconds that Python takes to end, at most


def found(pattern: str, language: str, containing: str = "") -> str:
    match = re.search(pattern, block(PAGE, language, containing).text)
    assert match, pattern
    return match[1]


def test_every_recipe_waits_longer_than_a_stop_takes() -> None:
    needed = ResumeSettings().grace + SPARE + LAST
    assert int(found(r"TimeoutStopSec=(\d+)", "ini")) > needed
    assert int(found(r"stop_grace_period: (\d+)s", "yaml", "compose")) > needed
    assert int(found(r"terminationGracePeriodSeconds: (\d+)", "yaml", "StatefulSet")) > needed


def test_every_recipe_sends_a_polite_signal_to_the_crawl_itself() -> None:
    assert found(r"KillSignal=(\w+)", "ini") == "SIGTERM"
    assert found(r"STOPSIGNAL (\w+)", "dockerfile") == "SIGTERM"
    assert json.loads(found(r"ENTRYPOINT (.+)", "dockerfile"))[0] == "scrapy"
    assert found(r"init: (\w+)", "yaml", "compose") == "true"


def test_every_recipe_keeps_the_home() -> None:
    state = found(r"StateDirectory=(\w+)", "ini")
    assert found(r"RESUME_HOME=(\S+)", "ini") == f"/var/lib/{state}"
    home = found(r"RESUME_HOME=(\S+)", "dockerfile")
    assert found(r"VOLUME (\S+)", "dockerfile") == home
    assert found(r"- \w+:(/\S+)", "yaml", "compose") == home
    assert found(r"mountPath: ([^}]+)}", "yaml", "StatefulSet") == home
    assert found(r"RESUME_HOME\n +value: (\S+)", "yaml", "StatefulSet") == home
